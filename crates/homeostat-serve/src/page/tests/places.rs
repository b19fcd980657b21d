//! Tests of the pages of controllers, of the search, and of what a page says about the program.

use std::fmt::Debug;
use std::time::Duration;

use super::handling::run_all;
use super::program::{HOSTILE, Program};
use super::visible;
use crate::page::history::Past;
use crate::page::known_keys::MOST_VISITED;
use crate::page::{StatusPages, search};
use crate::until::until;
use homeostat::controller::ControllerHandle;
use homeostat::queue::Key;
use homeostat::{Action, BoxError, Context, Controller, Manager};
use homeostat_objects::ObjectKey;

#[test]
fn the_page_of_a_controller_has_its_keys_sources_and_runs() {
    let program = Program::started();
    program.run("bad");
    program.run(HOSTILE);
    program.run("fine");
    program.keys.suspend("held".to_owned());
    let (status, page) = program.get("/controllers/v%3Cm%3E");
    assert_eq!(status, 200);
    for part in [
        ">failing</span>",
        ">parked</span>",
        ">suspended</span>",
        "/keys/v%3Cm%3E/%22held%22\"",
        "/keys/v%3Cm%3E/%22fine%22\"",
        "The last hour",
        "Last runs <small>3 kept, 3 since the start</small>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains("v<m>"));
    assert!(!page.contains("<button>Suspend"), "actions are not allowed");
    let (status, page) = program.get("/controllers/%3Cb%3E");
    assert_eq!(status, 404);
    assert!(page.contains("&lt;b&gt;") && page.contains("There is no controller with this name"));
}

#[test]
fn the_search_finds_known_keys_by_a_part_of_their_name() {
    let program = Program::started();
    for key in ["bad", "Badge", "fine"] {
        program.run(key);
    }
    let page = program.get("/search?q=bad").1;
    assert!(page.contains("Keys <small>2</small>"), "{page}");
    assert!(page.contains("/keys/v%3Cm%3E/%22bad%22\"") && page.contains("/keys/v%3Cm%3E/%22Badge%22\""), "{page}");
    // The exact name is first.
    for key in ["a bad", "badly"] {
        program.run(key);
    }
    let page = program.get("/search?q=BAD").1;
    let at = |key: &str| page.find(&format!("/keys/v%3Cm%3E/%22{key}%22\"")).expect(key);
    assert!(at("bad") < at("Badge") && at("Badge") < at("badly") && at("badly") < at("a%20bad"), "{page}");
    assert!(program.get("/search?q=%20").1.contains("Keys <small>0</small>"), "an empty text finds nothing");
    let page = program.get("/search?q=%3Cscript%3E").1;
    assert!(page.contains("Keys <small>0</small>") && page.contains("&lt;script&gt;"), "{page}");
}

#[test]
fn the_search_shows_the_state_and_the_last_error_and_finds_controllers() {
    let program = Program::started();
    for key in ["bad", "fine"] {
        program.run(key);
    }
    let page = program.get("/search?q=bad").1;
    let row = page.split("/keys/v%3Cm%3E/%22bad%22\"").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(row.contains(">failing</span>") && row.contains("no answer"), "{row}");
    assert!(visible(row).contains("failed00:00:00 UTC 0 s agono answer"), "{row}");
    assert!(program.get("/search?q=FINE").1.contains("<span class=\"chip calm\">idle</span>"));
    let page = program.get("/search?q=V%3CM").1;
    assert!(page.contains("Controllers and sources <small>1</small>") && page.contains("no answer"), "{page}");
    run_all(&program, &(0..101).map(|number| format!("own-{number}")).collect::<Vec<_>>());
    let page = program.get("/search?q=own-").1;
    assert!(page.contains("100 of 101 <a href=\"?q=own-&amp;all=1#found\">show all</a>"), "{page}");
    assert!(program.get("/search?q=own-&all=1").1.contains("Keys <small>101</small>"));
}

#[test]
fn the_search_tells_an_old_error_from_one_that_lasts() {
    let program = Program::started();
    program.run("heals");
    let row = || {
        let page = program.get("/search?q=heals").1;
        visible(page.split("id=\"found\"").nth(1).unwrap().split("<tbody>").nth(1).unwrap())
    };
    until("the failure is recorded", || row().contains("failed00:00:00 UTC 0 s ago&lt;conflict&gt;"));
    program.clock.advance(Duration::from_secs(40));
    until("the retry is recorded", || row().contains("succeeded00:00:40 UTC 0 s ago"));
    assert!(row().contains("failed 40 s ago, recovered since: &lt;conflict&gt;"), "{}", row());
}

#[test]
fn the_keys_of_an_object_are_found_among_any_number_of_keys() {
    /// A key of a type that the pages do not know.
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    struct Tuple(String);
    fn add<K: Key + Sync + Debug>(manager: &Manager, name: &str) -> ControllerHandle<K> {
        let reconcile = |_cx: &Context, _key: &K| -> Result<Action, BoxError> { Ok(Action::await_change()) };
        let controller = Controller::builder(name, reconcile).build().unwrap();
        let handle = controller.handle();
        manager.add(controller).unwrap();
        handle
    }
    let manager = Manager::builder().build().unwrap();
    let pages = StatusPages::new(&manager).unwrap();
    let (texts, objects) = (add::<String>(&manager, "texts"), add::<ObjectKey>(&manager, "objects"));
    let (held, others) = (add::<ObjectKey>(&manager, "held"), add::<Tuple>(&manager, "others"));
    let key = ObjectKey::new("default", "a");
    let found = || search::find_of_object(&manager, &pages.history.runs, &key).into_keys().collect::<Vec<_>>();
    assert_eq!(found(), []);
    for number in 0..=MOST_VISITED {
        texts.enqueue(number.to_string());
        objects.enqueue(ObjectKey::cluster(&number.to_string()));
    }
    texts.enqueue(key.to_string());
    objects.enqueue(key.clone());
    held.suspend(key.clone());
    others.enqueue(Tuple(key.to_string()));
    let expected = [("held", "default/a"), ("objects", "default/a"), ("texts", "\"default/a\"")];
    assert_eq!(found(), expected.map(|(of, key)| (of.to_owned(), key.to_owned())));
}

#[test]
fn title_and_icon_tell_the_health() {
    let program = Program::started();
    let title = |page: &str| page.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_owned();
    let icon = |page: &str| page.split("id=\"icon\" href=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    until("the program is ready", || program.get("/readyz").0 == 200);
    let good = program.get("/").1;
    assert_eq!(title(&good), "appliance");
    program.run("bad");
    let warn = program.get("/").1;
    assert_eq!(title(&warn), "1 to check · appliance");
    assert!(title(&program.get("/keys/v%3Cm%3E/%22bad%22").1).starts_with("failing · bad · "));
    let bad = Program::new().get("/").1;
    assert_eq!(title(&bad), "not ready · appliance");
    let icons = [icon(&good), icon(&warn), icon(&bad)];
    assert!(icons[0] != icons[1] && icons[1] != icons[2] && icons[0] != icons[2]);
    // The script sets the same icon.
    assert!([good, warn, bad].iter().all(|page| page.contains(&format!("data-icon=\"{}\"", icon(page)))));
}

#[test]
fn the_page_names_the_program_its_version_and_each_check() {
    let mut program = Program::started();
    let pages = program.pages_again().version("1.2.3<b>").ready_check("disk", || Err("it is full"));
    program.pages = pages;
    until("all else is ready", || program.get("/readyz?exclude=disk").0 == 200);
    let page = program.get("/").1;
    for part in [
        "version <bdi>1.2.3&lt;b&gt;</bdi>",
        "Health checks <small>2 pass, 1 fail</small>",
        "<bdi>disk</bdi>",
        "data-label=\"reason\">it is full</td>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert_eq!(program.json("/statusz")["process"]["version"], "1.2.3<b>");
    assert!(page.contains(&format!("pid {}", std::process::id())) && page.matches("pid ").count() == 1, "{page}");
}

#[test]
fn the_page_of_an_active_run_has_its_deadline_and_why_it_began() {
    let program = Program::started();
    program.run("later");
    program.clock.advance(Duration::from_secs(30));
    until("the key has run again", || program.keys.metrics().runs.runs() == 2);
    program.keys.enqueue("slow".to_owned());
    until("a run is active", || program.keys.metrics().runs.active > 0);
    let page = program.get("/keys/v%3Cm%3E/%22slow%22").1;
    let shown = visible(&page);
    assert!(shown.contains("in 1 h 0 m at 01:00:30 UTC, 1 h 0 m after its start"), "{page}");
    assert!(shown.contains("runs for 0 s since 00:00:30 UTC on appliance-pool-"), "{page}");
    assert!(
        page.contains("<dt>Why it began</dt><dd>the program asked for it (enqueued) <small>no earlier run"),
        "{page}"
    );
    let running = &program.json("/statusz")["controllers"][0]["running"][0];
    assert_eq!((running["reasons"].as_str(), running["requestedBy"].as_str()), (Some("enqueued"), None));
}

#[test]
fn charts_have_their_values_and_clock_times() {
    let program = Program::started();
    let past = || program.pages.history.of("v<m>", Past::FiveMinutes);
    until("the first sample is taken", || past().range.is_some());
    for number in 1..=12 {
        if number == 3 {
            (0..5).for_each(|number| program.run(&format!("fine-{number}")));
        }
        program.clock.advance(Duration::from_secs(5));
        until("a sample is taken", || past().samples.len() == number);
    }
    let page = program.get("/controllers/v%3Cm%3E").1;
    for part in [
        "peak of waiting keys <small>newest 0, most 0 at 00:01</small>",
        "runs per second <small>newest 0.1, most 0.1 at 00:01; failed, in red: newest 0</small>",
        "<div class=\"axis\"><span>1969-12-31 23:01</span><span>00:01 UTC</span></div>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = program.get("/").1;
    for part in [
        "Controllers <small>charts: 1969-12-31 23:56:00 to 00:01:00 UTC, one scale",
        "<small>max 1.0</small>",
        "<small>1970-01-01 UTC <i",
        "<span>00:00:00</span><span>00:00:15</span>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
}
