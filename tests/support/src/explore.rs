//! Explores a small world: all states that its steps reach, up to a depth.

use std::collections::HashSet;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

/// A world with few steps. Two worlds are the same state if their `Debug` texts are equal.
pub trait World: Clone + Debug {
    /// A step that changes the world.
    type Step: Copy + Debug;

    /// Returns the steps that are possible now.
    fn steps(&self) -> Vec<Self::Step>;

    /// Takes a step.
    ///
    /// # Errors
    ///
    /// Returns an error if the world then breaks a rule.
    fn take(&mut self, step: Self::Step) -> Result<(), String>;
}

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored<W> {
    /// The number of different states.
    pub states: usize,
    /// The number of steps from all states.
    pub steps: usize,
    /// The number of steps from the start to the states in `last`, or to the most distant ones.
    pub depth: usize,
    /// The states at the greatest depth. Empty if no step leads to a further state before this depth.
    pub last: Vec<W>,
}

/// Explores all states within `depth` steps.
///
/// # Errors
///
/// Returns the first fault, with the shortest steps to it.
pub fn explore<W: World>(start: W, depth: usize) -> Result<Explored<W>, String> {
    let mut text = String::new();
    let mut seen = HashSet::from([fingerprint(&mut text, &start)]);
    // How each state was reached: the index of the state before, and the step.
    let mut origins = vec![None];
    let mut frontier = vec![(0, start)];
    let (mut steps, mut reached) = (0, 0);
    while reached < depth && !frontier.is_empty() {
        reached += 1;
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
                if seen.insert(fingerprint(&mut text, &after)) {
                    origins.push(Some((index, step)));
                    next.push((origins.len() - 1, after));
                }
            }
        }
        frontier = next;
    }
    Ok(Explored {
        states: seen.len(),
        steps,
        depth: reached,
        last: frontier.into_iter().map(|(_, world)| world).collect(),
    })
}

/// Explores all states within `depth` steps, and continues each one at the greatest depth with `calm`, without faults.
///
/// # Panics
///
/// Panics at the first fault.
pub fn explore_and_calm<W: World>(start: W, depth: usize, calm: impl Fn(W) -> Result<(), String>) -> Explored<W> {
    let explored = explore(start, depth).unwrap_or_else(|fault| panic!("{fault}"));
    for world in &explored.last {
        calm(world.clone()).unwrap_or_else(|fault| panic!("{fault}"));
    }
    explored
}

/// Returns 128 bits, so that two of a few million states are as good as never confused.
///
/// It is not generic, so that it is compiled in this crate, with optimisation.
fn fingerprint(text: &mut String, world: &dyn Debug) -> [u64; 2] {
    text.clear();
    // Writing to a string does not fail.
    let _ = write!(text, "{world:?}");
    [0, 1].map(|number: u64| {
        let mut hasher = DefaultHasher::new();
        (number, &*text).hash(&mut hasher);
        hasher.finish()
    })
}
