//! The cases of controller-runtime's `pkg/handler/eventhandler_test.go` (Apache-2.0) that apply without Kubernetes,
//! rewritten: the keys that each kind of event enqueues. Also the guarantees of client-go's shared informers for
//! their listeners (`tools/cache/shared_informer_test.go`, Apache-2.0).

use homeostat::watch::{Push, Subscription};
use homeostat::{Action, BoxError, Context, Enqueue, Event, Running, Subscriber, Watch, WorkQueue, Workers};

use crate::support::{SECOND, held_builder, serve};
use crate::until::until;

#[derive(Clone, Debug, PartialEq)]
struct Pod {
    owners: Vec<(&'static str, &'static str)>,
    revision: u32,
}

fn pod(owners: &[(&'static str, &'static str)], revision: u32) -> Pod {
    Pod { owners: owners.to_vec(), revision }
}

type Pods = Push<&'static str, Pod>;

struct Stage {
    queue: WorkQueue<String>,
    pods: Pods,
    _subscription: Running<Subscription>,
}

impl Stage {
    fn new(subscriber: impl FnOnce(&WorkQueue<String>) -> Subscriber<&'static str, Pod>) -> Self {
        let (clock, builder) = held_builder();
        let queue = builder.build();
        let pods = Watch::builder().clock(clock.clock()).push();
        pods.synced();
        let subscription = pods.watch().subscribe(subscriber(&queue)).unwrap();
        Self { queue, pods, _subscription: subscription }
    }

    /// Returns the keys that are ready after `change`.
    fn after<R>(&self, change: impl FnOnce(&Pods) -> R) -> Vec<String> {
        change(&self.pods);
        serve(&self.queue)
    }
}

/// `EnqueueRequestForObject`: each kind of event enqueues the name of its object.
#[test]
fn an_object_is_enqueued_by_its_own_name() {
    let stage = Stage::new(|queue| {
        Subscriber::to(queue, |event: &Event<&'static str, Pod>| event.key().map(|key| (*key).to_owned()))
    });
    assert_eq!(stage.after(|pods| pods.set("baz", pod(&[], 1))), ["baz"]);
    assert_eq!(stage.after(|pods| pods.set("baz", pod(&[], 2))), ["baz"]);
    assert_eq!(stage.after(|pods| pods.watch().resync()), ["baz"]);
    assert_eq!(stage.after(|pods| pods.remove("baz")), ["baz"]);
    assert!(stage.after(|pods| pods.remove("baz")).is_empty());
}

/// `EnqueueRequestsFromMapFunc`: a mapping returns any number of keys. An update enqueues the keys of both objects.
#[test]
fn a_function_finds_the_keys_of_both_objects_of_an_update() {
    let stage = Stage::new(|queue| {
        Subscriber::to_owner(queue, |key: &&str, pod: &Pod| {
            ["foo", "biz"].map(|prefix| format!("{prefix}/{key}-{}", pod.revision))
        })
    });
    assert_eq!(stage.after(|pods| pods.set("baz", pod(&[], 1))), ["foo/baz-1", "biz/baz-1"]);
    assert_eq!(stage.after(|pods| pods.set("baz", pod(&[], 2))), ["foo/baz-1", "biz/baz-1", "foo/baz-2", "biz/baz-2"]);
    assert_eq!(stage.after(|pods| pods.watch().resync()), ["foo/baz-2", "biz/baz-2"]);
    assert_eq!(stage.after(|pods| pods.remove("baz")), ["foo/baz-2", "biz/baz-2"]);
}

/// `EnqueueRequestForOwner`: each kind of event enqueues the owners of one kind. An update enqueues the owners of the
/// old and the new object, each once.
#[test]
fn owners_of_one_kind_are_enqueued_once_each() {
    let stage = Stage::new(|queue| {
        Subscriber::to_owner(queue, |_: &&str, pod: &Pod| {
            let owners = pod.owners.clone().into_iter();
            owners.filter(|(kind, _)| *kind == "ReplicaSet").map(|(_, name)| name.to_owned())
        })
    });
    let set = |owners: &[(&'static str, &'static str)]| {
        let new = pod(owners, 1);
        stage.after(|pods| pods.set("baz", new))
    };
    assert!(set(&[]).is_empty(), "nobody owns it");
    assert!(set(&[("Deployment", "foo1"), ("Job", "foo2")]).is_empty(), "nobody of that kind");
    assert_eq!(set(&[("ReplicaSet", "foo1")]), ["foo1"]);
    assert_eq!(set(&[("ReplicaSet", "foo2")]), ["foo1", "foo2"]);
    assert_eq!(set(&[("ReplicaSet", "foo2"), ("Job", "other")]), ["foo2"], "of both, once");
    assert_eq!(set(&[("ReplicaSet", "foo2"), ("ReplicaSet", "foo3"), ("ReplicaSet", "foo2")]), ["foo2", "foo3"]);
    assert_eq!(stage.after(|pods| pods.watch().resync()), ["foo2", "foo3"]);
    assert_eq!(stage.after(|pods| pods.remove("baz")), ["foo2", "foo3"]);
}

/// `WithLowPriorityWhenUnchanged` and the initial list: a key that has just changed runs first.
#[test]
fn a_change_runs_before_the_initial_list_and_a_resync() {
    let (clock, builder) = held_builder();
    let queue = builder.build();
    let pods = Watch::<String, u32>::builder().clock(clock.clock()).push();
    pods.replace_all((0..3).map(|n| (format!("old-{n}"), 1)));
    let _subscription = pods.watch().subscribe(Subscriber::to_itself(&queue)).unwrap();
    pods.set("new".to_owned(), 1);
    assert_eq!(serve(&queue)[0], "new");
    pods.watch().resync();
    pods.set("newer".to_owned(), 1);
    assert_eq!(serve(&queue)[0], "newer");
}

/// client-go, `TestListenerResyncPeriods` and similar: a new listener gets all existing items as additions, a removed
/// one gets no more events, and the others are unaffected.
#[test]
fn listeners_are_added_and_removed_while_it_runs() {
    let (clock, builder) = held_builder::<&str>();
    let first = builder.build();
    let second = WorkQueue::new();
    let pods = Watch::<&str, u32>::builder().clock(clock.clock()).push();
    pods.replace_all([("pod1", 1), ("pod2", 1)]);
    let one = pods.watch().subscribe(Subscriber::to_itself(&first)).unwrap();
    serve(&first);
    let other = pods.watch().subscribe(Subscriber::to_itself(&second)).unwrap();
    let mut keys = serve(&second);
    keys.sort_unstable();
    assert_eq!(keys, ["pod1", "pod2"]);
    assert!(first.is_empty());
    drop(one);
    pods.set("pod3", 1);
    assert_eq!((serve(&first), serve(&second)), (vec![], vec!["pod3"]));
    assert_eq!(other.delivered(), 4);
}

/// controller-runtime, "Own status write defeats backoff" (kubernetes-sigs/controller-runtime#1720): a soft
/// subscription leaves the backoff of a failing key alone, although the reconciler changes the watched value.
#[test]
fn a_reconciler_that_changes_its_watched_value_and_fails_backs_off() {
    let (clock, builder) = held_builder::<&str>();
    let queue = builder.build();
    let push = Watch::<&str, u32>::builder().clock(clock.clock()).push();
    push.synced();
    let _subscription = push.watch().subscribe(Subscriber::to_itself(&queue).soft()).unwrap();
    let back = push.clone();
    let failing = move |cx: &Context, key: &&'static str| -> Result<Action, BoxError> {
        back.set(key, cx.attempt());
        Err("not yet".into())
    };
    let backoff = homeostat::Exponential::new(SECOND, 1000 * SECOND).jitter(0.0);
    let workers = Workers::new(failing).retry(backoff).start(&queue).unwrap();
    queue.enqueue("vm-1");
    // Waits for the end of the first run.
    until("the first run has ended", || workers.metrics().runs() >= 1);
    for tries in 1..6_u32 {
        until("the key backs off", || queue.metrics().delayed > 0);
        clock.wait_for_sleepers(1);
        assert_eq!(push.watch().store().get("vm-1").as_deref(), Some(&tries));
        clock.advance(2_u32.pow(tries - 1) * SECOND);
        until("the next run changes the value", || push.watch().store().get("vm-1").as_deref() != Some(&tries));
    }
    workers.shutdown(SECOND).unwrap();
}
