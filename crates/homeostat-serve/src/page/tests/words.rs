//! Tests of the words for a person on call: suspensions, stuck controllers, reasons and times.

use std::time::Duration;

use super::acting::{CONTROLLER, KEY, act, program};
use super::program::Program;
use super::visible;
use crate::page::StatusPages;
use crate::status::RecentRun;
use crate::until::until;
use homeostat::{Component, Context, Enqueue, Poller};

/// The next run of a suspended key that nobody has requested, without tags. Its retry is due at this time.
const NOT_BEFORE: &str = "00:00:40 UTC suspended since 00:00:00 UTC, by ";

/// The next run of the failing key on the overview, on the page of its controller and on its own page.
fn pages(program: &Program) -> [String; 3] {
    ["/", CONTROLLER, KEY].map(|path| program.get(path).1)
}

#[test]
fn a_suspended_key_runs_after_resume_and_not_before_its_retry_time() {
    let program = program();
    program.run("bad");
    for page in pages(&program) {
        assert!(page.contains(">40 s</span>") && !page.contains("after resume"), "{page}");
    }
    drop(act(&program, KEY, "suspend"));
    program.clock.advance(Duration::from_secs(5));
    let words = ["after resume, not before ", "after resume, not before ", "after resume, not before its retry time "];
    for (page, begin) in pages(&program).iter().zip(words) {
        assert!(visible(page).contains(&format!("{begin}{NOT_BEFORE}ada")), "{page}");
        assert!(!page.contains("in <span") && !page.contains("run requested"), "{page}");
    }
    program.clock.advance(Duration::from_secs(60));
    until("the due retry is deferred", || program.keys.metrics().queue.depth() == 0);
    for page in pages(&program).map(|page| visible(&page)) {
        assert!(page.contains("after resume suspended since 00:00:00 UTC, by ada"), "{page}");
    }
    drop(act(&program, KEY, "retry"));
    for page in pages(&program).map(|page| visible(&page)) {
        let next = "after resume suspended since 00:00:00 UTC, by ada; run requested at 00:01:05 UTC";
        assert!(page.contains(next) && !page.contains("as soon as"), "{page}");
    }
}

#[test]
fn a_key_of_a_suspended_controller_runs_after_resume_and_at_no_time() {
    let program = program();
    program.run("bad");
    program.keys.suspend_all();
    for page in pages(&program) {
        assert!(page.contains("after resume, not before ") && !page.contains("in <span"), "{page}");
    }
    let page = visible(&program.get(KEY).1);
    let since = "not before its retry time 00:00:40 UTC the controller is suspended since 00:00:00 UTC, by the program";
    assert!(page.contains(since), "{page}");
    // The page of the controller says it once, above the rows.
    let page = program.get(CONTROLLER).1;
    let by = "</time>, by the program, which gives no reason";
    let fact = page.split("<dt>Suspended</dt><dd>since <time").nth(1).expect(&page).split("</dd>").next().unwrap();
    assert!(fact.ends_with(&format!(">00:00:00 UTC{by}")), "{fact}");
    let rows = page.split("id=\"keys\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert!(rows.contains(">00:00:40 UTC</time></td>") && !rows.contains(by), "{rows}");
    program.keys.resume_all();
    drop(act(&program, CONTROLLER, "suspend"));
    program.clock.advance(Duration::from_secs(1));
    drop(act(&program, CONTROLLER, "retry"));
    for page in pages(&program) {
        assert!(visible(&page).contains("run requested at 00:00:01 UTC"), "{page}");
        assert!(!page.contains("in <span") && !page.contains("as soon as"), "{page}");
    }
    let page = visible(&program.get(KEY).1);
    let next = "after resume the controller is suspended since 00:00:00 UTC, by ada; run requested at 00:00:01 UTC";
    assert!(page.contains(next), "{page}");
}

#[test]
fn a_suspended_failing_key_has_one_row_with_two_chips() {
    let program = Program::started();
    program.run("bad");
    program.keys.suspend("bad".to_owned());
    program.keys.suspend("held".to_owned());
    let page = program.get(CONTROLLER).1;
    let (_, keys) = page.split_once("id=\"keys\">Failed and suspended keys <small>2</small>").expect(&page);
    let keys = keys.split("</section>").next().unwrap();
    let chips = "<span class=\"chip warn\">suspended</span> <span class=\"chip warn\">failing</span>";
    assert_eq!((keys.matches("%22bad%22").count(), keys.matches(chips).count()), (1, 1), "{keys}");
    assert_eq!((keys.matches("%22held%22").count(), keys.matches(">suspended</span>").count()), (1, 2), "{keys}");
    assert!(program.get(KEY).1.contains(chips));
    let page = program.get("/").1;
    assert!(page.contains(chips) && page.contains("Needs attention <small>2</small>"), "{page}");
    assert!(page.contains("%22held%22"), "the overview names a suspended key that has not failed: {page}");
}

#[test]
fn a_suspended_controller_with_waiting_keys_needs_attention() {
    let program = program();
    drop(act(&program, CONTROLLER, "suspend"));
    assert!(program.get("/").1.contains("<p class=\"calm\">Nothing.</p>"));
    program.keys.enqueue("one".to_owned());
    let page = program.get("/").1;
    assert!(page.contains("</bdi> is suspended, 1 key waits <small>since <time"), "{page}");
    let held =
        "<dt>waiting</dt><dd class=\"none\">0<br><small>and 1 held in controllers that take no keys now</small></dd>";
    assert!(page.contains(held), "{page}");
    let oldest = "<dt>oldest wait</dt><dd class=\"none\">–<br><small>without held keys</small></dd>";
    assert!(page.contains(oldest), "no key waits for a thread: {page}");
    for number in 0..1_233 {
        program.keys.enqueue(number.to_string());
    }
    let page = program.get(CONTROLLER).1;
    let all = "<dt>suspended</dt><dd class=\"warn\">all<br><small>1,234 waiting</small></dd>";
    assert!(page.contains(all), "{page}");
    let page = program.get("/").1;
    assert!(page.contains("Needs attention <small>1</small>"), "{page}");
    assert!(page.contains("<bdi>v&lt;m&gt;</bdi> is suspended, 1,234 keys wait <small>since <time"), "{page}");
    assert!(page.contains("<title>not ready") || page.contains("<title>1 to check · "), "{page}");
}

#[test]
fn a_stuck_controller_has_a_red_chip_beside_its_phase() {
    let mut program = Program::started();
    until("the controller runs", || program.json("/statusz")["controllers"][0]["phase"] == "running");
    let good = "<span class=\"chip good\">running</span>";
    for path in ["/", CONTROLLER] {
        let page = program.get(path).1;
        assert!(page.contains(good) && !page.contains("overdue 1"), "{page}");
    }
    let (stuck, end) = program.hang("a");
    program.pages = program.pages_again().actions(&stuck);
    program.clock.advance(Duration::from_secs(20));
    until("the run is overdue", || stuck.status().running.iter().any(|run| run.overdue));
    let chips = format!("{good} <span class=\"chip bad\">overdue 1</span>");
    for path in ["/", "/controllers/stuck"] {
        let page = program.get(path).1;
        assert_eq!(page.matches(&chips).count(), 1, "{page}");
    }
    // Only its end can begin the next run.
    stuck.enqueue("a".to_owned());
    let page = program.get("/keys/stuck/%22a%22").1;
    assert!(page.contains("<button>Run again if this run ever ends</button>"), "{page}");
    let shown = visible(&page);
    for part in [
        "runs for 20 s since 00:00:00 UTC on ",
        "passed at 00:00:05 UTC 15 s ago, 5.0 s after its start",
        "Why it beganthe program asked for it (enqueued) no earlier run of the key is known",
        "right after the active run, if it ever ends: the key was requested meanwhile",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // One click is enough.
    let stuck_key = "/keys/stuck/%22a%22";
    drop(act(&program, stuck_key, "retry"));
    let page = program.get(stuck_key).1;
    let next = "right after the active run, if it ever ends requested by ada at 00:00:20 UTC";
    assert!(visible(&page).contains(next) && !page.contains("<button>Run again"), "{page}");
    let page = program.get("/").1;
    assert!(
        page.contains("<small>of a pool of 2 threads, 1 of them hung</small>"),
        "no thread has taken its place: {page}"
    );
    let of_controller = program.get("/controllers/stuck").1;
    assert!(
        of_controller
            .contains(">1<small> of 1</small><br><small>1 of them hung: it keeps its place until it ends</small></dd>"),
        "{of_controller}"
    );
    for page in [page, of_controller] {
        let reason = page.split("<li><b>not live</b> controller ").nth(1).expect(&page);
        assert!(reason.starts_with("<a class=\"name\" href=\"/controllers/stuck\">"), "{reason}");
    }
    assert!(!program.get(CONTROLLER).1.contains("<li><b>not"), "only the page of the controller repeats its reason");
    drop(end);
}

#[test]
fn the_refresh_is_not_called_live() {
    let page = Program::new().get("/").1;
    assert!(page.contains("<span id=\"state\"></span>") && page.contains("`updates every ${PERIOD / 1000} s`"));
    assert!(!page.contains("show(\"live\""));
}

#[test]
fn a_run_began_for_the_same_reason_everywhere() {
    let program = Program::started();
    program.run("bad");
    program.clock.advance(Duration::from_secs(40));
    until("the retry has failed", || program.keys.metrics().runs.runs() == 2);
    until("the retry is recorded", || program.get(KEY).1.contains("; why it began: retry</dd>"));
    let page = visible(&program.get(KEY).1);
    assert!(page.contains("Last runfailed at 00:00:40 UTC 0 s ago; why it began: retry"), "{page}");
    for path in [KEY, CONTROLLER] {
        let page = program.get(path).1;
        for word in ["retry", "enqueued"] {
            assert!(page.contains(&format!("data-label=\"why\">{word}</td>")), "{word}: {page}");
        }
        assert!(!page.contains("manual") && !page.contains(">none<"), "{page}");
    }
    program.keys.queue().enqueue("fine".to_owned());
    program.keys.wait(&"fine".to_owned(), Duration::MAX).unwrap();
    let page = program.get(&KEY.replace("bad", "fine")).1;
    assert!(page.contains("; why it began: enqueued, without a reason</dd>"), "{page}");
    assert!(page.contains("data-label=\"why\">enqueued, without a reason</td>"), "{page}");
}

/// Every word of a past or future time, outside of charts, stands beside a tooltip.
#[test]
fn every_relative_time_shows_the_clock_time_as_a_tooltip() {
    let program = program();
    let failing = Poller::new(Duration::from_secs(5), |_cx: &Context| Err::<Vec<String>, _>("no route"));
    let poller = Component::poller("links", failing.clock(program.clock.clock()), program.keys.queue());
    program.manager.add(poller).unwrap();
    for key in ["bad", "later"] {
        program.run(key);
    }
    drop(act(&program, KEY, "suspend"));
    program.keys.enqueue("slow".to_owned());
    until("the source has failed", || program.manager.source("links").unwrap().status().failures > 0);
    until("a run is active", || program.keys.metrics().runs.active > 0);
    program.clock.advance(Duration::from_secs(7));
    for path in ["/", CONTROLLER, KEY, "/keys/v%3Cm%3E/%22later%22", "/keys/v%3Cm%3E/%22slow%22"] {
        let whole = program.get(&format!("{path}?live=1")).1;
        let (page, rest) = whole.split_once("<figure class=\"timeline\">").unwrap_or((&whole, ""));
        let page = page.to_owned() + rest.split_once("</figure>").map_or("", |(_, after)| after);
        for word in ["data-label=\"for\">", "data-label=\"failing for\">", "data-label=\"oldest\">"] {
            for (_, after) in page.match_indices(word).map(|(at, word)| page.split_at(at + word.len())) {
                assert!(
                    after.starts_with("<span title=\"1970-") || after.starts_with("<span class=\"none\">"),
                    "{after}"
                );
            }
        }
        for (at, _) in page.match_indices(" ago").filter(|(at, _)| !page[..*at].ends_with("60 s")) {
            assert!(page[..at].ends_with("</span>"), "{}", &page[..at]);
        }
        for word in ["for ", "in ", "up "] {
            for (at, _) in page.match_indices(word) {
                let after = &page[at + word.len()..];
                let number = after.split(' ').next().unwrap_or_default();
                // The reasons of failed checks write `7s`.
                assert!(number.parse::<f64>().is_err(), "{word}{after}");
            }
        }
        assert!(page.contains("<span title=\"1970-"), "{page}");
    }
}

#[test]
fn pages_of_a_manager_without_actions_know_no_user() {
    let mut program = Program::started();
    program.pages = StatusPages::new(&program.manager).unwrap();
    program.run("bad");
    program.keys.suspend("bad".to_owned());
    for page in pages(&program) {
        assert!(visible(&page).contains(&format!("{NOT_BEFORE}the program")), "{page}");
    }
}

#[test]
fn each_waiting_key_has_a_page_that_tells_its_state() {
    // The controller is not started, so keys wait.
    let mut program = Program::new();
    program.pages = program.pages_again().actions(&program.keys);
    for number in 0..2_500 {
        let key = number.to_string();
        if number % 2 == 0 {
            program.keys.enqueue(key);
        } else {
            program.keys.queue().enqueue_after(key, Duration::from_secs(90));
        }
    }
    program.clock.advance(Duration::from_secs(30));
    let page = |key: &str| program.get(&KEY.replace("bad", key));
    let syncing = "<dt>Next run</dt><dd>once the first listings of the controller have completed";
    for (key, state, waits) in [
        ("0", "waiting", "<dt>Waits</dt><dd>for <"),
        ("2468", "waiting", "<dt>Waits</dt><dd>as other keys do; the longest wait of the controller is <"),
    ] {
        let (status, page) = page(key);
        assert_eq!(status, 200, "{page}");
        for part in [&format!("<span class=\"chip calm\">{state}</span>"), waits, syncing, "<button>Suspend</button>"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
    let (status, delayed) = page("2469");
    assert_eq!(status, 200);
    assert!(delayed.contains("<span class=\"chip calm\">delayed</span>"), "{delayed}");
    let next = delayed.split("<dt>Next run</dt><dd>in ").nth(1).expect(&delayed).split("</dd>").next().unwrap();
    assert!(next.contains(">60 s<") || next.contains(">1 m 0 s<"), "{next}");
    drop(act(&program, &KEY.replace("bad", "2469"), "suspend"));
    assert_eq!(program.keys.status().suspended[0].0, "\"2469\"");
    assert!(program.get("/search?q=2469").1.contains("Keys <small>1</small>"));

    let (status, unknown) = page("x");
    assert_eq!(status, 404);
    assert!(unknown.contains("It does not run or wait: no run of it is due"), "{unknown}");
    assert!(unknown.contains("href=\"/search?q="), "{unknown}");
}

#[test]
fn the_page_of_an_unknown_key_says_if_it_has_not_looked_at_all_keys() {
    let program = Program::new();
    let most = crate::page::known_keys::MOST_VISITED;
    for number in 0..most {
        program.keys.enqueue(number.to_string());
    }
    let page = || program.get(&KEY.replace("bad", "x"));
    assert!(page().1.contains("It does not run or wait"));
    program.keys.enqueue("one more".to_owned());
    let (status, page) = page();
    assert_eq!(status, 404);
    assert!(page.contains("It may be waiting: this page looks at 100,000 keys of a controller"), "{page}");
}

#[test]
fn the_history_of_a_key_marks_missing_tries_and_says_which_runs_are_kept() {
    let program = program();
    program.run("own-1");
    let most = RecentRun::MOST_FAILED;
    // The first failure of the key stays, and the later ones make place for those of another key.
    for _ in 0..4 {
        program.run("own-1");
    }
    for _ in 0..most - 2 {
        program.run("own-2");
    }
    let page = program.get(&KEY.replace("bad", "own-1")).1;
    let runs = page.split("id=\"runs\"").nth(1).unwrap().split("</section>").next().unwrap();
    let tries: Vec<_> = runs.split("data-label=\"try\">").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    assert_eq!(tries, ["5", "4", "1"], "{runs}");
    assert!(runs.contains(">4</td>") && runs.contains(">2 older tries are no longer kept</td></tr>"), "{runs}");
    assert_eq!(runs.matches("no longer kept").count(), 1, "{runs}");
    let kept = "<small>This key's runs, if among the controller's last 256 failed or 512 other runs. The first and the \
                last failure in a row are always kept, for up to 1,000 keys. Older runs are gone.</small>";
    assert!(runs.contains(kept), "{runs}");
    program.run("own-1");
    let shown = program.get(CONTROLLER).1;
    assert!(!shown.contains("no longer kept"), "the runs of a controller are not one series: {shown}");
}
