//! Lets tests wait for other threads.

/// Waits until an expression is true, `Some` or `Ok`.
///
/// After a minute, the test fails with the text of the expression.
macro_rules! until {
    ($answer:expr) => {
        crate::until::until(stringify!($answer), || $answer)
    };
}

pub(crate) use until;
