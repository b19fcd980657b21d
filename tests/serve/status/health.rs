//! `/livez`, `/readyz` and `/healthz`.

use std::time::Duration;

use homeostat::serve::{Access, AccessTarget, ServerBuilder, StatusPages, UserInfo};
use homeostat::{Action, BoxError, Component, Context, Controller, Manager};

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
    running.shutdown(Duration::from_secs(10));
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
    // A component that fails early fails the start itself.
    if let Ok(running) = manager.start() {
        running.wait().unwrap_err();
    }
    let answer = site.get("/livez/door");
    assert_eq!((answer.status, answer.body.as_str()), (503, "[-]door failed: the port is\\nin use\n"));
}

const SHOWN: &str = "[+]appliance ok\n[-]disk failed: it is full\nlivez check failed\n";
const WITHHELD: &str = "[+]appliance ok\n[-]disk failed: reason withheld\nlivez check failed\n";

/// A site with a failed check. Everyone may read `/livez` and `/livez/disk`.
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
    // Results are for everyone.
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
    // A path that is not public.
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
