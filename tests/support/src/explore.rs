//! Explores a small world: all states that its steps reach, up to a depth.

use std::collections::HashSet;
use std::fmt::{Debug, Write};
use std::hash::BuildHasher;

use homeostat::queue::FastState;

/// A world with few steps. Two worlds are the same state if their `Debug` texts are equal.
pub(crate) trait World: Clone + Debug {
    type Step: Copy + Debug;

    /// Returns the steps that are possible now.
    fn steps(&self) -> Vec<Self::Step>;

    /// Takes a step. Returns an error if the world then breaks a rule.
    fn take(&mut self, step: Self::Step) -> Result<(), String>;
}

/// The result of an exploration.
#[derive(Debug)]
pub(crate) struct Explored<W> {
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// The states at the greatest depth.
    pub(crate) last: Vec<W>,
}

/// Explores all states within `depth` steps. Fails with the shortest steps to a fault.
pub(crate) fn explore<W: World>(start: W, depth: usize) -> Result<Explored<W>, String> {
    let (hashers, mut text) = ([FastState::default(), FastState::default()], String::new());
    let mut seen = HashSet::from([fingerprint(&hashers, &mut text, &start)]);
    // How each state was reached: the index of the state before, and the step.
    let mut origins = vec![None];
    let mut frontier = vec![(0, start)];
    let mut steps = 0;
    for _ in 0..depth {
        let mut next = Vec::new();
        for (index, world) in frontier {
            for step in world.steps() {
                let mut after = world.clone();
                steps += 1;
                let outcome = after.take(step);
                if let Err(fault) = outcome {
                    let mut path = vec![step];
                    let mut at: usize = index;
                    while let Some((before, step)) = origins[at] {
                        path.push(step);
                        at = before;
                    }
                    path.reverse();
                    return Err(format!("{fault} after {path:?}: {after:#?}"));
                }
                if seen.insert(fingerprint(&hashers, &mut text, &after)) {
                    origins.push(Some((index, step)));
                    next.push((origins.len() - 1, after));
                }
            }
        }
        frontier = next;
    }
    Ok(Explored { states: seen.len(), steps, last: frontier.into_iter().map(|(_, world)| world).collect() })
}

/// Returns 128 bits, so that two of a few million states are as good as never confused.
fn fingerprint(hashers: &[FastState; 2], text: &mut String, world: &impl Debug) -> [u64; 2] {
    text.clear();
    // Writing to a string does not fail.
    let _ = write!(text, "{world:?}");
    hashers.each_ref().map(|hasher| hasher.hash_one(&*text))
}
