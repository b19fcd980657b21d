//! A hint for a program that needs the feature `signals`.

use super::Manager;
use crate::base::error::EndError;

/// A manager that can wait for signals.
///
/// ```compile_fail,E0277
/// homeostat::Manager::builder().build().unwrap().run_until_signal();
/// ```
#[diagnostic::on_unimplemented(
    message = "`run_until_signal` needs Unix and the feature `signals` of homeostat",
    note = "add the feature with `cargo add homeostat --features signals`"
)]
pub trait HasSignals {}

impl Manager {
    /// Needs Unix and the feature `signals`, which this build lacks.
    #[expect(clippy::missing_errors_doc, reason = "no program can call it")]
    pub fn run_until_signal(&self) -> Result<(), EndError>
    where
        for<'a> Self: HasSignals,
    {
        unreachable!("no manager has signals in this build")
    }
}
