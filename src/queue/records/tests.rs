use super::*;
use crate::queue::request::Verb;
use std::cell::Cell;

/// The clock moves between the two looks that the end of a claim takes at it.
#[test]
fn a_cool_down_that_is_over_at_once_leaves_no_record() {
    let mut records = Records::new(Settings { floor: Duration::ZERO, timing: false, tick_shift: 0 });
    let time = Cell::new(0);
    let now = || {
        time.set(time.get() + 10);
        Nanos(time.get())
    };
    let mut effects = Effects::default();
    let request = Verb::Enqueue.into();
    let wanted = Wanted { key: &mut Some('a'), hash: 7, request: &request };
    records.request(wanted, |known, key| known == key, |key| key, &now, &mut effects);
    let Some(front) = records.front() else { unreachable!("a key is in line") };
    let taken = records.take(front, 'a', &now);
    let gone = records.end(taken.index, Ending::CoolDown(Duration::from_nanos(1)), &now, &mut effects);
    assert_eq!(gone, Some('a'));
    assert_eq!(records.find(7, |&key| key == 'a'), None);
    assert_eq!(records.slab.iter().count(), 0);
}
