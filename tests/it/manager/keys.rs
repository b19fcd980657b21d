//! The visit of all known keys of a controller.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use homeostat::queue::KeyState;
use homeostat::{Action, BoxError, Context, Controller, Enqueue, Manager, Priority};

const KEYS: u32 = 5_000;

#[test]
fn each_waiting_key_is_visited_until_the_visitor_breaks() {
    let manager = Manager::builder().build().unwrap();
    let idle = |_: &Context, _: &u32| -> Result<Action, BoxError> { Ok(Action::await_change()) };
    let controller = Controller::builder("vm", idle).build().unwrap();
    let handle = controller.handle();
    manager.add(controller).unwrap();
    let queue = handle.queue();
    for key in 0..KEYS {
        match key % 3 {
            0 => queue.enqueue(key),
            1 => queue.at(Priority::Low).enqueue(key),
            _ => queue.enqueue_after(key, Duration::MAX),
        };
    }
    // The records have gaps.
    for key in (0..KEYS).filter(|key| key % 5 == 0) {
        queue.cancel(&key);
    }
    handle.suspend(KEYS);

    let mut seen = BTreeSet::new();
    manager.visit_keys("vm", |key| {
        seen.insert(key.as_any().downcast_ref::<u32>().copied().unwrap());
        let is_idle = (key.state_reader())() == KeyState::Idle;
        assert_eq!(is_idle, format!("{key:?}") == KEYS.to_string(), "{key:?}");
        // The queue is not locked meanwhile.
        queue.enqueue_if_absent(0);
        ControlFlow::Continue(())
    });
    queue.cancel(&0);
    seen.remove(&0);
    assert!(seen.into_iter().eq((1..=KEYS).filter(|key| key % 5 != 0 || *key == KEYS)));

    let mut calls = 0;
    manager.visit_keys("vm", |_| {
        calls += 1;
        if calls < 1_500 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(calls, 1_500);
    manager.visit_keys("disk", |_| unreachable!("there is no such controller"));
}
