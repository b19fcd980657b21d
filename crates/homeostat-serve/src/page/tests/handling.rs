//! Tests of each path, hostile texts and the headers of replies.

use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::get;
use super::program::{HOSTILE, Program};
use crate::http::Handler;
use crate::page::StatusPages;
use crate::until::until;
use homeostat::controller::ControllerHandle;
use homeostat::{Action, BoxError, Context, Controller, Manager, Poller};

#[test]
fn health_pages_name_each_part_and_each_added_check() {
    let mut program = Program::new();
    let (status, ready) = program.get("/readyz");
    assert_eq!((status, ready.as_str()), (503, "[-]appliance failed: not started\n[+]v<m> ok\nreadyz check failed\n"));
    assert_eq!(program.get("/livez"), (200, "ok".to_owned()));
    assert_eq!(program.get("/healthz?verbose").1, "[+]appliance ok\n[+]v<m> ok\nhealthz check passed\n");
    assert_eq!(program.get("/readyz/v<m>").0, 200);
    assert_eq!(program.get("/readyz/other").0, 404);

    let pages = StatusPages::new(&program.manager).unwrap();
    let pages =
        pages.live_check("disk", || Err("it is\nfull")).ready_check("a/b", || -> Result<(), BoxError> { panic!("oh") });
    program.pages = pages;
    assert_eq!(
        program.get("/livez").1,
        "[+]appliance ok\n[+]v<m> ok\n[-]disk failed: it is\\nfull\nlivez check failed\n"
    );
    assert_eq!(program.get("/livez?exclude=disk").0, 200);
    assert_eq!(program.get("/readyz/a/b").1, "[-]a/b failed: the check panicked: oh\n");
}

#[test]
fn the_status_as_json_has_failing_keys_with_their_next_try_and_recent_runs() {
    let program = Program::started();
    program.run("bad");
    program.clock.advance(Duration::from_secs(10));
    let status = program.json("/statusz");
    let vm = &status["controllers"][0];
    assert_eq!((&status["phase"], &vm["name"], &vm["phase"]), (&"running".into(), &"v<m>".into(), &"running".into()));
    assert_eq!(
        (status["leadership"]["elected"].as_bool(), status["leadership"]["leading"].as_bool()),
        (Some(false), Some(true))
    );
    let failing = &vm["failing"][0];
    assert_eq!((failing["key"].as_str(), failing["error"].as_str()), (Some("\"bad\""), Some("no answer")));
    assert_eq!((failing["tries"].as_u64(), failing["nextTryInSeconds"].as_f64()), (Some(1), Some(30.0)));
    assert_eq!(failing["failingForSeconds"].as_f64(), Some(10.0));
    let run = &vm["recentRuns"][0];
    assert_eq!((run["reasons"].as_str(), run["result"].as_str()), (Some("enqueued"), Some("failed")));
    assert_eq!((run["againInSeconds"].as_f64(), run["startedAgoSeconds"].as_f64()), (Some(40.0), Some(10.0)));
    assert!(run["thread"].as_str().unwrap().starts_with("appliance-pool-"));
    let counts = |status: &Value| status["controllers"][0]["failing"].as_array().unwrap().len();
    assert_eq!((counts(&status), counts(&program.json("/statusz?limit=0"))), (1, 0));
    assert_eq!(program.get("/statusz?limit=x").0, 400);
    assert!(
        program
            .get("/statusz?format=text")
            .1
            .contains(": \"bad\" is failing, failed once, next try in 30s: no answer\n")
    );
}

#[test]
fn the_status_page_shows_troubles_first_and_escapes_text_of_users() {
    let program = Program::started();
    program.run(HOSTILE);
    let (status, page) = program.get("/");
    assert_eq!(status, 200);
    assert!(
        !page.contains("<script>alert")
            && !page.contains("<img")
            && !page.contains("v<m>")
            && !page.contains('\u{202e}')
    );
    assert_eq!(page.matches("<script>").count(), 1);
    assert!(page.contains("&lt;/script&gt;&lt;script&gt;alert(1)"));
    let attention = page.find(">parked</span>").unwrap();
    assert!(attention < page.find("id=\"controllers\"").unwrap());
    let live = program.get("/?live=1").1;
    assert!(
        live.starts_with("<header data-health=") && page.contains("<main id=\"main\">") && !live.contains("<style")
    );

    let path = page.split("class=\"key\" href=\"").nth(1).unwrap().split('"').next().unwrap();
    let (status, key) = program.get(path);
    assert_eq!(status, 200, "{path}");
    assert!(
        key.contains(">parked</span>") && key.contains("<dt>Last run</dt><dd>failed and was parked at <time"),
        "{key}"
    );
    assert!(!key.contains("<script>alert") && !key.contains("<img"));
}

#[test]
fn the_page_of_a_key_shows_its_next_run() {
    let program = Program::started();
    program.run("later");
    program.clock.advance(Duration::from_secs(10));
    let (status, page) = program.get("/keys/v%3Cm%3E/%22later%22");
    assert_eq!(status, 200);
    assert!(
        page.contains("<dt>Next run</dt><dd>in <span title=")
            && page.contains(">20 s</span> <small>at <time")
            && page.contains("again after 30 s"),
        "{page}"
    );
    let (status, page) = program.get("/keys/v%3Cm%3E/%3Cb%3E");
    assert_eq!(status, 404);
    assert!(
        page.contains("&lt;b&gt;") && page.contains("Nothing is known about this key: it is idle or does not exist")
    );
    assert_eq!(program.get("/keys/other/%22later%22").0, 404);
    // The page of a key with a slash has only one path, so the authorization covers all its pages.
    program.run("later/on");
    assert_eq!(program.get("/keys/v%3Cm%3E/%22later%2Fon%22").0, 200);
    assert_eq!(program.get("/keys/v%3Cm%3E/%22later/on%22").0, 404);
}

#[test]
fn replies_are_not_kept_not_framed_and_load_nothing_else() {
    let program = Program::new();
    let headers = program.pages.handle(&get("/")).headers;
    let policy = headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"));
    assert!(policy.contains("form-action 'self'"));
    assert_eq!(
        (&headers["x-frame-options"], &headers["referrer-policy"]),
        (&"DENY".parse().unwrap(), &"same-origin".parse().unwrap())
    );
    for path in ["/", "/livez", "/metrics", "/statusz", "/keys/a/b", "/controllers/a", "/search?q=a", "/nothing"] {
        let headers = program.pages.handle(&get(path)).headers;
        assert_eq!(
            (&headers["cache-control"], &headers["x-content-type-options"]),
            (&"no-store".parse().unwrap(), &"nosniff".parse().unwrap())
        );
    }
}

#[test]
fn nothing_can_be_changed_and_other_paths_are_not_found() {
    let program = Program::new();
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH, Method::OPTIONS] {
        for path in ["/", "/keys/v%3Cm%3E/%22bad%22/retry", "/controllers/v%3Cm%3E/suspend"] {
            let reply = program.pages.handle(&crate::http::IncomingRequest { method: method.clone(), ..get(path) });
            assert_eq!((reply.status.as_u16(), &reply.headers["allow"]), (405, &"GET, HEAD".parse().unwrap()));
        }
    }
    for path in ["/", "/livez", "/readyz/vm", "/healthz", "/metrics", "/statusz", "/keys/vm/a/b"] {
        assert_ne!(program.get(path).0, 405, "{path}");
    }
    for path in ["/api", "/metrics/x", "/statusz/x", "/keys", "/keys/vm", "/live", "/controllers", "/objects/a.v1."] {
        let (status, text) = program.get(path);
        assert!(status == 404 && text.starts_with(&format!("{path}: there is no such ")), "{path}: {text}");
    }
}

#[test]
fn pages_do_not_keep_their_manager() {
    let mut program = Program::new();
    program.pages = StatusPages::new(&program.manager).unwrap();
    program.manager = Manager::builder().build().unwrap();
    // The sampling thread may hold the manager for a moment.
    until("the page is gone", || program.get("/").0 != 200);
    assert_eq!(program.get("/"), (503, "/: the manager has ended\n".to_owned()));
}

#[test]
fn a_key_whose_debug_panics_is_shown_as_such() {
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Panics;
    impl std::fmt::Debug for Panics {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            panic!("no name")
        }
    }
    let program = Program::new();
    let reconcile = |_cx: &Context, _key: &Panics| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let controller = Controller::builder("panics", reconcile).clock(program.clock.clock()).build().unwrap();
    controller.handle().enqueue(Panics);
    program.manager.add(controller).unwrap();
    let (code, status) = program.get("/statusz");
    assert_eq!((code, program.get("/").0), (200, 200));
    assert!(status.contains("(a key whose Debug panics)"), "{status}");
    assert_eq!((program.get("/livez").0, program.get("/metrics").0), (200, 200));
}

#[test]
fn failing_sources_and_stuck_runs_need_attention() {
    let program = Program::started();
    let failing = Poller::new(Duration::from_secs(5), |_cx: &Context| Err::<Vec<String>, _>("no <route>"))
        .clock(program.clock.clock());
    let poller = homeostat::Component::poller("links", failing, program.keys.queue());
    program.manager.add(poller).unwrap();
    until("the source has failed", || program.manager.source("links").unwrap().status().failures > 0);
    let page = program.get("/").1;
    assert!(page.contains(">source fails</span>") && page.contains("no &lt;route&gt;"), "{page}");
    assert_eq!(program.json("/statusz")["sources"][0]["lastError"], "no <route>");
    let reconcile = |_cx: &Context, _key: &String| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let failing = Poller::new(Duration::from_secs(5), |_cx: &Context| Err::<Vec<String>, _>("no disk"));
    let disks = Controller::builder("disks", reconcile).clock(program.clock.clock());
    program.manager.add(disks.poller(failing.clock(program.clock.clock())).build().unwrap()).unwrap();
    let link = "data-label=\"belongs to\"><a class=\"name\" href=\"/controllers/disks\">";
    until("the overview links the controller of its failing source", || program.get("/").1.contains(link));
    assert!(program.get("/readyz").1.contains("[-]links failed: its first listing has not completed"));
}

#[test]
fn every_field_of_the_status_is_documented() {
    fn names(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    found.push(name.clone());
                    names(value, found);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| names(value, found)),
            _ => {}
        }
    }
    let program = Program::started();
    for key in ["bad", HOSTILE] {
        program.run(key);
    }
    program.keys.enqueue("slow".to_owned());
    until("a run is active", || program.keys.metrics().runs.active > 0);
    let mut found = Vec::new();
    names(&program.json("/statusz"), &mut found);
    assert!(found.len() > 80);
    let documented = include_str!("../pages.rs").split("# The fields of `/statusz`").nth(1).unwrap();
    for name in found {
        assert!(documented.contains(&format!("`{name}`")), "{name}");
        assert!(!name.contains("Seconds") || name.ends_with("Seconds"), "{name}");
    }
}

#[test]
fn runs_are_recorded_once_there_are_pages_and_not_before() {
    let controller = |name: &str| {
        let reconcile = |_cx: &Context, _key: &u32| -> Result<Action, BoxError> { Ok(Action::await_change()) };
        Controller::builder(name, reconcile).build().unwrap()
    };
    let run = |handle: &ControllerHandle<u32>| {
        handle.enqueue(7);
        handle.wait(&7, Duration::MAX).unwrap();
    };
    let manager = Manager::builder().build().unwrap();
    let (first, second) = (controller("first"), controller("second"));
    let (one, other) = (first.handle(), second.handle());
    manager.add(first).unwrap();
    let running = manager.start().unwrap();
    run(&one);
    let pages = StatusPages::new(&manager).unwrap();
    manager.add(second).unwrap();
    assert!(pages.history.runs.of("first").is_empty());
    run(&one);
    run(&other);
    // A wait may return before the observers hear of the run.
    until("both runs are recorded", || ["first", "second"].map(|name| pages.history.runs.of(name).len()) == [1, 1]);
    drop(pages);
    running.shutdown(Duration::from_secs(10)).unwrap();
}

/// Runs these keys and waits for their ends.
pub(super) fn run_all(program: &Program, keys: &[String]) {
    for key in keys {
        program.keys.enqueue(key.clone());
    }
    // A run is counted before its failure is recorded, so the counts do not show whether all keys have failed.
    for key in keys {
        program.keys.wait(key, Duration::MAX).unwrap();
    }
}

#[test]
fn more_failed_keys_than_rows_are_counted_and_shown_on_request() {
    let program = Program::started();
    run_all(&program, &(0..60).map(|number| format!("own-{number}")).collect::<Vec<_>>());
    let rows = |page: &str| page.matches(">parked</span>").count();
    let page = program.get("/").1;
    let link = "40 of 60 <a href=\"?all=1#attention\">show all</a>";
    assert!(page.contains(&format!("Needs attention <small>{link}</small>")) && rows(&page) == 40, "{page}");
    let page = program.get("/?all=1").1;
    assert!(page.contains("Needs attention <small>60</small>") && rows(&page) == 60, "{page}");
    let page = program.get("/controllers/v%3Cm%3E").1;
    assert!(page.contains("50 of 60 <a href=\"?all=1#keys\">show all</a>"), "{page}");
    assert_eq!(rows(page.split("id=\"runs\"").next().unwrap()), 50);
    let page = program.get("/controllers/v%3Cm%3E?all=1").1;
    assert!(page.contains("Failed and suspended keys <small>60</small>"), "{page}");
}

#[test]
fn keys_with_one_error_share_a_row_except_suspended_ones() {
    let program = Program::started();
    run_all(&program, &(0..60).map(|number| format!("{HOSTILE}{number}")).collect::<Vec<_>>());
    program.keys.suspend(format!("{HOSTILE}7"));
    let page = program.get("/").1;
    assert!(page.contains("Needs attention <small>60</small>"), "{page}");
    assert!(page.contains("<summary>59 keys</summary>") && page.matches(">parked</span>").count() == 2, "{page}");
    assert!(
        page.contains("<a href=\"/controllers/v%3Cm%3E?all=1#keys\">all failed keys of <bdi>v&lt;m&gt;</bdi> with tries and next try</a> "),
        "{page}"
    );
    assert!(page.contains("</a> <span>and 39 more</span></details>"), "{page}");
    assert!(!page.contains("<script>alert") && !page.contains("<img"));
    let page = program.get("/controllers/v%3Cm%3E?all=1").1;
    let keys = page.split("id=\"keys\"").nth(1).unwrap().split("</section>").next().unwrap();
    assert_eq!((keys.matches(">parked</span>").count(), keys.contains("<summary>59 keys")), (60, false), "{keys}");
}
