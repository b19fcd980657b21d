//! The exit code of a program, and its error message.

use std::error::Error;
use std::io::{self, Write};
use std::iter;
use std::process::ExitCode;

use homeostat::BoxError;

/// Returns the exit code of a program. Prints its error in one line, with the causes.
pub(crate) fn exit_code(ended: Result<(), BoxError>) -> ExitCode {
    let Err(error) = ended else { return ExitCode::SUCCESS };
    // The program must end even if nobody can read the message.
    let _ = writeln!(io::stderr(), "error: {}", with_causes(&*error));
    ExitCode::FAILURE
}

/// Returns the message of an error, followed by the messages of its causes. Skips a cause that the text already
/// contains.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    iter::successors(error.source(), |&cause| cause.source()).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}
