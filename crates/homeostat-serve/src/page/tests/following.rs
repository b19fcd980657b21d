//! What the pages tell after an action: the run that followed, and when.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use super::acting::{act, program};
use super::program::Program;
use super::visible;
use crate::status::RecentRun;
use crate::until::until;
use homeostat::controller::ControllerHandle;
use homeostat::{Action, BoxError, Context, Controller};

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
    let controller = Controller::builder("gated", reconcile).clock(program.clock.clock()).build().unwrap();
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
    assert!(tells(&format!("Running. ada {begin}it began at 00:00:0")), "{}", visible(&program.get(PAGE).1));
    assert_eq!(followed(&program, PAGE), ["it runs now"], "the first run began before the request");
    fail.send(()).unwrap();
    until("the requested run has ended", || tells(&format!("Still failing. ada {begin}it ran at 00:00:0")));
    assert!(followed(&program, PAGE)[0].ends_with(" UTC and failed"), "{:?}", followed(&program, PAGE));
    drop(fail);
}

#[test]
fn the_actions_tell_what_followed() {
    let program = program();
    let (key, controller) = ("/keys/v%3Cm%3E/%22own-1%22", "/controllers/v%3Cm%3E");
    program.run("own-1");
    until("the run is recorded", || program.pages.history.runs.of("v<m>").len() == 1);
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, key, "suspend"));
    assert_eq!(followed(&program, key), ["no run has ended since"]);
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, key, "resume"));
    assert_eq!(followed(&program, key), ["no run has ended since", "suspended until 00:00:02 UTC"]);
    // A suspended key waits for its resume, and a failing one for its next try.
    program.run("bad");
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, KEY, "suspend"));
    drop(act(&program, KEY, "retry"));
    assert_eq!(followed(&program, KEY), ["after resume", "no run has ended since"]);
    assert!(!program.get(KEY).1.contains("<dt>Waits</dt>"), "no other key is before a suspended one");
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, controller, "retry"));
    let ran = "ran at 00:00:04 UTC and failed and was parked";
    until("the page tells the runs", || followed(&program, controller)[0] == "1 ran, 0 recovered, 1 failed again");
    for page in ["/", controller] {
        let suspended = ["after resume", "no run has ended since"];
        let before = [ran, "suspended until 00:00:02 UTC"];
        let expected = [&["1 ran, 0 recovered, 1 failed again"], &suspended[..], &before[..]].concat();
        assert_eq!(followed(&program, page), expected, "{page}");
    }
    let page = visible(&program.get(key).1);
    assert!(page.contains(&format!("ada resumed this key: it {ran}; it runs not by itself: given up")), "{page}");
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
