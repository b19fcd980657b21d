//! The traits and the `Debug` output of the public types.

use std::cell::Cell;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::io;
use std::marker::PhantomData;
use std::panic::catch_unwind;
use std::time::Duration;

use homeostat::base::OnCancel;
use homeostat::manager::{ElectorError, Holder, Term};
use homeostat::queue::{
    DequeueError, DrainReport, DroppedRun, EnqueueMethod, EnqueueRequest, FastState, KeyState, PendingRerun,
    STARVATION_BOUND, Tally, View, WorkQueueBuilder,
};
use homeostat::watch::{ChangeCounts, EventKind, Index, Push, PushMessage, Subscription, WatchBuilder};
use homeostat::{
    CancellationToken, Claim, Clock, Context, Enqueue, EnqueueOutcome, Event, Exponential, ManualClock, Poller,
    Predicate, Priority, Reasons, Shutdown, StartError, Store, Subscriber, ThreadOptions, Watch, WorkQueue,
};

use crate::support::{SECOND, held, take};
use homeostat::Running;

/// A key that is `Send` but not `Sync`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Moves(u32, PhantomData<Cell<()>>);

#[test]
fn public_types_are_send_and_sync() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<WorkQueue<Moves>>();
    shared::<WorkQueueBuilder<Moves>>();
    sent::<Claim<Moves>>();
    shared::<Claim<u32>>();
    shared::<View<'static, Moves, FastState>>();
    sent::<DrainReport<Moves>>();
    shared::<DrainReport<u32>>();
    shared::<Clock>();
    shared::<ManualClock>();
    shared::<CancellationToken>();
    shared::<OnCancel>();
    shared::<Exponential>();
    shared::<ThreadOptions>();
    shared::<FastState>();
    shared::<(
        EnqueueOutcome,
        KeyState,
        PendingRerun,
        Tally,
        DroppedRun,
        Priority,
        Reasons,
        EnqueueRequest,
        EnqueueMethod,
        Shutdown,
    )>();
    shared::<StartError>();
    shared::<(Watch<u32, u64>, Push<u32, u64>, Store<u32, u64>, Index<u8, u32, u64>)>();
    shared::<(Event<u32, u64>, EventKind, ChangeCounts, PushMessage<u32, u64>)>();
    shared::<(Predicate<u32, u64>, Running<Subscription>, Running<Watch<u32, u64>>, Running<Watch<u32, u64>>)>();
    shared::<WatchBuilder<u32, u64>>();
    sent::<(Subscriber<u32, u64>, Poller<Vec<(u32, u64)>>)>();
    shared::<Holder>();
    shared::<ElectorError>();
    sent::<Term>();
    shared::<DequeueError>();
    #[cfg(unix)]
    shared::<homeostat::rt::Joiner>();
}

#[test]
fn a_feeder_can_be_an_object() {
    let queue = WorkQueue::new();
    let feeders: [Box<dyn Enqueue<u32> + Send + Sync>; 2] =
        [Box::new(queue.clone()), Box::new(std::sync::Arc::new(queue.clone()))];
    for feeder in &feeders {
        feeder.enqueue(7);
    }
    assert_eq!(queue.len(), 1);
}

/// The output names the type, and fits into a log line.
#[test]
fn everything_public_prints_something_short() {
    fn says(value: impl Debug, what: &str) {
        let text = format!("{value:?}");
        assert!(text.contains(what), "{text:?} does not contain {what:?}");
        assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    }
    let (clock, queue) = held::<&str>();
    for key in ["ready", "late", "taken"] {
        queue.enqueue(key);
    }
    queue.reschedule("late", SECOND);
    queue.cancel(&"ready");
    let claim = take(&queue);
    says(&queue, "WorkQueue { name: \"queue\", ready: 0, delayed: 1, processing: 1");
    says(&claim, "Claim { key: \"taken\", failures: 0");
    says(queue.at(Priority::Low), "View");
    says(WorkQueue::<u32>::builder().name("vm"), "WorkQueueBuilder { name: \"vm\"");
    says(queue.drain(Duration::ZERO), "DrainReport { ready: [], processing: [\"taken\"]");
    says(&clock, "ManualClock { elapsed: 0ns");
    says(clock.clock(), "Clock::held at 0ns");
    says(Clock::system(), "Clock::system");
    says(ThreadOptions::new().stack_size(4096), "ThreadOptions { stack_size: Some(4096)");
    says(Exponential::default(), "Exponential { first: 100ms");
    says(FastState::default(), "FastState");
    says(CancellationToken::new(), "CancellationToken { cancelled: false");
    says(CancellationToken::new().on_cancel(|| {}), "OnCancel");
    says(Tally::default(), "Tally");
    says(Term::new("always", ()), "Term { elector: \"always\", lost: false");
    says(Holder::default(), "Holder { name: None");
    says(
        EnqueueRequest::new(EnqueueMethod::EnqueueAfter(SECOND)),
        "EnqueueRequest { method: EnqueueAfter(1s), priority: Normal",
    );
    says(Reasons::POLL | Reasons::user(4), "Reasons(poll, user-4)");
    says(KeyState::Processing(PendingRerun::At(None)), "Processing(At(None))");
    says((EnqueueOutcome::Rerun, DroppedRun::PendingRerun, Shutdown::ServeReady), "(Rerun, PendingRerun, ServeReady)");
}

#[test]
fn everything_of_a_watch_prints_something_short() {
    fn says(value: impl Debug, what: &str) {
        let text = format!("{value:?}");
        assert!(text.contains(what), "{text:?} does not contain {what:?}");
        assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    }
    let push = Watch::<&str, u32>::builder().name("vms").push();
    let watch = push.watch().clone();
    let queue = WorkQueue::<&str>::new();
    says(&watch, "Watch { name: \"vms\", subscriptions: 0, stopped: false, store: Store { len: 0");
    says(&push, "Push { watch: Watch {");
    says(watch.store(), "Store { len: 0, indexes: 0, synced: false }");
    says(watch.store().index(|_, value: &u32| [*value]), "Index { len: 0");
    says(Watch::<u8, u32>::builder(), "WatchBuilder { name: \"watch\"");
    says(Predicate::<u8, u32>::no_deletions(), "Predicate");
    says(
        Subscriber::<&str, u32>::to_itself(&queue).soft(),
        "Subscriber { name: None, request: EnqueueRequest { method: Enqueue,",
    );
    says(
        watch.subscribe(Subscriber::to_itself(&queue)).unwrap(),
        "Running { control: Subscription { name: \"vms-subscription-1\"",
    );
    says(Event::Deleted { key: "vm-1", last: std::sync::Arc::new(1) }, "Deleted(\"vm-1\")");
    says(Event::<u8, u32>::Synced, "Synced");
    says(push.set("vm-1", 1), "Created");
    says(push.replace_all([]), "ChangeCounts { created: 0, updated: 0, deleted: 1, unchanged: 0 }");
    says(PushMessage::Set("vm-1", 1), "Set(\"vm-1\", 1)");
    let (_sender, receiver) = crossbeam_channel::unbounded::<PushMessage<u8, u32>>();
    says(Watch::builder().from_receiver(receiver).unwrap(), "Running { control: Watch {");
    let list = |_cx: &Context| Ok::<_, io::Error>([(1_u8, 2_u32)]);
    says(Poller::new(SECOND, list).watch().unwrap().watch(), "Watch { name: \"poller\"");
}

#[test]
fn a_queue_prints_its_shutdown_and_a_builder_its_hook() {
    let queue = WorkQueue::<u32>::builder().on_ready(|| {});
    assert!(format!("{queue:?}").contains("on_ready: true"));
    let queue = queue.build();
    assert!(format!("{queue:?}").contains("shutdown: None"));
    queue.shutdown(Shutdown::Discard);
    assert!(format!("{queue:?}").contains("shutdown: Some(Discard)"));
}

#[test]
fn error_texts_are_lower_case_without_a_full_stop() {
    fn check<E: Error + Send + Sync + 'static>(error: E) {
        let text = error.to_string();
        assert!(text.starts_with(|first: char| first.is_lowercase()), "{text}");
        assert!(text.ends_with(|last: char| last.is_alphanumeric()), "{text}");
        let boxed: Box<dyn Error + Send + Sync> = error.into();
        assert_eq!(boxed.to_string(), text);
        assert!(boxed.source().is_none());
        assert!(io::Error::other(boxed).to_string() == text);
    }
    check(DequeueError::Empty);
    check(DequeueError::Closed);
    // Equal facts have equal texts.
    assert_ne!(DequeueError::Empty.to_string(), DequeueError::Closed.to_string());
}

#[test]
fn admissions_reasons_and_reports_print_words() {
    fn words<T: Display>(values: &[T], texts: &[&str]) {
        assert_eq!(values.iter().map(ToString::to_string).collect::<Vec<_>>(), texts);
    }
    words(
        &[
            EnqueueOutcome::Queued,
            EnqueueOutcome::Merged,
            EnqueueOutcome::Scheduled,
            EnqueueOutcome::Held,
            EnqueueOutcome::Rerun,
            EnqueueOutcome::Ignored,
            EnqueueOutcome::Closed,
        ],
        &["queued", "merged", "scheduled", "held", "rerun", "ignored", "closed"],
    );
    let named = Reasons::POLL
        | Reasons::EVENT
        | Reasons::RESYNC
        | Reasons::RETRY
        | Reasons::REQUEUE
        | Reasons::MANUAL
        | Reasons::CREATED
        | Reasons::UPDATED
        | Reasons::DELETED
        | Reasons::SECONDARY
        | Reasons::PURGED;
    words(
        &[Reasons::NONE, Reasons::default(), Reasons::user(0), named],
        &[
            "none",
            "none",
            "user-0",
            "poll, event, resync, retry, requeue, manual, created, updated, deleted, secondary, purged",
        ],
    );
    assert!(named.contains(Reasons::NONE) && !named.contains(Reasons::user(1)) && Reasons::NONE.is_empty());

    let (_clock, queue) = held();
    for key in 0..3 {
        queue.enqueue(key);
    }
    queue.enqueue_after(3, SECOND);
    let claim = take(&queue);
    let report = queue.drain(Duration::ZERO);
    assert_eq!(report.to_string(), "not drained: 2 ready, 1 processing, 1 runs dropped");
    claim.done();
    queue.shutdown(Shutdown::Discard);
    assert_eq!(queue.drain(Duration::ZERO).to_string(), "drained, 3 runs dropped");
}

#[test]
fn lanes_and_shutdowns_are_ordered() {
    assert!(Priority::Low < Priority::Normal && Priority::Normal < Priority::High);
    assert_eq!(Priority::default(), Priority::Normal);
    assert!(Shutdown::RunDelayedNow < Shutdown::ServeReady && Shutdown::ServeReady < Shutdown::Discard);
    const { assert!(STARVATION_BOUND > 1) };
}

/// Programs use queues after they have caught a panic.
#[test]
fn a_token_and_a_clock_can_cross_a_caught_panic() {
    let token = CancellationToken::new();
    let clock = ManualClock::new();
    let clones = (token.clone(), clock.clone());
    let caught = catch_unwind(std::panic::AssertUnwindSafe(move || {
        clones.1.advance(SECOND);
        clones.0.cancel();
        panic!("after the cancellation");
    }));
    assert!(caught.is_err() && token.is_cancelled());
    assert_eq!(format!("{:?}", clock.clock()), "Clock::held at 1s");
}
