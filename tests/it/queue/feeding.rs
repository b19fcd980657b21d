//! Enqueueing: batches, borrowed keys, wrappers, and the `on_ready` hook.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use homeostat::Priority::{High, Low};
use homeostat::queue::{EnqueueMethod, EnqueueRequest, KeyState, Tally};
use homeostat::{Enqueue, EnqueueOutcome, Reasons, Shutdown, WorkQueue};
use parking_lot::Mutex;

use super::letters::{Bench, Is, secs};

#[test]
fn a_batch_is_tallied() {
    let bench = Bench::new();
    let _claim = bench.bring(Is::No);
    bench.queue.enqueue_after('d', secs(9));
    let batch = |method| bench.queue.request_all(&mut "ckadabc".chars(), EnqueueRequest::new(method));
    let tally = batch(EnqueueMethod::EnqueueIfAbsent);
    assert_eq!((tally.of(EnqueueOutcome::Queued), tally.of(EnqueueOutcome::Ignored), tally.total()), (1, 6, 7));
    let tally = batch(EnqueueMethod::Enqueue);
    assert_eq!(
        (tally.of(EnqueueOutcome::Merged), tally.of(EnqueueOutcome::Held), tally.of(EnqueueOutcome::Rerun)),
        (5, 1, 1)
    );
    let tally = batch(EnqueueMethod::EnqueueNow);
    assert_eq!(
        (tally.of(EnqueueOutcome::Merged), tally.of(EnqueueOutcome::Queued), tally.of(EnqueueOutcome::Rerun)),
        (5, 1, 1)
    );
    let tally = batch(EnqueueMethod::Reschedule(secs(5)));
    assert_eq!((tally.of(EnqueueOutcome::Scheduled), tally.of(EnqueueOutcome::Rerun)), (6, 1));
    assert_eq!(bench.queue.request_all(&mut std::iter::empty(), EnqueueMethod::Enqueue.into()).total(), 0);
}

#[test]
fn a_batch_keeps_its_order_level_and_reasons() {
    let bench = Bench::new();
    bench.queue.at(Low).because(Reasons::POLL).request_all(&mut "xyz".chars(), EnqueueMethod::Enqueue.into());
    bench
        .queue
        .request_all(&mut "mn".chars(), EnqueueRequest::new(EnqueueMethod::Enqueue).at(High).because(Reasons::MANUAL));
    let taken: Vec<_> = bench.claims().iter().map(|claim| (**claim, claim.priority(), claim.reasons())).collect();
    assert_eq!(
        taken,
        [
            ('m', High, Reasons::MANUAL),
            ('n', High, Reasons::MANUAL),
            ('x', Low, Reasons::POLL),
            ('y', Low, Reasons::POLL),
            ('z', Low, Reasons::POLL),
        ]
    );
}

#[test]
fn a_view_that_only_adds_reasons_leaves_each_request_its_level() {
    let bench = Bench::new();
    let view = bench.queue.because(Reasons::MANUAL);
    view.request('a', EnqueueRequest::new(EnqueueMethod::Enqueue).at(High));
    view.request_all(&mut "b".chars(), EnqueueRequest::new(EnqueueMethod::Enqueue).at(Low));
    view.request('c', EnqueueRequest::new(EnqueueMethod::EnqueueNow).at(Low).because(Reasons::POLL));
    let levels: Vec<_> = bench.claims().iter().map(|claim| (**claim, claim.priority())).collect();
    assert_eq!(levels, [('a', High), ('b', Low), ('c', Low)]);
}

/// A section handles at most 1,024 records, and the iterator runs without the lock. It sees the queue grow by that many
/// keys at a time, and may use it.
#[test]
fn the_iterator_of_a_batch_may_use_the_queue() {
    let queue = WorkQueue::new();
    let mut lengths = Vec::new();
    let mut keys = (0..2_500_u32).inspect(|&key| {
        assert_eq!(queue.state(&key), KeyState::Idle);
        lengths.push(queue.len());
        if key == 2_000 {
            queue.enqueue(9_999);
        }
    });
    let tally = queue.request_all(&mut keys, EnqueueMethod::Enqueue.into());
    assert_eq!(tally.of(EnqueueOutcome::Queued), 2_500);
    let expected = |key: usize| match key {
        0..1_024 => 0,
        1_024..2_001 => 1_024,
        2_001..2_048 => 1_025,
        _ => 2_049,
    };
    assert!(lengths.into_iter().enumerate().all(|(key, length)| length == expected(key)));
    assert_eq!(queue.len(), 2_501);
}

#[test]
fn a_queue_may_be_fed_from_itself() {
    let (from, to) = (WorkQueue::new(), WorkQueue::new());
    from.request_all(&mut (0..100), EnqueueMethod::Enqueue.into());
    let mut moved = std::iter::from_fn(|| from.try_dequeue().ok()).map(|claim| {
        let key = *claim;
        claim.done();
        key
    });
    assert_eq!(to.request_all(&mut moved, EnqueueMethod::Enqueue.into()).of(EnqueueOutcome::Queued), 100);
    assert!(from.is_empty());
    let bench = Bench::new();
    bench.queue.request_all(&mut "abc".chars(), EnqueueMethod::Enqueue.into());
    let mut again = std::iter::from_fn(|| bench.queue.try_dequeue().ok()).map(|claim| *claim);
    let tally = bench.queue.request_all(&mut again, EnqueueMethod::Enqueue.into());
    assert_eq!(tally.of(EnqueueOutcome::Held), 3, "claims that were dropped back off");
}

#[test]
fn a_closed_queue_stops_no_iterator_but_takes_nothing() {
    let queue = WorkQueue::new();
    let mut keys = (0..3_000_u32).inspect(|&key| {
        if key == 1_500 {
            queue.shutdown(Shutdown::ServeReady);
        }
    });
    let tally = queue.request_all(&mut keys, EnqueueMethod::Enqueue.into());
    assert_eq!((tally.of(EnqueueOutcome::Queued), tally.of(EnqueueOutcome::Closed)), (1_024, 1_976));
}

#[test]
fn borrowed_keys_are_the_same_keys() {
    let queue = WorkQueue::<String>::new();
    assert_eq!(queue.request_ref("vm-1", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    assert_eq!(queue.enqueue("vm-1".to_owned()), EnqueueOutcome::Merged);
    let event = EnqueueRequest::new(EnqueueMethod::Enqueue).at(High).because(Reasons::EVENT);
    assert_eq!(queue.request_ref("vm-1", event), EnqueueOutcome::Merged);
    assert_eq!(queue.state("vm-1"), KeyState::Ready(High));
    assert!(queue.contains("vm-1") && !queue.contains("vm-2"));
    let claim = queue.try_dequeue().unwrap();
    assert_eq!((claim.as_str(), claim.reasons()), ("vm-1", Reasons::EVENT));
    assert_eq!(queue.cancel("vm-2"), KeyState::Idle);
    assert_eq!(queue.request_ref("vm-1", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Rerun);
    assert_eq!(queue.request_ref("vm-2", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    claim.done();
    assert_eq!(queue.len(), 2);

    let shared = WorkQueue::<Arc<str>>::new();
    assert_eq!(shared.request_ref("vm-1", EnqueueMethod::Enqueue.into()), EnqueueOutcome::Queued);
    assert_eq!(shared.request_ref("vm-1", EnqueueMethod::EnqueueIfAbsent.into()), EnqueueOutcome::Ignored);
}

#[test]
fn views_pass_on_level_and_reasons_and_every_method() {
    let bench = Bench::new();
    let view = bench.queue.at(Low).because(Reasons::POLL).because(Reasons::RESYNC);
    assert_eq!(view.enqueue_if_absent('a'), EnqueueOutcome::Queued);
    assert_eq!(view.enqueue('b'), EnqueueOutcome::Queued);
    assert_eq!(view.enqueue_now('c'), EnqueueOutcome::Queued);
    assert_eq!(view.enqueue_after('d', secs(1)), EnqueueOutcome::Scheduled);
    assert_eq!(view.reschedule('e', secs(2)), EnqueueOutcome::Scheduled);
    assert_eq!(view.enqueue_debounced('f', secs(9), secs(3)), EnqueueOutcome::Scheduled);
    bench.clock.advance(secs(3));
    let claims = bench.claims();
    assert_eq!(claims.iter().map(|claim| **claim).collect::<String>(), "abcdef");
    assert!(claims.iter().all(|claim| claim.priority() == Low && claim.reasons() == Reasons::POLL | Reasons::RESYNC));
    assert_eq!(view.at(High).enqueue('a'), EnqueueOutcome::Rerun);
}

/// Returns a queue with a hook that counts its calls and looks at the queue. The first call counts only if the queue is
/// not empty then.
fn hooked() -> (Bench, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let slot: Arc<Mutex<Option<WorkQueue<char>>>> = Arc::default();
    let (count, of) = (Arc::clone(&calls), Arc::clone(&slot));
    let bench = Bench::with(|settings| {
        settings.on_ready(move || {
            let Some(queue) = of.lock().take() else {
                count.fetch_add(1, Ordering::SeqCst);
                return;
            };
            // Under the lock this would deadlock.
            count.fetch_add(usize::from(!queue.is_empty()), Ordering::SeqCst);
            queue.enqueue('h');
            queue.cancel(&'h');
        })
    });
    *slot.lock() = Some(bench.queue.clone());
    (bench, calls)
}

#[test]
fn the_hook_is_called_when_the_queue_goes_from_empty_to_ready_and_at_no_other_time() {
    let (bench, calls) = hooked();
    let queue = &bench.queue;
    let called = |what: &str, times: usize| assert_eq!(calls.swap(0, Ordering::SeqCst), times, "{what}");
    queue.enqueue('a');
    called("empty to ready, and a hook that uses the queue", 1);
    queue.enqueue('a');
    queue.enqueue('b');
    called("ready already", 0);
    queue.cancel(&'b');
    queue.at(High).enqueue('a');
    called("the only key in line raised", 0);
    queue.reschedule('a', secs(0));
    called("the only key in line rescheduled to now", 0);
    queue.reschedule('a', secs(5));
    called("the line emptied", 0);
    bench.clock.advance(secs(5));
    called("a delay over", 1);
    let claim = bench.take();
    queue.enqueue('a');
    called("a rerun is not in line", 0);
    claim.done();
    called("the claim over", 1);
    let claim = bench.take();
    queue.enqueue('a');
    let claim = claim.done_and_next().unwrap();
    called("taken again under the same lock", 0);
    claim.retry_after(secs(0));
    called("failed and ready at once", 1);
    bench.take().done();
    queue.request_all(&mut "abc".chars(), EnqueueMethod::Enqueue.into());
    called("a batch", 1);
    assert_eq!(bench.line(), "abc");
    queue.request_all(&mut "abc".chars(), EnqueueMethod::EnqueueAfter(secs(5)).into());
    bench.clock.advance(secs(5));
    called("many delays of one instant", 1);
    assert_eq!(bench.line(), "abc");
    queue.enqueue_after('d', secs(5));
    queue.shutdown(Shutdown::RunDelayedNow);
    called("brought into line by a shutdown", 1);
}

#[test]
fn a_hook_that_panics_leaves_the_queue_usable() {
    let bench = Bench::with(|settings| settings.on_ready(|| panic!("a hook's panic")));
    assert_eq!(bench.queue.enqueue('a'), EnqueueOutcome::Queued);
    bench.queue.enqueue_after('b', secs(5));
    bench.clock.advance(secs(5));
    assert_eq!(bench.line(), "ab");
}

#[test]
fn shrinking_forgets_nothing() {
    let bench = Bench::new();
    let claim = bench.bring(Is::Soft).unwrap();
    for key in (0..5_000).filter_map(char::from_u32).filter(|key| !key.is_ascii()) {
        bench.queue.enqueue(key);
        bench.queue.cancel(&key);
    }
    bench.queue.enqueue_after('d', secs(5));
    bench.queue.shrink_to_fit();
    assert_eq!((bench.is('a'), bench.is('k'), bench.is('d')), (Is::Ready, Is::Soft, Is::Delayed(1_005)));
    claim.done();
    bench.clock.advance(secs(5));
    assert_eq!(bench.queue.enqueue('c'), EnqueueOutcome::Queued);
    assert_eq!(bench.line(), "abkdc");
    bench.queue.shrink_to_fit();
    assert_eq!((bench.queue.enqueue('z'), bench.line().as_str()), (EnqueueOutcome::Queued, "z"));
}

#[test]
fn an_iterator_that_has_ended_is_not_asked_again() {
    let queue = WorkQueue::new();
    let mut asked = 0;
    let mut keys = std::iter::from_fn(|| {
        asked += 1;
        (asked != 3).then_some(asked)
    });
    assert_eq!(queue.request_all(&mut keys, EnqueueMethod::Enqueue.into()).total(), 2);
    assert_eq!(asked, 3);
}

type Names<'a> = &'a mut dyn Iterator<Item = &'static str>;

/// The hook is called once for each section that makes a key ready.
#[test]
fn a_queue_and_a_view_take_a_whole_batch_under_one_lock() {
    const REQUEST: EnqueueRequest = EnqueueRequest::new(EnqueueMethod::Enqueue);
    let batches_of = |feed: fn(&WorkQueue<String>, Names) -> Tally| {
        let holds = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&holds);
        let count = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        let queue = WorkQueue::<String>::builder().on_ready(count).build();
        let tally = feed(&queue, &mut ["a", "b", "c", "d"].into_iter());
        assert_eq!((tally.of(EnqueueOutcome::Queued), tally.total()), (4, 4));
        assert_eq!(queue.len(), 4);
        holds.load(Ordering::SeqCst)
    };
    assert_eq!(batches_of(|queue, keys| queue.request_all(&mut keys.map(String::from), REQUEST)), 1);
    assert_eq!(batches_of(|queue, keys| queue.at(Low).request_all(&mut keys.map(String::from), REQUEST)), 1);
}
