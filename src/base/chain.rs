//! The text of an error with its causes.

use std::error::Error;
use std::fmt;
use std::iter::{once, successors};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::error::{EndError, StartError};
use super::mark::{Echo, RetryAfter, Stated};

/// The most sources of an error that are read.
const MOST_SOURCES: usize = 32;

/// Shows an error with its causes: `Display` on one line for logs, `Debug` with a line for each cause.
///
/// Each public error of this library shows itself this way in `Debug`, because a `main` that returns an error prints
/// its `Debug` text.
///
/// Omits sources that only instruct the run loop, and a cause whose text ends the text so far. Reads at most 32
/// sources. Shows a fixed text if the `Display` of an error panics.
///
/// # Examples
///
/// ```
/// use homeostat::rt::{Chain, debug_with_causes};
/// use homeostat::terminal;
/// use std::error::Error;
/// use std::fmt;
///
/// struct Unreadable(std::num::ParseIntError);
///
/// impl fmt::Display for Unreadable {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         f.write_str("the port is unreadable")
///     }
/// }
///
/// debug_with_causes!(Unreadable);
///
/// impl Error for Unreadable {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         Some(&self.0)
///     }
/// }
///
/// let error = Unreadable("http".parse::<u16>().unwrap_err());
/// assert_eq!(format!("{error:?}"), "the port is unreadable\nCaused by: invalid digit found in string");
///
/// let error = terminal(error);
/// assert_eq!(Chain(&error).to_string(), "the port is unreadable: invalid digit found in string");
/// ```
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl Chain<'_> {
    fn show(&self, f: &mut fmt::Formatter<'_>, separator: &str) -> fmt::Result {
        let mut text = String::new();
        let shown = catch_unwind(AssertUnwindSafe(|| self.add_to(&mut text, separator)));
        let fault = if shown.is_ok() { "" } else { "(an error that panics when shown)" };
        write!(f, "{text}{fault}")
    }

    fn add_to(&self, text: &mut String, separator: &str) {
        let sources = successors(self.0.source(), |&error| error.source()).take(MOST_SOURCES);
        let causes = sources.filter(|error| !(error.is::<Echo>() || error.is::<RetryAfter>() || error.is::<Stated>()));
        for error in once(self.0).chain(causes) {
            let cause = error.to_string();
            if !text.ends_with(&*cause) {
                text.extend([if text.is_empty() { "" } else { separator }, &cause]);
            }
        }
    }
}

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, ": ")
    }
}

impl fmt::Debug for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(f, "\nCaused by: ")
    }
}

/// Implements `Debug` for errors as [`Chain`] does.
#[macro_export]
macro_rules! debug_with_causes {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&$crate::rt::Chain(self), f)
            }
        }
    )+};
}

pub use debug_with_causes;

// In this file, because it uses their files.
debug_with_causes!(StartError, EndError, Echo, RetryAfter, Stated);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An error with this text, and with a chain of sources that have the other texts.
    struct Link(&'static str, Option<Box<Link>>);

    debug_with_causes!(Link);

    impl fmt::Display for Link {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_ref().map(|source| &**source as _)
        }
    }

    fn link(text: &'static str, sources: &[&'static str]) -> Link {
        Link(text, sources.split_first().map(|(text, sources)| Box::new(link(text, sources))))
    }

    #[test]
    fn a_cause_is_a_line_unless_the_text_ends_with_it() {
        for (text, sources, expected) in [
            ("it failed", &[][..], "it failed"),
            ("it failed", &["disk full"], "it failed\nCaused by: disk full"),
            ("it failed", &["cannot write", "disk full"], "it failed\nCaused by: cannot write\nCaused by: disk full"),
            ("it failed: disk full", &["disk full"], "it failed: disk full"),
            ("it failed", &["it failed", ""], "it failed"),
        ] {
            assert_eq!(format!("{:?}", link(text, sources)), expected);
        }
    }

    #[test]
    fn an_endless_chain_of_sources_ends() {
        /// An error whose source is the other one.
        struct Endless(&'static str);

        debug_with_causes!(Endless);

        impl fmt::Display for Endless {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.0)
            }
        }

        impl Error for Endless {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(if self.0 == "ping" { &Endless("pong") } else { &Endless("ping") })
            }
        }

        let text = Chain(&Endless("ping")).to_string();
        assert_eq!(text.matches(": ").count(), MOST_SOURCES);
        assert!(text.starts_with("ping: pong: ping: "), "{text}");
    }
}
