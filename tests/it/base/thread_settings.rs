//! Thread options reach every thread that a component starts. The start hook marks each thread with the owner of its
//! options.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, unbounded};
use homeostat::controller::ControllerBuilder;
use homeostat::watch::Push;
use homeostat::{
    Action, BoxError, Component, Context, Controller, Manager, Poller, Subscriber, ThreadOptions, Watch, WorkQueue,
    WorkerPool,
};

use crate::stages::SECOND;

thread_local! {
    /// The owner of this thread's options.
    static MADE_BY: Cell<&'static str> = const { Cell::new("nobody") };
}

type Key = &'static str;
/// The name of some code that ran, and the owner of its thread's options.
type Said = (&'static str, &'static str);

/// Returns options that mark their threads, and report the names of these threads.
fn options(owner: &'static str, names: &Sender<String>) -> ThreadOptions {
    let names = names.clone();
    ThreadOptions::new().on_start(move |name| {
        MADE_BY.set(owner);
        let _ = names.send(name.to_owned());
    })
}

fn say(report: &Sender<Said>, who: &'static str) {
    let _ = report.send((who, MADE_BY.get()));
}

fn sorted<T: Ord>(received: &Receiver<T>, count: usize) -> Vec<T> {
    let mut all: Vec<_> = received.iter().take(count).collect();
    all.sort_unstable();
    all
}

type Reconcile = Box<dyn Fn(&Context, &Key) -> Result<Action, BoxError> + Send + Sync>;

/// Returns a controller with a poll, a poller with settings and a watch. Each of them reports its thread's owner
/// once, and the reconciler too.
fn controller(report: &Sender<Said>, watch: &Watch<Key, u32>) -> ControllerBuilder<Key> {
    let lists = |who: &'static str| {
        let report = report.clone();
        move |_: &Context| {
            say(&report, who);
            Ok::<_, Infallible>([who])
        }
    };
    let (maps, runs) = (report.clone(), report.clone());
    let reconcile = move |_: &Context, key: &Key| {
        if *key == "poll" {
            say(&runs, "run");
        }
        Ok(Action::await_change())
    };
    Controller::builder("vm", Box::new(reconcile) as Reconcile)
        .poll(3600 * SECOND, lists("poll"))
        .poller(Poller::new(3600 * SECOND, lists("poller")))
        .subscribe(watch, move |queue| {
            Subscriber::to(queue, move |event| {
                if event.key().is_some() {
                    say(&maps, "mapping");
                }
                event.key().copied()
            })
            .buffered()
        })
}

/// Two pollers, a subscription, and a pool: one worker and the timer thread.
const THREADS: usize = 2 + 1 + 2;

#[test]
fn thread_options_of_a_controller_reach_its_sources() {
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let disks = Watch::push();
    disks.replace_all([("disk-1", 1)]);
    let ((report, reported), (named, heard_names)) = (unbounded(), unbounded());
    let vms = controller(&report, disks.watch()).own_threads(1).thread_options(options("vm", &named));
    let running = vms.build().unwrap().start(&pool).unwrap();
    assert_eq!(sorted(&reported, 4), [("mapping", "vm"), ("poll", "vm"), ("poller", "vm"), ("run", "vm")]);
    assert_eq!(sorted(&heard_names, THREADS).len(), THREADS);
    running.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn a_source_with_thread_options_of_its_own_keeps_them() {
    let pool = WorkerPool::builder().threads(1).start().unwrap();
    let disks = Watch::<Key, u32>::push();
    disks.replace_all([("disk-1", 1)]);
    let ((report, reported), (named, _names)) = (unbounded(), unbounded());
    let (lists, maps) = (report.clone(), report);
    let list = move |_: &Context| {
        say(&lists, "poller");
        Ok::<_, Infallible>(["vm-1"])
    };
    let subscriber = options("subscriber", &named);
    let running = Controller::builder("vm", |_: &Context, _: &Key| Ok::<_, BoxError>(Action::await_change()))
        .thread_options(options("vm", &named))
        .poller(Poller::new(3600 * SECOND, list).thread_options(options("poller", &named)))
        .subscribe(disks.watch(), move |queue| {
            let mapping = Subscriber::to(queue, move |event| {
                if event.key().is_some() {
                    say(&maps, "mapping");
                }
                event.key().copied()
            });
            mapping.buffered().thread_options(subscriber)
        })
        .build()
        .unwrap()
        .start(&pool)
        .unwrap();
    assert_eq!(sorted(&reported, 2), [("mapping", "subscriber"), ("poller", "poller")]);
    running.shutdown(Duration::ZERO).unwrap();
    pool.shutdown(Duration::ZERO).unwrap();
}

#[test]
fn thread_options_of_a_manager_reach_components_without_their_own() {
    let ((report, reported), (named, heard_names)) = (unbounded(), unbounded());
    let manager = Manager::builder().threads(1).thread_options(options("manager", &named)).build().unwrap();
    let disks = Watch::push();
    disks.replace_all([("disk-1", 1)]);
    let vms = controller(&report, disks.watch()).own_threads(1).build().unwrap();
    manager.add(vms).unwrap();
    let lists = report;
    let list = move |_: &Context| {
        say(&lists, "component");
        Ok::<_, Infallible>(["vm-1"])
    };
    manager.add(Component::poller("component", Poller::new(3600 * SECOND, list), &WorkQueue::new())).unwrap();
    let running = manager.start().unwrap();
    let everybody = ["component", "mapping", "poll", "poller", "run"].map(|who| (who, "manager"));
    assert_eq!(sorted(&reported, 5), everybody);
    // These are the shared pool and its timer, the driver, the component, and the controller's threads.
    let threads = sorted(&heard_names, 4 + THREADS);
    assert!(threads.iter().any(|name| name == "vm-timer"), "{threads:?}");
    manager.stop();
    running.join().unwrap();
}

/// Twenty controllers with two watches each need no thread of their own, whether they share the watches or not.
#[test]
fn controllers_of_a_manager_share_all_its_threads() {
    const CONTROLLERS: u32 = 20;
    for shared in [true, false] {
        let (ran, runs) = unbounded();
        let (starts, started) = unbounded();
        let manager =
            Manager::builder().name("m").threads(2).thread_options(options("manager", &starts)).build().unwrap();
        let pair = [Watch::push(), Watch::push()];
        let mut pushes = vec![pair.clone()];
        for controller in 0..CONTROLLERS {
            let watches = if shared { pair.clone() } else { [Watch::push(), Watch::push()] };
            let ran = ran.clone();
            let reconcile = move |_: &Context, key: &u32| -> Result<Action, BoxError> {
                ran.send((controller, *key))?;
                Ok(Action::requeue_after(Duration::from_millis(1)))
            };
            let builder = Controller::builder(format!("c{controller}"), reconcile).resync(3600 * SECOND);
            let subscribed = watches.iter().fold(builder, |builder, watch: &Push<u32, u32>| {
                builder.watch(watch.watch(), |event| event.key().copied())
            });
            manager.add(subscribed.build().unwrap()).unwrap();
            pushes.push(watches);
        }
        let running = manager.start().unwrap();
        for (key, push) in pushes.iter().flat_map(|pair| (0..).zip(pair)) {
            push.replace_all([(key, 1)]);
        }
        // Each key runs a second time after its delay.
        let mut left: BTreeMap<_, u32> =
            (0..CONTROLLERS).flat_map(|controller| [((controller, 0), 2), ((controller, 1), 2)]).collect();
        while !left.is_empty() {
            let run = runs.recv().unwrap();
            if let Entry::Occupied(mut times) = left.entry(run) {
                *times.get_mut() -= 1;
                if *times.get() == 0 {
                    times.remove();
                }
            }
        }
        running.shutdown(SECOND).unwrap();
        let mut threads: Vec<_> = started.try_iter().collect();
        threads.sort_unstable();
        let expected = ["driver", "pool-0", "pool-1", "pool-timer"];
        assert_eq!(threads, expected.map(|role| format!("m-{role}")), "shared watches: {shared}");
    }
}

#[test]
fn a_controller_with_thread_options_of_its_own_keeps_them_in_a_manager() {
    let ((report, reported), (named, _names)) = (unbounded(), unbounded());
    let manager = Manager::builder().threads(1).thread_options(options("manager", &named)).build().unwrap();
    let disks = Watch::push();
    disks.replace_all([("disk-1", 1)]);
    let vms = controller(&report, disks.watch()).thread_options(options("vm", &named)).build().unwrap();
    manager.add(vms).unwrap();
    let running = manager.start().unwrap();
    let expected = [("mapping", "vm"), ("poll", "vm"), ("poller", "vm"), ("run", "manager")];
    assert_eq!(sorted(&reported, 4), expected);
    manager.stop();
    running.join().unwrap();
}
