//! A real `nats-server`.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use homeostat_test_support::system::free_port;
use tempfile::TempDir;

use crate::until::until;

/// A server process with a temporary store. It ends with the test, even if the test is killed.
pub(crate) struct TestServer {
    child: Option<Child>,
    port: u16,
    folder: TempDir,
    arguments: Vec<String>,
}

impl TestServer {
    /// Starts a server with `JetStream`.
    pub(crate) fn start() -> Self {
        Self::with_arguments(&["-js"])
    }

    /// Starts a server with these arguments.
    pub(crate) fn with_arguments(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|text| (*text).to_owned()).collect();
        let folder = tempfile::tempdir().unwrap();
        let mut server = Self { child: None, port: free_port(), folder, arguments };
        server.restart();
        server
    }

    /// Starts a server with a configuration file, which may name other files in `folder()`.
    pub(crate) fn with_config(config: &str) -> Self {
        Self::with_files(config, &[])
    }

    /// Starts a server with a configuration file, in which `FOLDER` means the folder of the files.
    pub(crate) fn with_files(config: &str, files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            fs::write(folder.path().join(name), content).unwrap();
        }
        let path = folder.path().join("server.conf");
        fs::write(&path, config.replace("FOLDER", folder.path().to_str().unwrap())).unwrap();
        let arguments = vec!["-c".to_owned(), path.to_str().unwrap().to_owned()];
        let mut server = Self { child: None, port: free_port(), folder, arguments };
        server.restart();
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Returns the host and port.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills the process. Its store and its port stay.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Restarts the process on the same port and store, and waits until it accepts clients.
    pub(crate) fn restart(&mut self) {
        self.kill();
        for _ in 0..20 {
            if self.try_start() {
                return;
            }
            self.port = free_port();
        }
        panic!("the server does not start:\n{}", self.log());
    }

    /// Returns false if the process has ended because another process has taken the port.
    fn try_start(&mut self) -> bool {
        let program = program();
        let log = fs::OpenOptions::new().append(true).create(true).open(self.folder.path().join("log")).unwrap();
        // The kernel kills the server as soon as the test's thread ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&program);
        command.args(&self.arguments).args(["-a", "127.0.0.1", "-p", &self.port.to_string()]);
        command.arg("-sd").arg(self.folder.path().join("store"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("cannot start setpriv (Debian: util-linux): {error}"));
        let accepts = until("server that accepts", || {
            if child.try_wait().unwrap().is_some() {
                return Some(false);
            }
            let socket = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
            let mut line = String::new();
            BufReader::new(socket).read_line(&mut line).ok()?;
            line.starts_with("INFO").then_some(true)
        });
        self.child = Some(child);
        if !accepts {
            self.kill();
        }
        accepts
    }

    /// Returns the log of the server.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for TestServer {
    #[expect(clippy::print_stdout, reason = "a failed test shows the log of its server")]
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            println!("log of the server on port {}:\n{}", self.port, self.log());
        }
    }
}

/// Returns the server's program.
fn program() -> PathBuf {
    let program = std::env::var_os("HOMEOSTAT_NATS_SERVER").map_or_else(|| "nats-server".into(), PathBuf::from);
    match Command::new(&program).arg("--version").stdout(Stdio::null()).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            panic!("{} is not installed: apt-get install nats-server, or set HOMEOSTAT_NATS_SERVER", program.display())
        }
        Err(error) => panic!("{} cannot be started: {error}", program.display()),
        Ok(_) => program,
    }
}
