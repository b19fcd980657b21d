use super::*;

fn read(text: &str) -> Result<Config, String> {
    Config::read(text.as_bytes(), Path::new("/etc/s.toml")).map_err(|error| error.to_string())
}

fn error(text: &str) -> String {
    read(text).expect_err("a fault")
}

/// Returns the error of a file that has `line` as its third line, in a service that is complete
/// without it.
fn error_of(line: &str) -> String {
    error(&format!("[[service]]\nname = \"web\"\n{line}\ncommand = \"httpd\"\n"))
}

#[test]
fn a_service_has_defaults() {
    let config = read("[[service]]\nname = 'a'\ncommand = 'true'\n").unwrap();
    let expected = Service {
        name: "a".into(),
        launch: Launch { command: "true".to_owned(), args: Vec::new(), env: BTreeMap::new(), directory: None },
        restart: Restart::Always,
        stop_signal: StopSignal::TERM,
        stop_timeout: Duration::from_secs(10),
    };
    assert_eq!(*config.services[0], expected);
}

#[test]
fn every_key_is_read() {
    let text = r#"
        [[service]]
        name = "web-1"
        command = "httpd"
        args = ["-f", "$HOME"]
        env = { PORT = "80", EMPTY = "" }
        directory = "www"
        restart = "on-failure"
        stop-signal = "SIGINT"
        stop-timeout = "500ms"

        [[service]]
        name = "db"
        command = "postgres"
        env.PGDATA = "/data"
        restart = "never"
        stop-signal = "QUIT"
        stop-timeout = "2m"
    "#;
    let config = read(text).unwrap();
    let [web, db] = &config.services[..] else { panic!("{config:?}") };
    assert_eq!((&*web.name, &*web.launch.command), ("web-1", "httpd"));
    assert_eq!(web.launch.args, ["-f", "$HOME"]);
    let env: Vec<_> = web.launch.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(env, [("EMPTY", ""), ("PORT", "80")]);
    assert_eq!(web.launch.directory.as_deref(), Some(Path::new("/etc/www")));
    assert_eq!((web.restart, web.stop_timeout), (Restart::OnFailure, Duration::from_millis(500)));
    assert_eq!(web.stop_signal.to_string(), "SIGINT");
    assert_eq!(db.launch.env["PGDATA"], "/data");
    assert_eq!((db.restart, db.stop_timeout), (Restart::Never, Duration::from_secs(120)));
    assert_eq!(db.stop_signal.signal, Signal::QUIT);
}

#[test]
fn the_file_that_ships_is_good() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("services.toml");
    let config = Config::read(&std::fs::read(&path).unwrap(), &path).unwrap();
    assert!(config.services.len() >= 3);
}

#[test]
fn a_fault_in_a_value_names_line_and_service() {
    let faults = [
        ("args = \"-v\"", "`args`: expected an array of strings, found string"),
        ("args = [\"-v\", 5]", "`args`: expected a string, found integer"),
        ("env = 5", "`env`: expected a table, found integer"),
        ("env = { PORT = 80 }", "`env.PORT`: expected a string, found integer"),
        ("env = { \"A=B\" = \"\" }", "`env`: \"A=B\" cannot name a variable"),
        ("directory = true", "`directory`: expected a string, found boolean"),
        (
            "restart = \"sometimes\"",
            "`restart`: \"sometimes\" is not a restart policy (\"always\", \"on-failure\" or \"never\")",
        ),
        (
            "stop-signal = \"FOO\"",
            "`stop-signal`: \"FOO\" is not a stop signal (known: TERM, INT, QUIT, HUP, USR1, USR2, ALRM, ABRT, WINCH, KILL)",
        ),
        ("stop-signal = 15", "`stop-signal`: expected a string, found integer"),
        (
            "stop-timeout = \"soon\"",
            "`stop-timeout`: \"soon\" is not a duration (as in \"500ms\", \"10s\", \"2m\" or \"1h\")",
        ),
        (
            "stop_timeout = \"1s\"",
            "unknown key `stop_timeout` (known: name, command, args, env, directory, restart, stop-signal, stop-timeout)",
        ),
        ("args = [\"a\\u0000b\"]", "`args`: holds a NUL character"),
    ];
    for (line, message) in faults {
        assert_eq!(error_of(line), format!("/etc/s.toml:3: service \"web\": {message}"));
    }
}

#[test]
fn a_fault_of_syntax_names_line_and_service() {
    let faults = ["restart = always", "args = [\"-v\"", "name = \"again\"", "restart = \"always", "restart"];
    for line in faults {
        let error = error_of(line);
        let expected = error.starts_with("/etc/s.toml:3: service \"web\": ")
            || error.starts_with("/etc/s.toml:4: service \"web\": ");
        assert!(expected && error.lines().count() == 1, "{line}: {error}");
    }
}

#[test]
fn what_is_missing_is_reported_at_the_head_of_its_service() {
    let two = "[[service]]\nname = 'a'\ncommand = 'true'\n\n[[service]]\n";
    assert_eq!(error(two), "/etc/s.toml:5: service number 2: `name` is missing");
    assert_eq!(error(&format!("{two}name = 'b'\n")), "/etc/s.toml:5: service \"b\": `command` is missing");
    assert_eq!(error(&format!("{two}name = 'b'\ncommand = ''\n")), "/etc/s.toml:7: service \"b\": `command`: is empty");
}

#[test]
fn a_name_is_taken_once_and_fits_on_a_line() {
    let service = "[[service]]\nname = 'a'\ncommand = 'true'\n";
    assert_eq!(error(&service.repeat(2)), "/etc/s.toml:5: service \"a\": an earlier service has this name");
    let odd = error("[[service]]\ncommand = 'true'\nname = \"a\\nb\"\n");
    assert_eq!(odd, "/etc/s.toml:3: service \"a\\nb\": `name` may hold letters, digits and -_.@, not '\\n'");
}

#[test]
fn what_is_not_a_list_of_services_is_refused() {
    assert_eq!(error(""), "/etc/s.toml:1: no services (write `service = []` to mean none)");
    assert_eq!(
        error("[service.web]\ncommand = 'true'\n"),
        "/etc/s.toml:1: `service` must be an array: each service begins with `[[service]]`"
    );
    assert_eq!(error("# s\n[[services]]\n"), "/etc/s.toml:2: unknown key `services` (known: service)");
    assert_eq!(
        error("service = [{ name = 'a', command = 'b' },\n5]"),
        "/etc/s.toml:2: service number 2: expected a table, found integer"
    );
    assert!(read("service = []").unwrap().services.is_empty());
    let latin = Config::read(b"# a\n# caf\xe9\n", Path::new("s.toml")).unwrap_err();
    assert_eq!(latin.to_string(), "s.toml:2: not UTF-8");
}

#[test]
fn a_duration_is_a_whole_number_with_a_unit() {
    let good = [("0s", 0), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("1h", 3_600_000)];
    for (text, millis) in good {
        assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)));
    }
    for text in ["", "5", "s", "-1s", "1.5s", "1 s", "1d", "１s", "99999999999h", "99999999999999999999s"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}
