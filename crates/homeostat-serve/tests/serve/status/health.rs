//! `/livez`, `/readyz` and `/healthz`.

use std::time::Duration;

use homeostat::{Action, BoxError, Component, Context, Controller, Manager};
use homeostat_serve::{Access, AccessTarget, ServerBuilder, StatusPages, UserInfo};

use super::Site;

#[test]
fn a_process_becomes_ready_when_its_manager_runs() {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let site = Site::of(&manager);
    let before = site.get("/readyz");
    assert_eq!((before.status, before.body.as_str()), (503, "[-]appliance failed: not started\nreadyz check failed\n"));
    assert_eq!((site.get("/livez").status, site.get("/healthz").status), (200, 200));
    let running = manager.start().unwrap();
    let after = site.get("/readyz");
    assert_eq!((after.status, after.body.as_str()), (200, "ok"));
    running.shutdown(Duration::from_secs(10)).unwrap();
    assert_eq!(site.get("/readyz").status, 503);
}

#[test]
fn each_controller_and_each_added_check_has_a_name() {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let reconcile = |_cx: &Context, _key: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    manager.add(Controller::builder("vm", reconcile).build().unwrap()).unwrap();
    let pages = StatusPages::new(&manager).unwrap();
    let site = Site::with(pages.live_check("disk", || Err::<(), _>("it is full")));
    let verbose = "[+]appliance ok\n[+]vm ok\n[-]disk failed: it is full\nlivez check failed\n";
    assert_eq!(site.get("/livez?verbose").body, verbose);
    assert_eq!((site.get("/livez/vm").status, site.get("/livez/disk").status), (200, 503));
    assert_eq!(site.get("/livez?exclude=disk").body, "ok");
    assert_eq!(site.get("/livez/other").status, 404);
}

#[test]
fn the_failure_of_a_component_fails_its_check() {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let site = Site::of(&manager);
    manager.add(Component::function("door", |_cx: &Context| Err::<(), _>("the port is\nin use"))).unwrap();
    // If a component fails early, the start itself fails.
    if let Ok(running) = manager.start() {
        running.join().unwrap_err();
    }
    let answer = site.get("/livez/door");
    assert_eq!((answer.status, answer.body.as_str()), (503, "[-]door failed: the port is\\nin use\n"));
}

const SHOWN: &str = "[+]appliance ok\n[-]disk failed: it is full\nlivez check failed\n";
const WITHHELD: &str = "[+]appliance ok\n[-]disk failed: reason withheld\nlivez check failed\n";

/// Returns a site with a failed check. Everyone may read `/livez` and `/livez/disk`.
fn failing(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> (Manager, Site) {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let pages = StatusPages::new(&manager).unwrap().live_check("disk", || Err::<(), _>("it is full"));
    let site = Site::served(pages, |builder| change(builder.public_path("/livez").public_path("/livez/disk")));
    (manager, site)
}

#[test]
fn clients_without_credentials_do_not_see_reasons() {
    let (_manager, site) = failing(|builder| builder.token("token", UserInfo::new("ada")));
    for (target, shown, withheld) in [
        ("/livez", SHOWN, WITHHELD),
        ("/livez?verbose", SHOWN, WITHHELD),
        ("/livez/disk", "[-]disk failed: it is full\n", "[-]disk failed: reason withheld\n"),
    ] {
        let [stranger, wrong, ada] = [site.get(target), site.get_as("wrong", target), site.get_as("token", target)];
        assert_eq!((stranger.status, stranger.body.as_str()), (503, withheld), "{target}");
        assert_eq!((wrong.status, wrong.body.as_str()), (503, withheld), "{target}");
        assert_eq!((ada.status, ada.body.as_str()), (503, shown), "{target}");
    }
    // Everyone may see the results.
    assert_eq!((site.get("/livez?exclude=disk").status, site.get("/livez?exclude=disk").body.as_str()), (200, "ok"));
    let verbose = "[+]appliance ok\n[+]disk excluded: ok\nlivez check passed\n";
    assert_eq!(site.get("/livez?verbose&exclude=disk").body, verbose);
    assert_eq!((site.get("/statusz").status, site.get("/readyz").status), (401, 401));
}

#[test]
fn reasons_are_for_users_who_may_read_the_status() {
    let (_manager, site) = failing(|builder| {
        builder.token("first", UserInfo::new("ada")).token("second", UserInfo::new("bob")).authorize(|request| {
            let reads_status = request.verb == "get" && request.target == AccessTarget::Path("/statusz".to_owned());
            match &*request.user.name {
                "ada" if reads_status => Access::Allow,
                "bob" if !reads_status => Access::Allow,
                _ => Access::Deny("it is not for you".to_owned()),
            }
        })
    });
    assert_eq!((site.get_as("first", "/livez").body.as_str(), site.get_as("first", "/statusz").status), (SHOWN, 200));
    assert_eq!(
        (site.get_as("second", "/livez").body.as_str(), site.get_as("second", "/statusz").status),
        (WITHHELD, 403)
    );
    assert_eq!(site.get("/livez").body, WITHHELD);
    // This path is not public.
    assert!(site.get_as("second", "/readyz").body.contains("[-]appliance failed: reason withheld\n"));
}

#[test]
fn a_server_for_everyone_shows_reasons_unless_its_authorization_denies_the_status() {
    assert_eq!(failing(|builder| builder).1.get("/livez").body, SHOWN);
    let anonymous = |builder: ServerBuilder| builder.token("token", UserInfo::new("ada")).allow_anonymous();
    assert_eq!(failing(anonymous).1.get("/livez").body, SHOWN);
    let (_manager, site) = failing(|builder| builder.authorize(|_| Access::Deny("nothing is allowed".to_owned())));
    assert_eq!((site.get("/livez").body.as_str(), site.get("/statusz").status), (WITHHELD, 403));
}

#[test]
fn the_authorization_is_not_asked_while_all_checks_pass() {
    let manager = Manager::builder().name("appliance").build().unwrap();
    let pages = StatusPages::new(&manager).unwrap();
    let site = Site::served(pages, |builder| builder.public_path("/livez").authorize(|_| panic!("no answer")));
    assert_eq!(site.get("/livez?verbose").body, "[+]appliance ok\nlivez check passed\n");
}

#[test]
fn a_failing_store_is_not_ready_and_its_cause_is_in_the_log_only() {
    use std::sync::Arc;

    use homeostat::ManualClock;
    use homeostat_objects::{ClientError, Kind, ObjectRef, Verb};
    use homeostat_serve::{ObjectApi, ServedResource};
    use homeostat_testing::{Reactor, TestClient};
    use log::Level;

    use crate::logs::Logs;

    const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
    let logs = Logs::of("objects");
    let clock = ManualClock::new();
    let client = TestClient::new(clock.clock());
    let full = |object: &ObjectRef| {
        ClientError::transport(object.clone(), "cannot write /var/lib/secret-place/db: it is full")
    };
    client.react(&Reactor::fail(Verb::Create).error(move |object| full(object)).times(2));
    let things = ServedResource::new(Kind::namespaced("example.com", "v1", "Thing"));
    let api = ObjectApi::builder(Arc::new(client.clone())).serve(things).clock(clock.clock()).build().unwrap();
    let manager = Manager::builder().name("appliance").build().unwrap();
    let running = manager.start().unwrap();
    let site = Site::served(StatusPages::new(&manager).unwrap(), |builder| builder.objects(&api));
    let create = || {
        let body = r#"{"metadata": {"name": "a"}}"#;
        site.send("POST", THINGS, &format!("Content-Length: {}\r\n\r\n{body}", body.len()))
    };
    assert_eq!(site.get("/readyz?verbose").body, "[+]appliance ok\n[+]objects ok\nreadyz check passed\n");
    let refused = [create(), create()];
    for answer in &refused {
        assert_eq!(answer.status, 500);
        assert!(answer.body.contains("the log of the server has the cause"), "{}", answer.body);
        assert!(!answer.body.contains("secret-place"), "{}", answer.body);
    }
    let warnings = logs.at(Level::Warn);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert!(warning.message.starts_with("objects: writes of the store fail"), "{warning:?}");
    assert!(warning.message.contains("cannot write /var/lib/secret-place/db: it is full"), "{warning:?}");

    assert_eq!(site.get(THINGS).status, 200, "reads go on");
    let answer = site.get("/readyz");
    let failed = "[-]objects failed: writes of the store have failed for 0 s: ";
    assert!(answer.status == 503 && answer.body.contains(failed), "{}", answer.body);
    assert_eq!((site.get("/readyz/objects").status, site.get("/livez").status), (503, 200));
    clock.advance(Duration::from_secs(60));
    assert_eq!(site.get("/readyz").status, 200, "an old failure does not count for the next write");
    assert_eq!(create().status, 201);
    logs.wait_for(Level::Info, "objects: writes of the store work again");

    // A read, a list and a watch fail.
    client.react(&Reactor::fail(Verb::List).error(move |object| full(object)).times(2));
    for target in [THINGS.to_owned(), format!("{THINGS}?watch=true")] {
        let answer = site.get(&target);
        assert!(answer.status == 500 && !answer.body.contains("secret-place"), "{}", answer.body);
    }
    client.react(&Reactor::fail(Verb::Watch).error(move |object| full(object)).once());
    let answer = site.get(&format!("{THINGS}?watch=true&resourceVersion=1"));
    assert!(answer.body.contains("\"ERROR\"") && !answer.body.contains("secret-place"), "{}", answer.body);
    assert!(site.get("/readyz").body.contains("[-]objects failed: reads of the store"));
    assert_eq!(site.get(THINGS).status, 200);
    assert_eq!(site.get("/readyz").body, "ok");
    running.shutdown(Duration::from_secs(10)).unwrap();
}
