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
    records.admit('a', 7, Verb::Enqueue.into(), &now, &mut effects);
    let Ok(Some(taken)) = records.take(&now) else { unreachable!("a key is in line") };
    let gone = records.end(taken.index, Ending::CoolDown(Duration::from_nanos(1)), &now, &mut effects);
    assert_eq!(gone, Some('a'));
    assert_eq!(records.find(7, |&key| key == 'a'), None);
    assert_eq!(records.slab.iter().count(), 0);
}
