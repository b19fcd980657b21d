//! A watch that reads a channel: a stop wakes it from an empty channel, and senders are never held up.

use std::thread;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded, unbounded};
use homeostat::watch::PushMessage;
use homeostat::{Event, ManualClock, Subscriber, ThreadOptions, Watch, WorkQueue};
use log::Level;

use crate::stages::logs::Logs;
use crate::stages::stage;
use crate::support::{held, serve};
use crate::until::until;
use homeostat::Running;

type Message = PushMessage<&'static str, u32>;

fn watched(clock: &ManualClock, capacity: usize) -> (Sender<Message>, Running<Watch<&'static str, u32>>) {
    let (sender, receiver) = bounded(capacity);
    let watch = Watch::builder().name("vms").clock(clock.clock()).from_receiver(receiver).unwrap();
    (sender, watch)
}

#[test]
fn each_message_is_applied() {
    let (clock, queue) = held();
    let (sender, mut watch) = watched(&clock, 16);
    let subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    for message in [
        PushMessage::Set("a", 1),
        PushMessage::Set("b", 1),
        PushMessage::Synced,
        PushMessage::Remove("a"),
        PushMessage::ReplaceAll(vec![("c", 1)]),
    ] {
        sender.send(message).unwrap();
    }
    drop(sender);
    watch.join_timeout(Duration::MAX).unwrap();
    assert!(watch.watch().is_stopped());
    subscription.join().unwrap();
    let mut keys = serve(&queue);
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    assert_eq!(watch.watch().store().keys(), ["c"]);
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_stop_wakes_the_watch_from_an_open_empty_channel() {
    let clock = ManualClock::new();
    for how in 0..4 {
        let (sender, mut watch) = watched(&clock, 0);
        // The thread is waiting now: a channel without capacity hands over only to a waiting receiver.
        sender.send(PushMessage::Set("a", 1)).unwrap();
        match how {
            0 => drop(watch),
            1 => watch.shutdown(Duration::MAX).unwrap(),
            2 => {
                watch.stop();
                watch.join().unwrap();
            }
            _ => {
                assert!(watch.join_timeout(Duration::ZERO).is_err());
                watch.stop();
                watch.join_timeout(Duration::MAX).unwrap();
            }
        }
        // The receiver has been dropped.
        assert!(sender.send(PushMessage::Synced).is_err());
    }
    assert_eq!(clock.sleepers(), 0);
}

#[test]
fn a_stopped_watch_leaves_the_rest_of_the_channel_unread() {
    let (sender, receiver) = unbounded::<Message>();
    let rest = receiver.clone();
    let watch = Watch::builder().from_receiver(receiver).unwrap();
    watch.stop();
    sender.send(PushMessage::Set("late", 1)).unwrap();
    let store = watch.watch().store();
    watch.join().unwrap();
    assert!(store.is_empty());
    assert!(rest.len() <= 1);
}

/// A bounded channel, a subscriber that blocks, and a mapping that sends into the channel do not wait for each other.
#[test]
fn a_full_channel_does_not_deadlock_with_buffered_subscribers() {
    let (clock, queue) = held();
    let (sender, watch) = watched(&clock, 1);
    let (runs, director) = stage();
    let blocked = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        runs.enter(());
        event.key().copied()
    });
    let blocked = watch.watch().subscribe(blocked.buffered()).unwrap();
    let back = sender.clone();
    let echo = Subscriber::to(&queue, move |event: &Event<&'static str, u32>| {
        if event.key() == Some(&"ping") {
            for n in 0..100 {
                back.send(PushMessage::Set("pong", n)).unwrap();
            }
        }
        event.key().copied()
    });
    let echo = watch.watch().subscribe(echo.buffered()).unwrap();
    for n in 0..100 {
        sender.send(PushMessage::Set("ping", n)).unwrap();
    }
    sender.send(PushMessage::Synced).unwrap();
    assert!(echo.wait_synced(Duration::MAX));
    assert!(blocked.pending() <= 4 && !blocked.has_synced());
    // The mapping holds a sender, which is dropped with its subscription.
    drop((sender, echo));
    drop(director);
    blocked.join().unwrap();
    watch.join().unwrap();
}

#[test]
fn a_message_that_panics_is_skipped() {
    struct Odd(u32);
    impl From<Odd> for Message {
        fn from(odd: Odd) -> Self {
            assert!(odd.0 % 2 == 1, "an even one");
            PushMessage::Set("a", odd.0)
        }
    }
    let logs = Logs::of("odd");
    let (sender, receiver) = unbounded();
    let mut watch = Watch::builder().name("odd").from_receiver(receiver).unwrap();
    for n in 0..4 {
        sender.send(Odd(n)).unwrap();
    }
    drop(sender);
    watch.join_timeout(Duration::MAX).unwrap();
    assert_eq!(watch.watch().store().get("a").as_deref(), Some(&3));
    assert_eq!(logs.at(Level::Error).len(), 2);
    let report: Vec<_> = logs.at(Level::Info).into_iter().map(|line| line.message).collect();
    let name = logs.at(Level::Info)[0].field("source").to_owned();
    assert_eq!(report, ["the watch starts", "the watch has ended"].map(|report| format!("{name}: {report}")));
}

#[test]
fn a_detached_watch_ends_with_its_channel() {
    let (clock, queue) = held();
    let (sender, watch) = watched(&clock, 1);
    let subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    let handle = watch.watch().clone();
    watch.detach();
    sender.send(PushMessage::Set("a", 1)).unwrap();
    assert_eq!(*queue.dequeue().unwrap(), "a");
    assert!(!handle.is_stopped());
    drop(sender);
    subscription.join().unwrap();
    assert!(handle.is_stopped());
}

#[cfg(target_os = "linux")]
#[test]
fn a_detached_watch_sleeps_while_its_channel_is_idle() {
    let (report, reported) = bounded(1);
    let options =
        ThreadOptions::new().on_start(move |_| report.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap());
    let (sender, receiver) = bounded::<Message>(0);
    let watch = Watch::builder().thread_options(options).from_receiver(receiver).unwrap();
    watch.detach();
    // The thread takes this message, and then waits, after the detach.
    sender.send(PushMessage::Set("a", 1)).unwrap();
    let status = std::path::Path::new("/proc").join(reported.recv().unwrap()).join("status");
    let is_asleep = || std::fs::read_to_string(&status).unwrap().contains("State:\tS");
    // A busy thread may sleep for a moment, at a lock.
    until("the thread sleeps", || (0..1000).all(|_| is_asleep()));
}

#[test]
fn many_threads_may_send_while_it_is_stopped() {
    for _ in 0..20 {
        let (sender, receiver) = bounded(2);
        let watch = Watch::builder().from_receiver(receiver).unwrap();
        let queue = WorkQueue::new();
        let subscription = watch.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
        thread::scope(|scope| {
            for thread in 0..3_u32 {
                let sender = sender.clone();
                scope.spawn(move || {
                    let mut sent = 0_u32;
                    while sender.send(PushMessage::Set(thread, sent)).is_ok() {
                        sent += 1;
                    }
                });
            }
            queue.dequeue().unwrap().done();
            drop(sender);
            watch.shutdown(Duration::MAX).unwrap();
        });
        subscription.join().unwrap();
    }
}

/// A stack larger than any address space.
#[cfg(target_pointer_width = "64")]
#[test]
fn a_thread_that_the_system_refuses_is_an_error() {
    let (_sender, receiver) = unbounded::<Message>();
    let huge = ThreadOptions::new().stack_size(1 << 60);
    let error = Watch::builder().name("huge").thread_options(huge).from_receiver(receiver).unwrap_err();
    assert_eq!(error.to_string(), "the system cannot start thread huge-0");
}
