//! `curl` as a client, if it is installed.

use std::process::Command;

use homeostat_serve::UserInfo;

use super::*;

/// Runs `curl`. Returns the reply's status and the number of bytes sent, or `None` without `curl`.
#[expect(clippy::print_stdout, reason = "the test says that it tests nothing")]
pub(super) fn curl(arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("curl");
    // The client must not use a proxy for loopback.
    command.args(["--silent", "--show-error", "--noproxy", "*", "--max-time", "60", "--output"]);
    command.args([if cfg!(windows) { "NUL" } else { "/dev/null" }, "--write-out", "%{http_code} %{size_upload}"]);
    let output = match command.args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            println!("curl is not tested: {error}");
            return None;
        }
    };
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {error}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn curl_reads_and_writes() {
    let server = start(|builder| builder.token("token", UserInfo::new("ada")).password("word", UserInfo::new("bob")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, vec![b'x'; 2 << 20]).unwrap();
    let (url, file) = (format!("{}/page", server.url()), file.to_str().unwrap());
    let body = format!("@{file}");
    let cases: [(&[&str], &str); 8] = [
        (&[&url], "401 0"),
        (&["--oauth2-bearer", "token", &url], "404 0"),
        (&["--user", "bob:word", &url], "404 0"),
        (&["--user", "bob:wrong", &url], "401 0"),
        (&["--user", "bob:word", "--http1.0", &url], "404 0"),
        (&["--user", "bob:word", "--head", &url], "404 0"),
        // `curl` waits for `100 Continue`.
        (&["--user", "bob:word", "--header", "Expect: 100-continue", "--data-binary", &body, &url], "404 2097152"),
        (&["--user", "bob:word", "--header", "Transfer-Encoding: chunked", "--upload-file", file, &url], "404 2097"),
    ];
    for (arguments, expected) in cases {
        let Some(output) = curl(arguments) else { return };
        // Some versions also count the chunk lines.
        assert!(output.starts_with(expected), "{arguments:?}: {output}");
    }
    // `curl` sends no body if the server refuses it.
    let refused = curl(&["--header", "Expect: 100-continue", "--data-binary", &body, &url]);
    assert_eq!(refused.as_deref(), Some("401 0"));
}
