//! Tests of the forms on the pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use http::{HeaderValue, Method, header};
use log::Level;

use super::program::{Program, text};
use super::{get, post, visible};
use crate::http::{Handler, IncomingRequest, Reply};
use crate::until::until;
use homeostat::queue::KeyState;
use homeostat::{Action, BoxError, Context, Controller, terminal};
use homeostat_test_support::logs::Logs;

pub(super) const KEY: &str = "/keys/v%3Cm%3E/%22bad%22";
pub(super) const CONTROLLER: &str = "/controllers/v%3Cm%3E";

/// Starts a program with buttons on its pages.
pub(super) fn program() -> Program {
    let mut program = Program::started();
    program.pages = program.pages_again().actions(&program.keys);
    program
}

/// Returns the token in the forms of a page, as this user sees it.
fn token(program: &Program, page: &str, user: &str) -> String {
    let request = IncomingRequest { user: crate::UserInfo::new(user), ..get(page) };
    let page = text(program.pages.handle(&request));
    page.split("name=\"token\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}

pub(super) fn act(program: &Program, page: &str, action: &str) -> Reply {
    let token = token(program, page, "ada");
    program.pages.handle(&post(&format!("{page}/{action}"), "ada", &format!("token={token}")))
}

/// Returns a program with an active run that a user requested five seconds before its start, and the page of its key.
fn with_requested_run() -> (Program, String) {
    let program = program();
    program.keys.suspend("slow".to_owned());
    let page = KEY.replace("bad", "slow");
    drop(act(&program, &page, "retry"));
    program.clock.advance(Duration::from_secs(5));
    program.keys.resume(&"slow".to_owned());
    until("the run is active", || program.keys.metrics().runs.active == 1);
    (program, page)
}

#[test]
fn a_user_suspends_resumes_and_retries_a_key() {
    let program = program();
    program.run("bad");
    let reply = act(&program, KEY, "suspend");
    assert_eq!((reply.status.as_u16(), &reply.headers["location"]), (303, &KEY.parse().unwrap()));
    assert_eq!(program.keys.status().suspended[0].0, "\"bad\"");
    let page = program.get(KEY).1;
    assert!(page.contains("bad%22/resume\"") && !page.contains("bad%22/suspend\""), "{page}");
    assert!(page.contains("Last actions of people") && page.contains("<bdi>ada</bdi>"), "{page}");

    assert_eq!(act(&program, KEY, "resume").status.as_u16(), 303);
    assert!(program.keys.status().suspended.is_empty());

    let runs = || program.keys.metrics().runs.runs();
    assert_eq!(runs(), 1);
    assert_eq!(act(&program, KEY, "retry").status.as_u16(), 303);
    until("the key has run again, before its retry is due", || runs() == 2);
}

#[test]
fn a_key_that_only_ran_lately_can_be_suspended() {
    let program = program();
    program.run("fine");
    let page = KEY.replace("bad", "fine");
    assert_eq!(program.keys.queue().state("fine"), KeyState::Idle);
    assert_eq!(act(&program, &page, "suspend").status.as_u16(), 303);
    assert_eq!(program.keys.status().suspended[0].0, "\"fine\"");
}

#[test]
fn a_user_suspends_resumes_and_retries_a_controller() {
    let program = program();
    program.run("bad");
    let phase = || program.json("/statusz")["controllers"][0]["phase"].as_str().unwrap().to_owned();
    assert_eq!(act(&program, CONTROLLER, "suspend").status.as_u16(), 303);
    assert_eq!(phase(), "suspended");
    assert_eq!(act(&program, CONTROLLER, "resume").status.as_u16(), 303);
    assert_eq!(phase(), "running");
    assert_eq!(act(&program, CONTROLLER, "retry").status.as_u16(), 303);
    until("the key has run again", || program.keys.metrics().runs.runs() == 2);
}

#[test]
fn a_form_without_the_token_of_its_user_changes_nothing() {
    let program = program();
    program.run("bad");
    let (ada, bob) = (token(&program, KEY, "ada"), token(&program, KEY, "bob"));
    for (body, status) in [
        (String::new(), 403),
        ("token=".to_owned(), 403),
        (format!("token={bob}"), 403),
        (format!("nottoken={ada}"), 403),
        (format!("token={ada}0"), 403),
    ] {
        let reply = program.pages.handle(&post(&format!("{KEY}/suspend"), "ada", &body));
        assert_eq!(reply.status.as_u16(), status, "{body}");
    }
    // The types that a page of another site can send without asking.
    for media in ["text/plain", "multipart/form-data", ""] {
        let mut request = post(&format!("{KEY}/suspend"), "ada", &format!("token={ada}"));
        request.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
        assert_eq!(program.pages.handle(&request).status.as_u16(), 415);
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let request = post(&format!("{KEY}/suspend"), "ada", &format!("token={ada}"));
        assert_ne!(program.pages.handle(&IncomingRequest { method, ..request }).status.as_u16(), 303);
    }
    let of = |path: &str| program.pages.handle(&post(path, "ada", &format!("token={ada}"))).status.as_u16();
    assert_eq!(of("/keys/v%3Cm%3E/%22unknown%22/suspend"), 404);
    assert_eq!((of("/keys/other/%22bad%22/suspend"), of(&format!("{KEY}/erase"))), (405, 405));
    assert!(program.keys.status().suspended.is_empty());
    assert!(!program.get(KEY).1.contains("Last actions"));
}

#[test]
fn an_action_is_logged_with_its_user_and_client() {
    let mut program = program();
    // The controllers of other tests have the same name.
    program.pages.name = "audited".to_owned();
    let logs = Logs::of("v<m>");
    program.run("bad");
    drop(act(&program, KEY, "suspend"));
    let line = logs.wait_for(Level::Info, "audited: ada at ");
    let fields = ["component", "user", "client", "action", "controller", "key"].map(|name| line.field(name).to_owned());
    assert_eq!(fields, ["audited", "ada", "127.0.0.1", "suspend", "v<m>", "\"bad\""]);
}

#[test]
fn a_message_tells_the_action_and_its_user_for_a_short_time() {
    let program = program();
    program.run("bad");
    program.clock.advance(Duration::from_secs(1));
    let after_resume = "requested a run of this key: it begins after resume";
    for (page, action, words) in [
        (KEY, "suspend", "<b>Done.</b> <bdi>ada</bdi> suspended this key: no run starts before its resume"),
        (KEY, "retry", &format!("<b>Queued.</b> <bdi>ada</bdi> {after_resume}")),
        (
            CONTROLLER,
            "suspend",
            "<b>Done.</b> <bdi>ada</bdi> suspended this controller: no run starts before its resume",
        ),
        (
            KEY,
            "resume",
            "<b>Done.</b> <bdi>ada</bdi> resumed this key; its runs begin after the resume of the controller",
        ),
        (KEY, "retry", &format!("<b>Queued.</b> <bdi>ada</bdi> {after_resume}")),
        (
            CONTROLLER,
            "retry",
            "<b>Queued.</b> <bdi>ada</bdi> requested runs of all failed keys: they begin after the resume of the controller",
        ),
        (CONTROLLER, "resume", "<b>Done.</b> <bdi>ada</bdi> resumed this controller"),
    ] {
        drop(act(&program, page, action));
        let notice = format!("role=\"status\">{words} <small>requested at <time");
        let shown = program.get(page).1;
        assert!(shown.contains(&notice), "{action}: {shown}");
        assert!(!program.get("/").1.contains("class=\"notice\""), "only the page of the target tells it");
    }
    until("the key has run after its resume", || recorded(&program) == 2);
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, KEY, "retry"));
    let ended = "<b>Still failing.</b> <bdi>ada</bdi> requested a run of this key: it ran at <time";
    until("the page tells the end of the run", || program.get(KEY).1.contains(ended));
    program.clock.advance(Duration::from_secs(5));
    let page = visible(&program.get(KEY).1);
    assert!(
        page.contains("it ran at 00:00:02 UTC and failed; next run: in 35 s at 00:00:42 UTC requested at 00:00:02 UTC"),
        "{page}"
    );
    drop(act(&program, KEY, "suspend"));
    drop(act(&program, KEY, "resume"));
    let page = visible(&program.get(KEY).1);
    assert!(
        page.contains("Done. ada resumed this key: it runs in 35 s at 00:00:42 UTC requested at 00:00:07"),
        "{page}"
    );
    program.clock.advance(Duration::from_secs(20));
    assert!([KEY, CONTROLLER].iter().all(|page| !program.get(page).1.contains("class=\"notice\"")));
}

#[test]
fn the_page_of_a_controller_has_only_buttons_that_change_something() {
    let program = program();
    let has = |action: &str| program.get(CONTROLLER).1.contains(&format!("action=\"{CONTROLLER}/{action}\""));
    assert_eq!(["retry", "suspend", "resume"].map(has), [false, true, false]);
    program.run("bad");
    program.keys.suspend_all();
    assert_eq!(["retry", "suspend", "resume"].map(has), [true, false, true]);
}

#[test]
fn a_page_without_buttons_says_why_in_their_place() {
    const NOT_OFFERED: &str = "No actions: the program does not offer them for v&lt;m&gt;.";
    let mut program = program();
    program.run("bad");
    let says_why =
        |program: &Program| [KEY, CONTROLLER].map(|path| visible(&program.get(path).1).contains(NOT_OFFERED));
    assert_eq!(says_why(&program), [false; 2]);
    program.pages = program.pages_again();
    program.run("bad");
    assert_eq!(says_why(&program), [true; 2]);
    let shown = program.get(KEY).1;
    assert!(shown.find("No actions:") < shown.find("<dl class=\"about\">"), "{shown}");
}

/// Returns the number of runs that the pages know.
fn recorded(program: &Program) -> usize {
    program.json("/statusz")["controllers"][0]["recentRuns"].as_array().unwrap().len()
}

#[test]
fn each_run_names_its_own_request_however_short_the_time_between_them() {
    let program = program();
    program.run("own-1");
    let page = KEY.replace("bad", "own-1");
    for (number, user) in [(2, "ada"), (3, "bob")] {
        program.clock.advance(Duration::from_millis(5));
        let body = format!("token={}", token(&program, &page, user));
        drop(program.pages.handle(&post(&format!("{page}/retry"), user, &body)));
        until("the run is recorded", || recorded(&program) == number);
    }
    let status = program.json("/statusz");
    let runs = status["controllers"][0]["recentRuns"].as_array().unwrap();
    let users: Vec<_> = runs.iter().map(|run| (run["requestedBy"].as_str(), run["reasons"].as_str())).collect();
    let requested = Some("requested");
    assert_eq!(users, [(None, Some("enqueued")), (Some("ada"), requested), (Some("bob"), requested)]);
    let newest = program.json("/statusz?limit=1");
    assert_eq!(newest["controllers"][0]["recentRuns"][0]["requestedBy"], "bob");
}

#[test]
fn a_page_names_its_user() {
    let program = Program::new();
    assert!(!program.get("/").1.contains("you are"));
    let request = IncomingRequest { user: crate::UserInfo::new("<ada>"), ..get("/") };
    assert!(text(program.pages.handle(&request)).contains("you are <b><bdi>&lt;ada&gt;</bdi></b>"));
}

#[test]
fn a_requested_run_names_its_user_while_it_is_active() {
    let (program, page) = with_requested_run();
    let running = &program.json("/statusz")["controllers"][0]["running"][0];
    assert_eq!((running["reasons"].as_str(), running["requestedBy"].as_str()), (Some("requested"), Some("ada")));
    let page = program.get(&page).1;
    assert!(page.contains("<dt>Why it began</dt><dd>requested by <bdi>ada</bdi> <small>at <time"), "{page}");
}

#[test]
fn the_page_of_a_failing_key_has_its_first_and_its_last_failure() {
    let program = program();
    program.run("bad");
    let page = program.get(KEY).1;
    assert!(!page.contains("First failure") && visible(&page).contains("since 00:00:00 UTC, 1 try"), "{page}");
    program.clock.advance(Duration::from_secs(40));
    until("the retry is recorded", || program.get(KEY).1.contains("First failure"));
    let page = program.get(KEY).1;
    for (title, time, end) in
        [("First", "00:00:00", ", with the same error"), ("Last", "00:00:40", "<pre>no answer</pre>")]
    {
        let begin = format!("<dt>{title} failure</dt><dd><time");
        let fact = page.split(&begin).nth(1).unwrap().split("</dd>").next().unwrap();
        assert!(fact.contains(&format!(">{time} UTC<")) && fact.ends_with(end), "{fact}");
    }
    let page = program.get(CONTROLLER).1;
    assert!(page.contains("<dt>Errors</dt><dd>2 of 2 runs since start (20"), "{page}");
}

#[test]
fn a_run_names_the_person_that_asked_for_it_alone_or_with_all_failed_keys() {
    let program = program();
    let parked = KEY.replace("bad", "own-1");
    program.run("own-1");
    for (number, page) in [(2, &*parked), (3, CONTROLLER)] {
        program.clock.advance(Duration::from_secs(5));
        drop(act(&program, page, "retry"));
        until("the key has run again", || recorded(&program) == number && program.keys.metrics().runs.active == 0);
        for page in [&*parked, CONTROLLER] {
            let page = program.get(page).1;
            let rows = page.split("id=\"runs\"").nth(1).unwrap().split("</section>").next().unwrap();
            let of = |text: &str| rows.matches(text).count();
            assert_eq!((of("requested by <bdi>ada</bdi>"), of(">enqueued<")), (number - 1, 1), "{rows}");
        }
        let page = program.get(&parked).1;
        assert!(page.contains("; why it began: requested by <bdi>ada</bdi></dd>"), "{page}");
        // The failures before the request still count.
        assert!(page.contains(&format!("</small>, {number} tries in a row</dd>")), "{page}");
        assert!(page.contains(&format!("data-label=\"try\">{number}</td>")), "one counter: {page}");
        let first = page.split("<dt>First failure</dt>").nth(1).expect(&page).split("</dd>").next().unwrap();
        assert!(first.contains(">00:00:00 UTC<"), "{first}");
    }
    program.clock.advance(Duration::from_secs(5));
    program.run("own-1");
    let page = program.get(&parked).1;
    assert!(page.contains("; why it began: enqueued</dd>"), "the program asked for this run: {page}");
}

#[test]
fn a_retry_during_a_backoff_has_a_number_of_its_own() {
    let program = program();
    program.run("bad");
    // The core does not count the requested run for the backoff.
    for number in 2..=4 {
        program.clock.advance(Duration::from_secs(5));
        drop(act(&program, KEY, "retry"));
        program.clock.advance(Duration::from_secs(5));
        until("the requested run is recorded", || recorded(&program) == number);
    }
    let vm = &program.json("/statusz")["controllers"][0];
    let tries: Vec<_> = vm["recentRuns"].as_array().unwrap().iter().map(|run| run["try"].as_u64().unwrap()).collect();
    assert_eq!((tries, vm["failing"][0]["tries"].as_u64()), (vec![1, 2, 3, 4], Some(4)));
}

#[test]
fn the_buttons_of_a_suspended_key_promise_no_run_before_its_resume() {
    let program = program();
    program.run("bad");
    program.run("fine");
    let (fine, slow) = (KEY.replace("bad", "fine"), KEY.replace("bad", "slow"));
    let has = |path: &str, text: &str| program.get(path).1.contains(&format!("<button>{text}</button>"));
    assert!(has(KEY, "Retry now") && has(&fine, "Run now"));
    program.keys.suspend_all();
    assert!(has(KEY, "Retry after resume") && has(&fine, "Run after resume"));
    program.keys.resume_all();
    program.keys.enqueue("slow".to_owned());
    until("the run is active", || program.keys.metrics().runs.active == 1);
    assert!(has(&slow, "Run again afterwards"));
    program.keys.suspend("slow".to_owned());
    assert!(has(&slow, "Run again after resume"));
}

#[test]
fn the_message_of_a_requested_run_says_that_it_runs() {
    let (program, page) = with_requested_run();
    let shown = visible(&program.get(&page).1);
    let notice = "Running. ada requested a run of this key: it began at 00:00:05 UTC requested at 00:00:00 UTC";
    assert!(shown.contains(notice), "{shown}");
}

#[test]
fn the_message_of_a_retry_of_all_failed_keys_tells_how_their_runs_ended() {
    let mut program = Program::started();
    let (works, page) = (Arc::new(AtomicBool::new(false)), "/controllers/mend");
    let works_now = Arc::clone(&works);
    let reconcile = move |_cx: &Context, key: &u32| -> Result<Action, BoxError> {
        if *key == 0 && works_now.load(SeqCst) { Ok(Action::await_change()) } else { Err(terminal("no").into()) }
    };
    let controller = Controller::builder("mend", reconcile).clock(program.clock.clock()).build().unwrap();
    let keys = controller.handle();
    program.manager.add(controller).unwrap();
    program.pages = program.pages_again().actions(&keys);
    for key in 0..3 {
        keys.enqueue(key);
        keys.wait(&key, Duration::MAX).unwrap();
    }
    works.store(true, SeqCst);
    keys.suspend(2);
    let button = "<button>Retry all 3 failed keys now, among them 3 parked; 1 suspended: after resume</button>";
    assert!(program.get(page).1.contains(button), "{}", program.get(page).1);
    until("all runs are recorded", || program.pages.history.runs.of("mend").len() == 3);
    program.clock.advance(Duration::from_secs(5));
    drop(act(&program, page, "retry"));
    let tells = |words: &str| visible(&program.get(page).1).contains(words);
    let begin = "ada requested runs of all failed keys: ";
    let notice = format!(
        "Done, except for suspended keys. {begin}2 ran, 1 recovered, 1 failed again; 1 suspended: after resume requested at"
    );
    until("two keys have run", || tells(&notice));
    program.clock.advance(Duration::from_secs(5));
    keys.resume(&2);
    let notice = format!("Done. {begin}3 ran, 1 recovered, 2 failed again requested at");
    until("all keys have run", || tells(&notice));
}
