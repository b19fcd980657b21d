use homeostat_serve::{Access, UserInfo};
use log::Level;

use super::*;
use crate::logs::Logs;

#[test]
fn users_are_known_by_token_or_password() {
    let server = start(|builder| {
        builder
            .token("first-token", UserInfo::new("ada").group("admins"))
            .password("sesame", UserInfo::new("bob"))
            .authorize(|request| match request.user.groups.first().map(String::as_str) {
                Some("admins") => Access::Allow,
                _ => Access::Deny("only admins may".to_owned()),
            })
    });
    for (header, expected) in [
        ("", "401"),
        ("Authorization: Bearer first-token\r\n", "404"),
        ("Authorization: Bearer other-token\r\n", "401"),
        ("Authorization: Bearer first-token\r\nAuthorization: Bearer first-token\r\n", "401"),
        ("Authorization: Basic Ym9iOnNlc2FtZQ==\r\n", "403"),
        ("Authorization: Basic Ym9iOndyb25n\r\n", "401"),
    ] {
        let reply = ask(connect(&server), "GET", "/page", header);
        assert_eq!(status(&reply), expected, "{header}: {reply}");
        assert_eq!(reply.contains("www-authenticate: Basic realm=\"homeostat\""), expected == "401", "{reply}");
        assert_eq!(reply.contains("bob: get /page is forbidden: only admins may"), expected == "403", "{reply}");
    }
}

#[test]
fn clients_of_objects_get_a_status() {
    let server = start(|builder| builder.token("token", UserInfo::new("ada")));
    let reply = ask(connect(&server), "GET", "/api/v1/pods", "");
    assert_eq!(status(&reply), "401");
    let json: serde_json::Value = serde_json::from_str(reply.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(
        (&json["kind"], &json["reason"], &json["code"]),
        (&"Status".into(), &"Unauthorized".into(), &401.into())
    );
}

#[test]
fn public_paths_need_no_user() {
    let server = start(|builder| {
        let builder = builder.token("token", UserInfo::new("ada")).public_path("/livez");
        builder.authorize(|_| Access::Deny("nothing is allowed".to_owned()))
    });
    for (method, path, expected) in [
        ("GET", "/livez", "404"),
        ("HEAD", "/livez/", "404"),
        ("GET", "/live%7a", "404"),
        ("POST", "/livez", "401"),
        ("GET", "/livez/ping", "401"),
        ("GET", "/", "401"),
    ] {
        assert_eq!(status(&ask(connect(&server), method, path, "")), expected, "{method} {path}");
    }
    let authorized = "Authorization: Bearer token\r\n";
    assert_eq!(status(&ask(connect(&server), "GET", "/livez", authorized)), "404");
    assert_eq!(status(&ask(connect(&server), "GET", "/", authorized)), "403");
}

#[test]
fn a_server_with_users_can_serve_others_too() {
    let server = start(|builder| builder.token("token", UserInfo::new("ada")).allow_anonymous());
    for (header, expected) in
        [("", "404"), ("Authorization: Bearer token\r\n", "404"), ("Authorization: Bearer x\r\n", "401")]
    {
        assert_eq!(status(&ask(connect(&server), "GET", "/", header)), expected, "{header}");
    }
}

#[test]
fn foreign_hosts_and_pages_are_refused() {
    let server = start(|builder| builder.allow_host("Appliance.example"));
    let ask = |host: &str, headers: &str| {
        let mut stream = connect(&server);
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        assert!(!reply.contains("access-control"), "no page of another origin may read a reply");
        status(&reply).to_owned()
    };
    for host in ["localhost", "127.0.0.1:7", "appliance.example"] {
        assert_eq!(ask(host, ""), "404", "{host}");
    }
    assert_eq!(ask("evil.example", ""), "403");
    assert_eq!(ask("localhost", "Origin: http://evil.example\r\n"), "403");
    assert_eq!(ask("localhost", "Sec-Fetch-Site: cross-site\r\n"), "403");
    assert_eq!(ask("localhost", "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n"), "404");
}

#[test]
fn a_request_as_another_user_or_with_fewer_rights_is_refused() {
    let server = start(|builder| builder.token("token", UserInfo::new("ada")));
    for (headers, expected) in [
        ("", "404"),
        ("Impersonate-User: root\r\n", "403"),
        ("Impersonate-User:\r\n", "403"),
        ("Impersonate-User: root\r\nImpersonate-User: root\r\n", "403"),
        ("Impersonate-User: root\r\nImpersonate-Group: viewers\r\n", "403"),
        ("Impersonate-Group: viewers\r\n", "400"),
        ("Impersonate-Group: viewers\r\nImpersonate-Group: editors\r\n", "400"),
        ("Impersonate-Group:\r\n", "400"),
        ("impersonate-uid: 7\r\n", "400"),
        ("Impersonate-Extra-Scopes: view\r\n", "400"),
        ("Impersonate-Extra-\r\n", "400"),
        ("Impersonate-Whatever: x\r\n", "400"),
    ] {
        for path in ["/page", "/apis/a/v1/things"] {
            let reply = ask(connect(&server), "GET", path, &format!("Authorization: Bearer token\r\n{headers}"));
            assert_eq!(status(&reply), expected, "{headers}: {reply}");
        }
    }
    let reply = ask(connect(&server), "GET", "/api", "Authorization: Bearer token\r\nImpersonate-Group: viewers\r\n");
    let message = "the header impersonate-group needs Impersonate-User, and users may not act as other users here";
    assert!(reply.contains(message) && reply.contains("\"reason\":\"BadRequest\""), "{reply}");
}

#[test]
fn encoded_bodies_are_refused() {
    let server = start(|builder| builder);
    for (encoding, expected) in [("gzip", "415"), ("GZIP, br", "415"), ("identity", "404"), ("", "404")] {
        for path in ["/apis/a/v1/things", "/page"] {
            let headers = format!("Content-Encoding: {encoding}\r\nContent-Length: 2\r\n\r\n{{}}");
            let reply = ask(connect(&server), "POST", path, &headers);
            assert_eq!(status(&reply), expected, "{encoding}: {reply}");
        }
    }
}

#[test]
fn refused_reads_are_logged_a_limited_number_of_times() {
    let logs = Logs::of("refusing");
    let server = start(|builder| {
        let builder = builder.name("refusing").token("my-secret", UserInfo::new("ada"));
        builder.authorize(|_| Access::Deny("nothing is allowed".to_owned()))
    });
    for _ in 0..3 {
        ask(connect(&server), "GET", "/page%20forged?token=my-query", "Authorization: Bearer my-wrong\r\n");
        ask(connect(&server), "GET", "/page?token=my-query", "Authorization: Bearer my-secret\r\n");
    }
    for _ in 0..3 {
        ask(connect(&server), "POST", "/page", "Impersonate-Group: viewers\r\n");
    }
    drop(server);
    let lines: Vec<_> = logs.at(Level::Info).into_iter().filter(|line| line.fields.contains_key("method")).collect();
    let texts: Vec<_> = lines.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(
        texts,
        [
            "refusing: anonymous at 127.0.0.1: GET /page%20forged: 401: the token is wrong",
            "refusing: ada at 127.0.0.1: GET /page: 403: ada: get /page is forbidden: nothing is allowed",
            // Anybody can send such a write.
            "refusing: anonymous at 127.0.0.1: POST /page: 400, dry run: false (4 similar lines omitted before this one)",
        ]
    );
    let fields = ["user", "client", "method", "path", "status"].map(|field| lines[1].field(field));
    assert_eq!(fields, ["ada", "127.0.0.1", "GET", "/page", "403"]);
    assert!(logs.all().iter().all(|line| !format!("{line:?}").contains("my-")), "{:?}", logs.all());
}

#[test]
fn the_log_of_writes_marks_dry_runs_and_omits_reviews() {
    let logs = Logs::of("dry-runs");
    let server = start(|builder| builder.name("dry-runs"));
    logs.wait_for(Level::Info, "the server listens on 127.0.0.1:");
    for path in [
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        "/apis/a/v1/things?dryRun=All",
        "/apis/a/v1/things",
    ] {
        ask(connect(&server), "POST", path, "");
    }
    let deletions = [
        ("?dryRun=All", ""),
        ("", r#"{"kind": "DeleteOptions", "dryRun": ["All"]}"#),
        ("", r#"{"kind": "DeleteOptions", "dryRun": []}"#),
        ("", r#"{"dryRun": ["All"]"#),
        ("", ""),
    ];
    for (query, body) in deletions {
        let path = format!("/apis/a/v1/things{query}");
        let reply = ask(connect(&server), "DELETE", &path, &format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(status(&reply), "404", "{reply}");
    }
    drop(server);
    let lines: Vec<_> = logs.at(Level::Info).into_iter().filter(|line| line.fields.contains_key("method")).collect();
    let dry_runs: Vec<_> = lines.iter().map(|line| (line.field("method"), line.field("dry_run"))).collect();
    let deletions = ["true", "true", "false", "false", "false"].map(|dry_run| ("DELETE", dry_run));
    assert_eq!(dry_runs, [&[("POST", "true"), ("POST", "false")][..], &deletions].concat());
    assert!(lines.iter().all(|line| line.field("path") == "/apis/a/v1/things"), "{lines:?}");
}

#[test]
fn each_write_is_logged_without_secrets() {
    let logs = Logs::of("audited");
    let server = start(|builder| builder.name("audited").token("my-secret", UserInfo::new("ada")));
    logs.wait_for(Level::Info, "the server listens on 127.0.0.1:");
    let authorized = "Authorization: Bearer my-secret\r\n";
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
        ask(connect(&server), method, "/apis/a/v1/things?token=my-query", authorized);
    }
    ask(connect(&server), "POST", "/page%0aforged", "Authorization: Bearer my-wrong\r\n");
    ask(connect(&server), "DELETE", "/page", "Authorization: Bearer my-wrong\r\n");
    drop(server);
    let lines: Vec<_> = logs.at(Level::Info).into_iter().filter(|line| line.fields.contains_key("method")).collect();
    let texts: Vec<_> = lines.iter().map(|line| line.message.as_str()).collect();
    assert_eq!(
        texts,
        [
            "audited: ada at 127.0.0.1: POST /apis/a/v1/things: 404, dry run: false",
            "audited: ada at 127.0.0.1: PUT /apis/a/v1/things: 404, dry run: false",
            "audited: ada at 127.0.0.1: PATCH /apis/a/v1/things: 404, dry run: false",
            "audited: ada at 127.0.0.1: DELETE /apis/a/v1/things: 404, dry run: false",
            "audited: anonymous at 127.0.0.1: DELETE /page: 401, dry run: false",
        ]
    );
    let fields = ["user", "client", "method", "path", "status"].map(|field| lines[0].field(field));
    assert_eq!(fields, ["ada", "127.0.0.1", "POST", "/apis/a/v1/things", "404"]);
    assert!(logs.all().iter().all(|line| !format!("{line:?}").contains("my-")), "{:?}", logs.all());
}
