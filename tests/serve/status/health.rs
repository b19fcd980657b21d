//! `/livez`, `/readyz` and `/healthz`.

use std::time::Duration;

use homeostat::serve::StatusPages;
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
