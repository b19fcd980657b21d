//! The keys of a controller that a page looks at.

use std::ops::ControlFlow;

use homeostat::manager::Manager;
use homeostat::run::GateKey;

/// The largest number of keys of a controller that a page looks at.
pub(super) const MOST_VISITED: usize = 100_000;

/// Calls `visit` for keys of a controller that have failed, are suspended, wait or run, until it breaks. Returns false
/// if the controller has more keys than a page looks at.
pub(super) fn visit_keys(
    manager: &Manager,
    controller: &str,
    mut visit: impl FnMut(&dyn GateKey) -> ControlFlow<()>,
) -> bool {
    let mut left = MOST_VISITED + 1;
    manager.visit_keys(controller, |key| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { visit(key) }
    });
    left > 0
}
