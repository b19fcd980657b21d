//! Tests of the words after an action: they name the run that followed, and its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::acting::{act, program};
use super::program::Program;
use super::visible;
use crate::status::RecentRun;
use crate::until::until;
use homeostat::controller::ControllerHandle;
use homeostat::{Action, BoxError, Context, Controller, Exponential, terminal};

const KEY: &str = "/keys/v%3Cm%3E/%22bad%22";
const PAGE: &str = "/keys/gated/%22a%22";

/// Returns a program, the handle of its controller `gated`, and a sender: each message lets one run fail.
fn gated() -> (Program, ControllerHandle<String>, Sender<()>) {
    let mut program = Program::started();
    let (fail, may_fail) = channel::<()>();
    let may_fail = crate::sync::Mutex::new(may_fail);
    let reconcile = move |_cx: &Context, _key: &String| -> Result<Action, BoxError> {
        may_fail.lock().recv()?;
        Err("no answer".into())
    };
    // The second failure in a row has a long backoff.
    let retry = Exponential::new(Duration::from_millis(100), Duration::from_secs(3_600)).factor(10_000.0).jitter(0.0);
    let controller = Controller::builder("gated", reconcile).clock(program.clock.clock()).retry(retry);
    let controller = controller.build().unwrap();
    let keys = controller.handle();
    program.manager.add(controller).unwrap();
    program.pages = program.pages_again().actions(&keys);
    (program, keys, fail)
}

/// Returns what followed each action of a page, the newest first.
fn followed(program: &Program, page: &str) -> Vec<String> {
    let page = program.get(page).1;
    let cells = page.split("data-label=\"what followed\">").skip(1);
    cells.map(|cell| visible(cell.split("</td>").next().unwrap())).collect()
}

#[test]
fn a_requested_run_follows_an_active_run_even_if_that_one_fails() {
    let (program, keys, fail) = gated();
    keys.enqueue("a".to_owned());
    until("the run is active", || keys.metrics().runs.active == 1);
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, PAGE, "retry"));
    let tells = |words: &str| visible(&program.get(PAGE).1).contains(words);
    let begin = "requested a run of this key: ";
    assert!(tells(&format!("Queued. ada {begin}it begins right after the active run requested by ada at 00:00:01")));
    assert_eq!(followed(&program, PAGE), ["after the active run"]);
    fail.send(()).unwrap();
    // The least time between a failure and the next run may delay the requested one.
    until("the requested run is active or queued", || {
        program.clock.advance(Duration::from_millis(10));
        keys.metrics().runs.errors() == 1 && keys.metrics().runs.active == 1
    });
    assert!(tells(&format!("Running. ada {begin}it began at 00:00:")), "{}", visible(&program.get(PAGE).1));
    assert_eq!(followed(&program, PAGE), ["it runs now"], "the first run began before the request");
    fail.send(()).unwrap();
    until("the requested run has ended", || tells(&format!("Still failing. ada {begin}it ran at 00:00:")));
    assert!(followed(&program, PAGE)[0].ends_with(" UTC and failed"), "{:?}", followed(&program, PAGE));
    drop(fail);
}

#[test]
fn a_retry_of_all_failed_keys_follows_an_active_run_even_if_that_one_fails() {
    let (program, keys, fail) = gated();
    keys.enqueue("a".to_owned());
    fail.send(()).unwrap();
    // The retry of the failed key is active.
    until("the retry is active", || {
        program.clock.advance(Duration::from_millis(10));
        keys.metrics().runs.errors() == 1 && keys.metrics().runs.active == 1
    });
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, "/controllers/gated", "retry"));
    fail.send(()).unwrap();
    until("the retry has failed", || keys.metrics().runs.errors() == 2);
    let page = visible(&program.get("/controllers/gated").1);
    assert!(!page.contains("Done. ada requested runs of all failed keys"), "the key still has to run: {page}");
    let failed = program.clock.now();
    until("the requested run is active", || {
        program.clock.advance(Duration::from_millis(10));
        keys.metrics().runs.active == 1
    });
    assert!(program.clock.now() - failed < Duration::from_secs(1_000), "it has not waited for its backoff");
    drop(fail);
}

#[test]
fn a_retry_of_many_failed_keys_counts_each_of_them() {
    let mut program = Program::started();
    let works = Arc::new(AtomicBool::new(false));
    let works_now = Arc::clone(&works);
    let reconcile = move |_cx: &Context, _key: &u32| -> Result<Action, BoxError> {
        if works_now.load(SeqCst) { Ok(Action::await_change()) } else { Err(terminal("no").into()) }
    };
    let controller = Controller::builder("many", reconcile).clock(program.clock.clock()).build().unwrap();
    let keys = controller.handle();
    program.manager.add(controller).unwrap();
    program.pages = program.pages_again().actions(&keys);
    for key in 0..200 {
        keys.enqueue(key);
    }
    until("all keys are parked", || keys.metrics().parked == 200);
    works.store(true, SeqCst);
    program.clock.advance(Duration::from_secs(1));
    for _ in 0..2 {
        // The second request finds no failed key, or shares the runs of the first one.
        drop(act(&program, "/controllers/many", "retry"));
    }
    let counts = || followed(&program, "/controllers/many").last().cloned();
    until("all have run", || counts().as_deref() == Some("200 ran, 200 recovered, 0 failed again"));
}

#[test]
fn the_actions_tell_what_followed() {
    let program = program();
    let (key, controller) = ("/keys/v%3Cm%3E/%22own-1%22", "/controllers/v%3Cm%3E");
    program.run("own-1");
    until("the run is recorded", || program.pages.history.runs.of("v<m>").len() == 1);
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, key, "suspend"));
    assert_eq!(followed(&program, key), ["still suspended"]);
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, key, "resume"));
    assert_eq!(followed(&program, key), ["no run that began since has ended", "suspended until 00:00:02 UTC"]);
    // A suspended key waits for its resume, and a failing one for its next try.
    program.run("bad");
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, KEY, "suspend"));
    drop(act(&program, KEY, "retry"));
    assert_eq!(followed(&program, KEY), ["after resume", "still suspended"]);
    assert!(!program.get(KEY).1.contains("<dt>Waits</dt>"), "no other key is before a suspended one");
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, controller, "retry"));
    let ran = "ran at 00:00:04 UTC and failed and was parked";
    until("the page tells the runs", || followed(&program, controller)[0] == "1 ran, 0 recovered, 1 failed again");
    for page in ["/", controller] {
        let suspended = ["after resume", "still suspended"];
        let before = [ran, "suspended until 00:00:02 UTC"];
        let expected = [&["1 ran, 0 recovered, 1 failed again"], &suspended[..], &before[..]].concat();
        assert_eq!(followed(&program, page), expected, "{page}");
    }
    let notice = format!("ada resumed this key: it {ran}; it runs at its next change or a retry: given up by itself");
    until("the run has ended", || visible(&program.get(key).1).contains(&notice));
}

#[test]
fn a_key_whose_later_runs_may_be_gone_says_so() {
    let program = Program::started();
    let page = "/keys/v%3Cm%3E/%22heals%22";
    program.run("heals");
    program.clock.advance(Duration::from_secs(40));
    until("the retry is recorded", || program.get(page).1.contains("<dt>Last run</dt><dd>succeeded at"));
    program.clock.advance(Duration::from_secs(1));
    let tells = |program: &Program| {
        let [key, search] = [page, "/search?q=heals"].map(|page| visible(&program.get(page).1));
        (key.contains("later runs before 00:00:41 UTC"), search.contains("1.0 s ago or later"))
    };
    (0..RecentRun::MOST).for_each(|_| program.run("fine"));
    assert_eq!(tells(&program), (false, false), "all runs are kept");
    program.run("fine");
    until("the first of these runs is gone", || tells(&program) == (true, true));
}
