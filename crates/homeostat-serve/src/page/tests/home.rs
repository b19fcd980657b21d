//! Tests of the home page for a person on call: why a check fails, sources, figures, and facts about the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use super::program::{HOSTILE, Program};
use crate::page::history::Past;
use crate::page::program::ALERTS;
use crate::until::until;
use homeostat::{Action, BoxError, Component, Context, Controller, Poller};

/// Returns the part of a text between two others.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("no {begin} in {text}"));
    rest.split_once(end).unwrap_or_else(|| panic!("no {end} in {text}")).0
}

#[test]
fn the_banner_says_since_when_and_which_key_in_the_units_of_the_tables() {
    let program = Program::started();
    let (stuck, end) = program.hang(HOSTILE);
    program.clock.advance(Duration::from_secs(150));
    until("the run is overdue", || stuck.status().running.iter().any(|run| run.overdue));
    let page = program.get("/").1;
    let reason = between(&page, "<li><b>not live</b> ", "</li>");
    let since =
        "</a> since <time datetime=\"1970-01-01T00:00:05Z\" title=\"1970-01-01T00:00:05Z\">00:00:05 UTC</time>: ";
    assert!(reason.contains(since), "{reason}");
    let runs = "</a> runs for <span title=\"1970-01-01T00:00:00Z\">2 m 30 s</span>, deadline 5 s";
    assert!(reason.ends_with(runs) && reason.contains("<a class=\"key\""), "{reason}");
    let checks = between(&page, "id=\"checks\"", "</section>");
    assert!(checks.contains(runs) && page.contains(">2 m 30 s</span></td>"), "{checks}");
    assert!(!page.contains("150s") && !page.contains("<script>alert") && !page.contains("<img"), "{page}");
    assert_eq!(stuck.metrics().overdue, 1);
    let metrics = program.get("/metrics").1;
    assert!(metrics.contains("kubernetes_healthcheck{name=\"stuck\",type=\"livez\"} 0\n"), "{metrics}");
    assert!(metrics.contains("homeostat_overdue_runs{controller=\"stuck\"} 1\n"), "{metrics}");
    assert_eq!(program.json("/statusz")["controllers"][0]["overdueCount"], 1);
    drop(end);
}

#[test]
fn a_source_tells_its_period_its_last_success_and_its_next_try() {
    let program = Program::new();
    let works = Arc::new(AtomicBool::new(false));
    let works_now = Arc::clone(&works);
    let list = move |_cx: &Context| if works_now.load(SeqCst) { Ok(Vec::<String>::new()) } else { Err(HOSTILE) };
    let poller = Poller::new(Duration::from_secs(60), list).clock(program.clock.clock());
    program.manager.add(Component::poller("links", poller, program.keys.queue())).unwrap();
    let mut program = program;
    program.running = Some(program.manager.start().unwrap());
    let status = || program.manager.source("links").unwrap().status();
    until("the source has failed", || status().failures == 1 && status().next_listing.is_some());
    program.clock.advance(Duration::from_secs(20));
    let page = program.get("/").1;
    let next = "in <span title=\"1970-01-01T00:01:00Z\">40 s</span>";
    let attention = between(&page, "id=\"attention\"", "</section>");
    assert!(attention.contains(&format!("data-label=\"next try\">{next}</td>")), "{attention}");
    let sources = between(&page, "id=\"sources\"", "</section>");
    for part in [
        "<bdi>links</bdi> <small>poll every 1 m</small>",
        "data-label=\"tries\">1, 1 failed</td>",
        "data-label=\"last success\">never</td>",
        next,
    ] {
        assert!(sources.contains(part), "{part}: {sources}");
    }
    let reason = between(&page, "<li><b>not ready</b> <bdi>links</bdi> since <time", "</li>");
    let tries = "has not completed its first listing and fails for <span title=\"1970-01-01T00:00:00Z\">20 s</span> (1 in a row): ";
    assert!(reason.contains(tries), "{reason}");
    assert!(!page.contains("<script>alert") && !page.contains("<img"), "{page}");
    let source = &program.json("/statusz")["sources"][0];
    assert_eq!((&source["periodSeconds"], &source["nextTryInSeconds"]), (&60.0.into(), &40.0.into()));
    assert!(source["lastSuccessAgoSeconds"].is_null(), "{source}");

    works.store(true, SeqCst);
    program.clock.advance(Duration::from_secs(40));
    until("the source works", || status().last_success.is_some() && status().next_listing.is_some());
    program.clock.advance(Duration::from_secs(20));
    let page = program.get("/").1;
    let success = "data-label=\"last success\"><span title=\"1970-01-01T00:01:00Z\">20 s</span> ago</td>";
    assert!(page.contains(success) && page.contains("data-label=\"tries\">2, 1 failed</td>"), "{page}");
}

#[test]
fn a_parked_key_says_that_it_is_given_up() {
    let program = Program::started();
    program.run("own-1");
    let given_up = "none: given up <small>until a change or a retry</small>";
    for path in ["/", "/controllers/v%3Cm%3E"] {
        let page = program.get(path).1;
        assert_eq!(page.matches(given_up).count(), 1, "{page}");
    }
}

#[test]
fn figures_say_what_they_are_made_of() {
    let program = Program::started();
    for key in ["bad", "later"] {
        program.run(key);
    }
    until("both keys are delayed", || program.keys.metrics().queue.delayed == 2);
    let page = program.get("/").1;
    let figure = |page: &str, name: &str| between(page, &format!("<dt>{name}</dt>"), "</div>").to_owned();
    assert!(figure(&page, "delayed").contains(">2<br><small>retries: 1, due later: 1</small>"), "{page}");
    assert!(figure(&page, "running").contains("<br><small>of a pool of 2 threads</small>"), "{page}");
}

#[test]
fn the_peak_of_waiting_keys_is_compared_with_the_minute_before_and_held_keys_are_counted_apart() {
    let program = Program::started();
    let waiting = |program: &Program| between(&program.get("/").1, "<dt>waiting</dt>", "</div>").to_owned();
    let past = || program.pages.history.of("v<m>", Past::FiveMinutes);
    until("the first sample is taken", || past().range.is_some());
    // Both threads have a run without an end, so the other keys wait.
    let clock = program.clock.clock();
    let sleep = |cx: &Context, _key: &u32| -> Result<Action, BoxError> {
        Ok(cx.sleep(Duration::MAX).map(|()| Action::await_change())?)
    };
    let busy = Controller::builder("busy", sleep).clock(clock).max_concurrent_reconciles(2).build().unwrap();
    let keys = busy.handle();
    program.manager.add(busy).unwrap();
    for key in 0..2 {
        keys.enqueue(key);
    }
    until("both threads are busy", || keys.metrics().runs.active == 2);
    for key in 2..5 {
        keys.enqueue(key);
    }
    let sample = |number: usize| {
        program.clock.advance(Duration::from_secs(5));
        until("a sample is taken", || past().samples.len() == number);
    };
    for number in 1..=12 {
        assert!(!waiting(&program).contains("in the last 60 s"), "there is no minute before");
        sample(number);
    }
    sample(13);
    assert!(
        waiting(&program).contains("<small>3 in the last 60 s, 0 in the 60 s before</small>"),
        "{}",
        waiting(&program)
    );
    (14..=26).for_each(sample);
    keys.enqueue(5);
    assert!(
        waiting(&program).contains("<small>3 to 4 in the last 60 s, 3 in the 60 s before</small>"),
        "{}",
        waiting(&program)
    );
    let limit = ">busy</bdi></a> is at its limit of 2 runs</small>";
    assert!(waiting(&program).contains(limit), "{}", waiting(&program));
    let page = program.get("/").1;
    let running = between(&page, "<dt>running</dt>", "</div>");
    assert!(
        running.ends_with("<small>of a pool of 2 threads</small><br><small>busy 100 % of the last 60 s</small></dd>")
    );
    let hour = between(&page, "id=\"hour\"", "</section>");
    for part in [
        ">peak of waiting keys, without held ones <small>newest 3, most 3 at",
        "mean active runs, of 2 threads <small>newest 2.0",
    ] {
        assert!(hour.contains(part), "{part}: {hour}");
    }
    keys.suspend_all();
    assert!(
        waiting(&program).contains(">0<")
            && waiting(&program).contains("and 4 held in controllers that take no keys now"),
        "{}",
        waiting(&program)
    );
    (27..=38).for_each(sample);
    assert!(waiting(&program).contains("<small>0 in the last 60 s, 3 in"), "{}", waiting(&program));
}

#[test]
fn an_extra_thread_in_place_of_a_hung_one_is_named() {
    let program = Program::started();
    let (stuck, end) = program.hang("a");
    program.keys.enqueue("slow".to_owned());
    until("both threads are busy", || program.keys.metrics().runs.active == 1);
    program.clock.advance(Duration::from_secs(20));
    until("the run is overdue", || stuck.status().running.iter().any(|run| run.overdue));
    let of_pool = || between(&program.get("/").1, "<dt>running</dt>", "</div>").to_owned();
    assert!(of_pool().contains("of a pool of 2 threads, 1 of them hung</small>"), "{}", of_pool());
    program.run("fine");
    let plus = "of a pool of 2 threads; 1 hung run does not count: another thread replaces its own</small>";
    until("the run is recorded", || of_pool().contains(plus));
    drop(end);
}

#[test]
fn a_check_tells_its_owner() {
    let mut program = Program::new();
    program.manager.add(Component::function("load", |_cx: &Context| Ok::<_, BoxError>(()))).unwrap();
    program.pages = program.pages_again().ready_check("v<m>", || Err::<(), _>("no"));
    let page = program.get("/").1;
    let checks = between(&page, "id=\"checks\"", "</section>");
    for (name, owner) in [
        ("<bdi>appliance</bdi>", "manager"),
        ("<bdi>v&lt;m&gt;</bdi></a>", "controller"),
        ("<bdi>load</bdi>", "component"),
        // It has the name of the controller.
        ("<bdi>v&lt;m&gt;</bdi>", "added check"),
    ] {
        let row = format!("{name}</th><td class=\"\" data-label=\"of\">{owner}</td>");
        assert!(checks.contains(&row), "{row}: {checks}");
    }
    let metrics = program.get("/metrics").1;
    let sample = "kubernetes_healthcheck{name=\"v<m>\",type=\"readyz\"} ";
    assert_eq!(metrics.matches(sample).count(), 1, "{metrics}");
    assert!(metrics.contains(&format!("{sample}0\n")), "one of the two checks fails: {metrics}");
}

#[test]
fn the_metrics_for_alerts_exist_and_the_page_names_versions() {
    let mut program = Program::new();
    program.pages = program.pages_again().version("7.1");
    let [page, metrics] = ["/", "/metrics"].map(|path| program.get(path).1);
    for [word, metric, condition] in ALERTS {
        // There is no server and no elector.
        let is_shown =
            !["server errors", "failed probes", "refused connections", "refused logins", "leads"].contains(&word);
        assert_eq!(page.contains(&format!("<code class=\"key\">{metric}</code>")), is_shown, "{metric}");
        let named = condition.split(' ').filter(|part| part.contains('_')).chain([metric]);
        for name in named.filter(|_| is_shown) {
            assert!(metrics.contains(&format!("# TYPE {name} ")), "{name}");
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.contains(&format!("<dt>Library</dt><dd>homeostat {version}")), "{page}");
    let info = format!("homeostat_build_info{{version=\"{version}\",program_version=\"7.1\"}} 1\n");
    assert!(metrics.contains(&info), "{metrics}");
    program.keys.suspend_all();
    program.keys.suspend("one".to_owned());
    let metrics = program.get("/metrics").1;
    for name in ["homeostat_suspended", "homeostat_suspended_keys"] {
        assert!(metrics.contains(&format!("{name}{{controller=\"v<m>\"}} 1\n")), "{name}: {metrics}");
    }
}
