//! Two and three writers in every interleaving, on a journal that fails at each of its calls in turn.

use std::sync::Arc;

use loom::thread;

use super::{GroupCommit, Ledger};
use crate::sync::Mutex;
use homeostat::run::BoxError;

/// A ledger of letters.
struct Letters {
    stored: Mutex<Stored>,
    visible: Mutex<String>,
}

struct Stored {
    text: String,
    calls: usize,
    /// The call that fails.
    fails: usize,
}

impl Ledger for Letters {
    type State = String;
    type Change = char;

    fn visible(&self) -> String {
        self.visible.lock().clone()
    }

    fn apply(state: &mut String, changes: &[char]) {
        state.extend(changes);
    }

    fn most_changes(_state: &String) -> usize {
        2
    }

    fn store(&self, changes: &[char]) -> Result<(), BoxError> {
        let mut stored = self.stored.lock();
        stored.calls += 1;
        if stored.calls == stored.fails {
            return Err("the disk is full".into());
        }
        stored.text.extend(changes);
        Ok(())
    }

    fn publish(&self, state: String, changes: &[char]) -> impl FnOnce() {
        assert_eq!(self.stored.lock().text, state, "stored before it is visible");
        let mut visible = self.visible.lock();
        let grown = visible.chars().chain(changes.iter().copied()).collect::<String>();
        assert_eq!(grown, state, "in order, without a gap");
        *visible = state;
        || {}
    }
}

/// Writes some letters, or none to test a refusal. Then checks the answer against the stored and the visible letters.
fn write(writers: &GroupCommit<Letters>, letters: &Letters, new: &str) {
    let (seen, stored) = writers.write(letters, |state| (state.clone(), new.chars().collect()));
    let visible = letters.visible();
    if stored.is_ok() {
        assert!(visible.starts_with(&format!("{seen}{new}")), "{visible} after {seen} and {new}");
    } else {
        assert!(new.is_empty() || !visible.contains(new), "{new} has failed");
    }
}

/// Writes from one thread for each item, and checks the final state. A lost wakeup would be a deadlock.
fn check(news: &'static [&'static str], fails: usize, preemptions: usize) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let stored = Stored { text: String::new(), calls: 0, fails };
        let shared = Arc::new((GroupCommit::new(), Letters { stored: Mutex::new(stored), visible: Mutex::default() }));
        let threads = news[1..].iter().map(|new| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || write(&shared.0, &shared.1, new))
        });
        let threads: Vec<_> = threads.collect();
        write(&shared.0, &shared.1, news[0]);
        for thread in threads {
            thread.join().unwrap();
        }
        let (writers, letters) = &*shared;
        let accepted = writers.accepted.lock();
        assert!(accepted.tip.is_none() && accepted.open.is_none() && accepted.closed.is_none());
        let (visible, stored) = (letters.visible(), letters.stored.lock());
        assert_eq!(stored.text, visible);
        let all: usize = news.iter().map(|new| new.len()).sum();
        assert!(fails > 0 || visible.len() == all);
    });
}

#[test]
fn two_writers_are_stored_or_fail() {
    for fails in 0..=2 {
        check(&["a", "b"], fails, 8);
    }
}

#[test]
fn a_refusal_waits_for_what_it_has_seen() {
    for fails in 0..=1 {
        check(&["", "a"], fails, 8);
        check(&["a", "", "b"], fails, 3);
    }
}

#[test]
fn three_writers_are_stored_or_fail() {
    for fails in 0..=3 {
        check(&["a", "b", "c"], fails, 3);
    }
}

#[test]
fn a_full_batch_lets_a_writer_wait() {
    for fails in 0..=2 {
        check(&["ab", "cd", "e"], fails, 3);
    }
}
