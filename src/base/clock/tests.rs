//! The common origin of all system clocks, and the time of day of a held clock.

use super::*;

/// A pool relies on this to use the times of its controllers.
#[test]
fn all_system_clocks_count_from_one_instant() {
    let one = Clock::system();
    while one.nanos() == Nanos::ZERO {}
    let other = Clock::system();
    assert!(one.is(&other));
    assert_eq!(one.instant(Nanos::ZERO), other.instant(Nanos::ZERO));
    assert!(one.nanos() <= other.nanos());
}

#[test]
fn a_held_clock_shows_the_time_of_day_that_it_was_given() {
    let noon = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let clock = ManualClock::at(noon);
    clock.advance(Duration::from_secs(1));
    assert_eq!(clock.clock().time_of_day(), noon + Duration::from_secs(1));
    assert_eq!(ManualClock::new().clock().time_of_day(), UNIX_EPOCH);
}
