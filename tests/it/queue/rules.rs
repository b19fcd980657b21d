//! Failures and early runs, the floor, cool-down, debounce and reasons, through the public API.

use std::time::Duration;

use homeostat::EnqueueOutcome::{Held, Ignored, Merged, Queued, Rerun, Scheduled};
use homeostat::queue::EnqueueMethod;
use homeostat::{Enqueue, EnqueueOutcome, Exponential, Reasons};

use super::letters::{Bench, Is, ZERO, secs};

/// Returns a queue that backs off by 10, 20, 40, 80 and then 100 s.
fn backing_off() -> Bench {
    Bench::with(|settings| settings.backoff(Exponential::new(secs(10), secs(100)).jitter(0.0)))
}

#[test]
fn each_failure_in_a_row_counts_and_lengthens_the_backoff() {
    let bench = backing_off();
    bench.queue.enqueue('k');
    for (failures, due) in [(0, 1_010), (1, 1_030), (2, 1_070), (3, 1_150), (4, 1_250), (5, 1_350)] {
        let claim = bench.take();
        assert_eq!(claim.failures(), failures);
        claim.retry();
        assert_eq!(bench.is('k'), Is::Delayed(due));
        bench.clock.advance(bench.queue.next_due().unwrap() - bench.clock.now());
    }
    bench.take().done();
    assert_eq!(bench.claim('k').failures(), 0, "success starts anew");
}

#[test]
fn any_success_resets_the_count_even_if_the_record_stays() {
    let endings: [fn(homeostat::Claim<char>); 4] = [
        |claim| claim.done(),
        |claim| claim.requeue_after(ZERO),
        |claim| claim.cool_down(ZERO),
        |claim| drop(claim.done_and_next()),
    ];
    for end in endings {
        let bench = backing_off();
        bench.claim('k').retry();
        bench.clock.advance(secs(10));
        let claim = bench.take();
        assert_eq!(claim.failures(), 1);
        bench.queue.enqueue('k');
        let other = bench.claim('o');
        end(claim);
        other.done();
        while bench.is('k') != Is::Ready {
            bench.clock.advance(secs(1));
        }
        let claim = bench.take();
        assert!(claim.failures() <= 1, "{}", claim.failures());
    }
}

#[test]
fn a_cancelled_backoff_is_forgotten() {
    let bench = backing_off();
    bench.claim('k').retry();
    bench.queue.cancel(&'k');
    assert_eq!(bench.claim('k').failures(), 0);
}

/// A name, the cause of the next run, and its failures and backoff if it fails too.
type BroughtForward = (&'static str, fn(&Bench), u32, u64);

/// The cause of the next run, and its backoff if it fails too: 10 s after an early run.
#[test]
fn a_failed_early_run_backs_off_by_the_same_step_again() {
    #[rustfmt::skip]
    let cells: [BroughtForward; 10] = [
        ("the time came", |bench| bench.clock.advance(secs(10)), 2, 20),
        ("an enqueue is held", |bench| { bench.ask(EnqueueMethod::Enqueue); bench.clock.advance(secs(10)); }, 2, 20),
        ("enqueue_now", |bench| { bench.ask(EnqueueMethod::EnqueueNow); }, 1, 10),
        ("reschedule to now", |bench| { bench.ask(EnqueueMethod::Reschedule(ZERO)); }, 1, 10),
        ("reschedule to sooner", |bench| { bench.ask(EnqueueMethod::Reschedule(secs(3))); bench.clock.advance(secs(3)); }, 1, 10),
        ("reschedule to later", |bench| { bench.ask(EnqueueMethod::Reschedule(secs(30))); bench.clock.advance(secs(30)); }, 2, 20),
        ("enqueue_now, then reschedule to later", |bench| {
            bench.ask(EnqueueMethod::EnqueueNow); bench.ask(EnqueueMethod::Reschedule(secs(30))); bench.clock.advance(secs(30));
        }, 2, 20),
        ("reschedule to sooner, then to later", |bench| {
            bench.ask(EnqueueMethod::Reschedule(secs(3))); bench.ask(EnqueueMethod::Reschedule(secs(30))); bench.clock.advance(secs(30));
        }, 2, 20),
        ("enqueue_now, then reschedule to sooner", |bench| {
            bench.ask(EnqueueMethod::EnqueueNow); bench.ask(EnqueueMethod::Reschedule(secs(9))); bench.clock.advance(secs(9));
        }, 1, 10),
        ("reschedule to later, then enqueue_now after the backoff", |bench| {
            bench.ask(EnqueueMethod::Reschedule(secs(30))); bench.clock.advance(secs(10)); bench.ask(EnqueueMethod::EnqueueNow);
        }, 2, 20),
    ];
    for (name, bring_forward, failures, backoff) in cells {
        let bench = backing_off();
        bench.claim('k').retry();
        bring_forward(&bench);
        let claim = bench.take();
        assert_eq!(claim.failures(), 1, "{name}");
        claim.retry();
        let due = bench.queue.next_due().unwrap();
        assert_eq!(due - bench.clock.now(), secs(backoff), "{name}");
        bench.clock.advance(secs(backoff));
        assert_eq!(bench.take().failures(), failures, "{name}");
    }
}

#[test]
fn a_rerun_for_now_makes_the_next_run_early() {
    let bench = backing_off();
    let claim = bench.claim('k');
    bench.queue.enqueue_now('k');
    claim.retry();
    let early = bench.take();
    assert_eq!(early.failures(), 1);
    early.retry();
    assert_eq!(bench.is('k'), Is::Delayed(1_010), "the first step again");
    bench.clock.advance(secs(10));
    let claim = bench.take();
    assert_eq!(claim.failures(), 1);
    claim.retry();
    assert_eq!(bench.is('k'), Is::Delayed(1_030), "and then the second");
}

#[test]
fn enqueue_now_waits_for_the_floor_in_a_backoff() {
    #[rustfmt::skip]
    let cells: [(u64, EnqueueMethod, Is, EnqueueOutcome); 6] = [
        (50, EnqueueMethod::EnqueueNow, Is::Delayed(1_020), Scheduled),
        (20, EnqueueMethod::EnqueueNow, Is::Delayed(1_020), Held),
        (15, EnqueueMethod::EnqueueNow, Is::Delayed(1_015), Held),
        (50, EnqueueMethod::Enqueue, Is::Delayed(1_050), Held),
        (50, EnqueueMethod::Reschedule(secs(5)), Is::Delayed(1_005), Scheduled),
        (50, EnqueueMethod::Reschedule(ZERO), Is::Ready, Queued),
    ];
    for (backoff, method, after, outcome) in cells {
        let bench = Bench::with(|settings| settings.floor(secs(20)));
        bench.claim('k').retry_after(secs(backoff));
        assert_eq!((bench.ask(method), bench.is('k')), (outcome, after), "{method:?} in a backoff of {backoff}");
    }
    // Other delays have no floor.
    let bench = Bench::with(|settings| settings.floor(secs(20)));
    bench.claim('k').requeue_after(secs(50));
    assert_eq!((bench.ask(EnqueueMethod::EnqueueNow), bench.is('k')), (Queued, Is::Ready));
    // A stream of events does not delay the run.
    let bench = Bench::with(|settings| settings.floor(secs(20)));
    bench.claim('k').retry_after(secs(50));
    for _ in 0..20 {
        bench.queue.enqueue_now('k');
        bench.clock.advance(secs(1));
    }
    assert_eq!(bench.is('k'), Is::Ready);
}

/// A reconciler that writes its own status, gets an event for it, and fails, runs once per floor.
#[test]
fn a_key_that_fails_and_wakes_itself_cannot_spin() {
    let bench = Bench::with(|settings| settings.floor(secs(20)));
    bench.queue.enqueue('k');
    let mut runs = 0;
    for _ in 0..200 {
        while let Ok(claim) = bench.queue.try_dequeue() {
            runs += 1;
            bench.queue.enqueue_now('k');
            claim.retry_after(secs(50));
        }
        bench.clock.advance(secs(1));
    }
    assert_eq!(runs, 10);
}

#[test]
fn a_cool_down_delays_every_method() {
    #[rustfmt::skip]
    let cells: [(EnqueueMethod, Is, EnqueueOutcome); 9] = [
        (EnqueueMethod::EnqueueIfAbsent, Is::Delayed(1_100), Scheduled),
        (EnqueueMethod::Enqueue, Is::Delayed(1_100), Scheduled),
        (EnqueueMethod::EnqueueNow, Is::Delayed(1_100), Scheduled),
        (EnqueueMethod::EnqueueAfter(ZERO), Is::Delayed(1_100), Scheduled),
        (EnqueueMethod::EnqueueAfter(secs(50)), Is::Delayed(1_100), Scheduled),
        (EnqueueMethod::EnqueueAfter(secs(150)), Is::Delayed(1_150), Scheduled),
        (EnqueueMethod::Reschedule(ZERO), Is::Delayed(1_100), Scheduled),
        (EnqueueMethod::Reschedule(secs(150)), Is::Delayed(1_150), Scheduled),
        (EnqueueMethod::EnqueueDebounced { quiet: secs(50), max_wait: secs(500) }, Is::Delayed(1_100), Scheduled),
    ];
    for (method, after, outcome) in cells {
        let bench = Bench::new();
        bench.claim('k').cool_down(secs(100));
        assert_eq!((bench.is('k'), bench.queue.contains(&'k'), bench.queue.delayed_count()), (Is::Idle, false, 0));
        assert_eq!((bench.ask(method), bench.is('k')), (outcome, after), "{method:?}");
        // No request brings it forward.
        bench.ask(EnqueueMethod::EnqueueNow);
        bench.ask(EnqueueMethod::Reschedule(ZERO));
        assert_eq!(bench.is('k'), Is::Delayed(1_100), "{method:?}");
        bench.queue.cancel(&'k');
        assert_eq!(
            (bench.is('k'), bench.ask(EnqueueMethod::EnqueueNow)),
            (Is::Idle, Scheduled),
            "cancelled and wanted again"
        );
        assert_eq!(bench.is('k'), Is::Delayed(1_100));
        bench.clock.advance(secs(99) + Duration::from_nanos(999_999_999));
        assert_eq!(bench.queue.len(), 0, "{method:?}");
        bench.clock.advance(Duration::from_nanos(1));
        assert_eq!(bench.line(), "k", "{method:?}");
        assert_eq!(bench.ask(EnqueueMethod::Enqueue), Queued, "it is over");
    }
}

#[test]
fn a_cool_down_without_requests_is_forgotten() {
    let bench = Bench::new();
    bench.claim('k').cool_down(secs(100));
    bench.clock.advance(secs(100));
    assert_eq!((bench.ask(EnqueueMethod::Enqueue), bench.line().as_str()), (Queued, "k"));
    bench.claim('k').cool_down(Duration::MAX);
    bench.clock.advance(secs(1_000_000));
    assert_eq!((bench.ask(EnqueueMethod::EnqueueNow), bench.queue.next_due()), (Scheduled, None));
}

fn debounced(bench: &Bench, quiet: u64, max_wait: u64) -> EnqueueOutcome {
    bench.queue.enqueue_debounced('k', secs(quiet), secs(max_wait))
}

#[test]
fn a_burst_is_one_run_once_it_is_quiet() {
    let bench = Bench::new();
    for due in [1_010, 1_013, 1_016] {
        assert_eq!((debounced(&bench, 10, 100), bench.is('k')), (Scheduled, Is::Delayed(due)));
        bench.clock.advance(secs(3));
    }
    bench.clock.advance(secs(7));
    assert_eq!((bench.line().as_str(), bench.is('k')), ("k", Is::Idle));
}

#[test]
fn a_steady_stream_runs_at_the_cap() {
    let bench = Bench::new();
    for second in 0..30 {
        assert_eq!(bench.queue.len(), 0, "after {second} s");
        let outcome = debounced(&bench, 10, 30);
        let expected = if second <= 20 { Scheduled } else { Held };
        assert_eq!(outcome, expected, "after {second} s");
        bench.clock.advance(secs(1));
    }
    assert_eq!(bench.is('k'), Is::Ready, "30 s after the first");
    assert_eq!(debounced(&bench, 10, 30), Merged);
    assert_eq!(bench.line(), "k");
    assert_eq!((debounced(&bench, 10, 30), bench.is('k')), (Scheduled, Is::Delayed(1_040)), "a new burst");
}

#[test]
fn debouncing_extends_no_other_delay() {
    let delays: [fn(&Bench); 5] = [
        |bench| {
            bench.queue.enqueue_after('k', secs(10));
        },
        |bench| {
            bench.queue.reschedule('k', secs(10));
        },
        |bench| bench.claim('k').requeue_after(secs(10)),
        |bench| bench.claim('k').retry_after(secs(10)),
        |bench| {
            debounced(bench, 50, 100);
            bench.queue.reschedule('k', secs(10));
        },
    ];
    for delay in delays {
        let bench = Bench::new();
        delay(&bench);
        bench.clock.advance(secs(5));
        assert_eq!((debounced(&bench, 50, 100), bench.is('k')), (Held, Is::Delayed(1_010)));
    }
}

#[test]
fn a_debounced_rerun_is_pushed_out_up_to_its_cap_and_stays_debounced() {
    let bench = Bench::new();
    let claim = bench.claim('k');
    assert_eq!((debounced(&bench, 10, 30), bench.is('k')), (Rerun, Is::At(1_010)));
    bench.clock.advance(secs(8));
    assert_eq!((debounced(&bench, 10, 30), bench.is('k')), (Rerun, Is::At(1_018)));
    claim.done();
    assert_eq!(bench.is('k'), Is::Delayed(1_018));
    bench.clock.advance(secs(8));
    assert_eq!((debounced(&bench, 25, 99), bench.is('k')), (Scheduled, Is::Delayed(1_030)), "the cap of the first");
}

#[test]
fn an_enqueue_now_during_a_cool_down_is_not_debounced() {
    let bench = Bench::new();
    bench.claim('k').cool_down(secs(10));
    assert_eq!((debounced(&bench, 2, 60), bench.is('k')), (Scheduled, Is::Delayed(1_010)));
    assert_eq!(bench.queue.enqueue_now('k'), Held);
    bench.clock.advance(secs(9));
    assert_eq!((debounced(&bench, 5, 60), bench.is('k')), (Held, Is::Delayed(1_010)));
}

#[test]
fn debouncing_without_a_quiet_time_or_a_wait_is_immediate() {
    for (quiet, max_wait) in [(0, 30), (10, 0)] {
        let bench = Bench::new();
        assert_eq!((debounced(&bench, quiet, max_wait), bench.is('k')), (Queued, Is::Ready));
    }
}

#[test]
fn the_reasons_of_all_requests_for_a_run_are_merged() {
    let bench = Bench::new();
    let because = |reasons| bench.queue.because(reasons);
    assert_eq!(because(Reasons::POLL).enqueue_if_absent('k'), Queued);
    assert_eq!(because(Reasons::RESYNC).enqueue_if_absent('k'), Ignored);
    assert_eq!(because(Reasons::EVENT).because(Reasons::user(4)).enqueue('k'), Merged);
    let claim = bench.take();
    assert_eq!(claim.reasons(), Reasons::POLL | Reasons::EVENT | Reasons::user(4));

    // A new run has its own reasons, which outlive a delay.
    assert_eq!(because(Reasons::MANUAL).enqueue('k'), Rerun);
    claim.requeue_after(secs(10));
    assert_eq!(because(Reasons::UPDATED).enqueue('k'), Held);
    assert_eq!(because(Reasons::POLL).enqueue_if_absent('k'), Ignored);
    bench.clock.advance(secs(10));
    let claim = bench.take();
    assert_eq!(claim.reasons(), Reasons::MANUAL | Reasons::UPDATED | Reasons::REQUEUE);

    claim.retry_after(secs(10));
    assert_eq!(because(Reasons::DELETED).reschedule('k', secs(5)), Scheduled);
    assert_eq!(because(Reasons::CREATED).enqueue_now('k'), Queued);
    let claim = bench.take();
    assert_eq!(claim.reasons(), Reasons::RETRY | Reasons::DELETED | Reasons::CREATED);

    // A cancel removes the reasons.
    because(Reasons::SECONDARY).enqueue('k');
    bench.queue.cancel(&'k');
    because(Reasons::POLL).enqueue('k');
    claim.done();
    assert_eq!(bench.take().reasons(), Reasons::POLL);
}

#[test]
fn a_claim_knows_how_long_its_key_was_ready() {
    let bench = Bench::with(|settings| settings.timing(true));
    bench.queue.enqueue_after('k', secs(10));
    bench.clock.advance(secs(14));
    bench.queue.at(homeostat::Priority::High).enqueue('k');
    bench.clock.advance(secs(1));
    assert_eq!(bench.take().queued_for(), Some(secs(5)), "counted since it came into line, in whatever level");
    assert_eq!(Bench::new().claim('k').queued_for(), None);
}
