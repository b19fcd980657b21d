//! The locks of unit tests check their order.

use crate::base::clock::ManualClock;
use crate::base::wait::{AutoResetEvent, Latch};

#[test]
fn locks_that_are_taken_against_the_order_panic() {
    let clock = ManualClock::new().clock();
    let (event, latch) = (AutoResetEvent::new(clock.clone()), Latch::new(clock));
    event.with(|_| latch.with(|_| ()));
    let against = || latch.with(|_| event.with(|_| ()));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(against)).is_err());
    event.with(|_| latch.with(|_| ()));
}
