//! Watches.

use super::*;
use homeostat_objects::{Client, DeleteOptions, ObjectKey};

/// Watches until this many events have arrived. Calls a function after each.
fn watch(served: &Served, query: &str, most: usize, after: impl FnMut(usize) + Send + 'static) -> Vec<Value> {
    watch_as(served, query, "application/json", most, after)
}

fn watch_as(
    served: &Served,
    query: &str,
    accept: &'static str,
    most: usize,
    mut after: impl FnMut(usize) + Send + 'static,
) -> Vec<Value> {
    let gone = CancellationToken::new();
    let stop = gone.clone();
    let after = move |count| {
        if count >= most {
            stop.cancel();
        } else {
            after(count);
        }
    };
    let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
    let answer =
        request(&format!("GET {SITES}?watch=true{query}")).accept(accept).streamed(&served.api, &mut sink, &gone);
    assert_eq!(answer.code, 200, "{answer:?}");
    answer.events()
}

fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

#[test]
fn a_watch_shows_the_objects_and_their_changes() {
    let served = served();
    let home = create(&served, "home", "Home");
    let (api, client) = (served.api.clone(), served.client.clone());
    let events = watch(&served, "", 3, move |count| match count {
        1 => drop(merge_patch(HOME, &json!({"spec": {"title": "New"}})).send_to(&api)),
        _ => drop(client.delete(&SITE, &ObjectKey::new("default", "home"), &DeleteOptions::default()).unwrap()),
    });
    assert_eq!(types(&events), ["ADDED", "MODIFIED", "DELETED"]);
    assert_eq!(events[0]["object"], home);
    assert_eq!(events[1]["object"]["spec"]["slug"], "new");
}

#[test]
fn a_watch_continues_after_a_version_and_selects() {
    let served = served();
    let first = create(&served, "a", "A");
    create(&served, "b", "B");
    create(&served, "c", "C");
    let from = first["metadata"]["resourceVersion"].as_str().unwrap();
    let events = watch(&served, &format!("&resourceVersion={from}"), 2, |_| {});
    assert_eq!(events.iter().map(|event| &event["object"]["metadata"]["name"]).collect::<Vec<_>>(), ["b", "c"]);
    let events = watch(&served, "&fieldSelector=metadata.name=c", 1, |_| {});
    assert_eq!(events[0]["object"]["metadata"]["name"], "c");
    // A watch of one object.
    let gone = CancellationToken::new();
    let stop = gone.clone();
    let mut sink = Kept { after: Some(Box::new(move |_| stop.cancel())), ..Kept::default() };
    let one = request(&format!("GET {SITES}/b?watch=1")).streamed(&served.api, &mut sink, &gone);
    assert_eq!(one.events()[0]["object"]["metadata"]["name"], "b");
}

#[test]
fn a_bookmark_marks_the_end_of_the_initial_events() {
    let served = served();
    create(&served, "a", "A");
    let query = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion=1";
    let events = watch(&served, query, 2, |_| {});
    assert_eq!(types(&events), ["ADDED", "BOOKMARK"]);
    let mark = &events[1]["object"];
    assert_eq!(
        (&mark["kind"], &mark["metadata"]["annotations"]["k8s.io/initial-events-end"]),
        (&json!("Site"), &json!("true"))
    );
    let refused = request(&format!("GET {SITES}?watch=true&sendInitialEvents=true")).to(&served);
    assert_eq!(refused.code, 422);
    // Without initial events, only later changes arrive.
    let client = served.client.clone();
    let (api, version) = (served.api.clone(), || client.list(&SITE, &Query::all()).unwrap().version);
    assert!(version().parse::<u64>().unwrap() > 1);
    let gone = CancellationToken::new();
    let stop = gone.clone();
    let later = site("later", "L");
    let reply = api.handle(&request(&format!("GET {SITES}?watch=true&sendInitialEvents=false")).request);
    assert_eq!(request(&format!("POST {SITES}")).body(&later).send_to(&api).code, 201);
    let ReplyBody::Stream(run) = reply.body else { panic!("not a stream") };
    let mut sink = Kept { after: Some(Box::new(move |_| stop.cancel())), ..Kept::default() };
    run(&mut ReplyStream::new(&mut sink, &gone)).unwrap();
    assert!(String::from_utf8(sink.bytes).unwrap().contains("\"later\""));
}

#[test]
fn a_watch_without_memory_for_its_next_object_ends_properly() {
    let served = served();
    create(&served, "small", "A");
    create(&served, "large", &"B".repeat(10_000));
    create(&served, "later", "C");
    let mut sink = Kept { most: Some(5_000), ..Kept::default() };
    let line = format!("GET {SITES}?watch=1&resourceVersion=1");
    let answer = request(&line).streamed(&served.api, &mut sink, &CancellationToken::new());
    let names: Vec<_> = answer.events().iter().map(|event| event["object"]["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["small"], "the client resumes after this one");
}

#[test]
fn a_large_event_has_several_parts_and_the_next_one_its_own() {
    let served = served();
    create(&served, "a", &"A".repeat(100_000));
    create(&served, "b", "B");
    let gone = CancellationToken::new();
    let stop = gone.clone();
    let after = move |parts| {
        if parts == 8 {
            stop.cancel();
        }
    };
    let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
    let answer = request(&format!("GET {SITES}?watch=1")).streamed(&served.api, &mut sink, &gone);
    // Title and slug have 200,000 bytes, which makes seven parts of 32 KiB. The other event is one part.
    assert_eq!(sink.parts, 8);
    let events = answer.events();
    assert_eq!(events[0]["object"]["spec"]["title"].as_str().unwrap().len(), 100_000);
    assert_eq!(events[1]["object"]["metadata"]["name"], "b");
}

#[test]
fn an_error_is_an_event() {
    let served = served();
    let events = watch(&served, "&resourceVersion=12345", 1, |_| {});
    assert_eq!((&events[0]["type"], &events[0]["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events[0]["object"]["reason"], "Expired");
}

#[test]
fn tables_have_heads_in_the_first_event_only() {
    let served = served();
    create(&served, "a", "A");
    create(&served, "b", "B");
    let events = watch_as(&served, "", "application/json;as=Table;v=v1;g=meta.k8s.io", 2, |_| {});
    assert_eq!(events[0]["object"]["columnDefinitions"].as_array().unwrap().len(), 4);
    assert_eq!(events[1]["object"]["columnDefinitions"], Value::Null);
    assert_eq!(events[1]["object"]["rows"][0]["cells"][0], "b");
}

#[test]
fn a_watch_ends_at_its_time_out() {
    let clock = homeostat::ManualClock::new();
    let client = MemoryClient::builder().clock(clock.clock()).build();
    let api =
        ObjectApi::builder(Arc::new(client)).serve(ServedResource::new(SITE)).clock(clock.clock()).build().unwrap();
    assert_eq!(request(&format!("POST {SITES}")).body(&site("a", "A")).send_to(&api).code, 201);
    let advance = clock.clone();
    // The event is sent after the deadline was set.
    let after = move |_| advance.advance(std::time::Duration::from_secs(5));
    let mut sink = Kept { after: Some(Box::new(after)), ..Kept::default() };
    let line = format!("GET {SITES}?watch=true&timeoutSeconds=5");
    let answer = request(&line).streamed(&api, &mut sink, &CancellationToken::new());
    assert_eq!(types(&answer.events()), ["ADDED"]);
    assert_eq!(request(&format!("GET {SITES}?watch=true&timeoutSeconds=soon")).send_to(&api).code, 400);
}
