//! Keys with a `Drop` that calls into their queue. No key is dropped under the lock, not even while a panic unwinds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use homeostat::queue::{EnqueueMethod, EnqueueRequest};
use homeostat::{Enqueue, Shutdown, WorkQueue};

use super::{Key, Op, Traps, on_the_timer, panics};
use crate::support::{MS, SECOND, counts, held, held_builder, serve, take};

/// Makes each dropped key call into the queue. Returns the number of such drops.
fn call_back(traps: &Traps, queue: &WorkQueue<Key>) -> Arc<AtomicUsize> {
    let calls = Arc::new(AtomicUsize::new(0));
    let (counter, queue) = (Arc::clone(&calls), queue.clone());
    *traps.on_drop.lock() = Some(Arc::new(move |_| {
        let [ready, delayed, processing] = counts(&queue);
        counter.fetch_add(1, Ordering::Relaxed);
        assert!(ready + delayed + processing < 100);
    }));
    calls
}

#[test]
fn a_drop_may_call_the_queue_wherever_a_key_leaves() {
    let traps = Traps::new();
    let (clock, queue) = held();
    let calls = call_back(&traps, &queue);
    let mut seen = 0;
    let mut more = |place| {
        let now = calls.load(Ordering::Relaxed);
        assert!(now > seen, "{place} dropped nothing");
        seen = now;
    };
    queue.enqueue(traps.key(1));
    queue.enqueue(traps.key(1));
    more("a duplicate");
    queue.request_ref(&traps.probe(1), EnqueueMethod::Enqueue.into());
    queue.request_all(&mut traps.keys(1..4), EnqueueRequest::new(EnqueueMethod::Enqueue));
    more("a batch");
    take(&queue).done();
    more("done");
    let next = take(&queue).done_and_next().unwrap();
    more("done_and_next");
    next.requeue_after(SECOND);
    more("requeue_after");
    queue.cancel(&traps.probe(3));
    more("cancel");
    queue.enqueue(traps.key(4));
    take(&queue).retry();
    more("retry");
    queue.enqueue_now(traps.key(4));
    drop(take(&queue));
    more("the drop of a claim");
    queue.enqueue(traps.key(5));
    take(&queue).cool_down(MS);
    more("cool_down");
    clock.advance(MS);
    more("the end of a cool-down");
    queue.enqueue(traps.key(6));
    take(&queue).cool_down(SECOND);
    queue.shutdown(Shutdown::ServeReady);
    more("shutdown");
    queue.enqueue(traps.key(7));
    more("a closed queue");
    drop(queue.drain(Duration::ZERO));
    more("a report");
    traps.close(queue);
}

#[test]
fn a_drop_may_call_the_queue_on_the_thread_of_its_timer() {
    let traps = Traps::new();
    let queue = WorkQueue::new();
    let feeder = (queue.clone(), Arc::downgrade(&traps));
    *traps.on_drop.lock() = Some(Arc::new(move |id| {
        if let (1, true, Some(traps)) = (id, on_the_timer(), feeder.1.upgrade()) {
            feeder.0.enqueue(traps.key(2));
        }
    }));
    queue.enqueue(traps.key(1));
    take(&queue).cool_down(MS);
    let claim = queue.dequeue_timeout(20 * SECOND).unwrap();
    assert_eq!(claim.0.id, 2);
    claim.done();
    traps.close(queue);
}

#[test]
fn a_drop_may_call_the_queue_while_a_panic_of_another_key_unwinds() {
    let traps = Traps::new();
    let (clock, builder) = held_builder();
    let queue = builder.build();
    for key in traps.keys(1..4) {
        queue.enqueue(key);
    }
    let calls = call_back(&traps, &queue);

    // The next key cannot be cloned, and the ended key drops.
    let claim = take(&queue);
    traps.arm(Op::Clone, 2);
    assert_eq!(panics(|| claim.done_and_next()), "Clone of 2");
    assert_eq!(calls.swap(0, Ordering::Relaxed), 2);
    traps.disarm();

    // A batch with a third key that cannot be compared.
    traps.arm(Op::Eq, 3);
    assert_eq!(
        panics(|| queue.request_all(&mut traps.keys(1..6), EnqueueRequest::new(EnqueueMethod::Enqueue))),
        "Eq of 3"
    );
    assert_eq!(calls.swap(0, Ordering::Relaxed), 4);
    traps.disarm();

    // A report and a shutdown that can clone one key of two.
    clock.advance(SECOND);
    let claims = [take(&queue), take(&queue)];
    queue.enqueue_after(traps.key(claims[0].0.id), SECOND);
    queue.enqueue_after(traps.key(claims[1].0.id), SECOND);
    calls.store(0, Ordering::Relaxed);
    traps.arm(Op::Clone, claims[1].0.id);
    let second = claims[1].0.id;
    assert_eq!(panics(|| queue.shutdown(Shutdown::ServeReady)), format!("Clone of {second}"));
    assert_eq!(panics(|| queue.drain(Duration::ZERO)), format!("Clone of {second}"));
    assert!(calls.load(Ordering::Relaxed) > 0);
    traps.disarm();
    for claim in claims {
        claim.done();
    }
    serve(&queue);
    assert!(serve(&queue).is_empty());
    assert_eq!(counts(&queue), [0; 3]);
    traps.close(queue);
}
