//! The process that owns a value.

use std::process;

/// The process that created a value.
///
/// A fork copies the value. The copy must leave the locks, threads and sockets of the parent alone, so every value with
/// such a resource keeps its owner, and checks it before it releases or joins anything.
///
/// # Examples
///
/// ```
/// use homeostat::rt::OwnerProcess;
///
/// struct LockFile(OwnerProcess);
///
/// impl Drop for LockFile {
///     fn drop(&mut self) {
///         if self.0.is_current() {
///             // remove the file
///         }
///     }
/// }
/// let lock = LockFile(OwnerProcess::current());
/// assert_eq!(lock.0.check(), Ok(()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OwnerProcess(u32);

impl OwnerProcess {
    /// Returns the calling process.
    #[must_use]
    pub fn current() -> Self {
        Self(process::id())
    }

    /// Returns whether the calling process is the owner. False in a process that was forked from the owner.
    #[must_use]
    pub fn is_current(self) -> bool {
        self.0 == process::id()
    }

    /// Checks that the calling process is the owner.
    ///
    /// # Errors
    ///
    /// Returns a text that names both processes if the calling one was forked from the owner.
    pub fn check(self) -> Result<(), String> {
        let (owner, current) = (self.0, process::id());
        let forked =
            || format!("process {owner} owns it, and process {current}, which was forked from it, has only a copy");
        if owner == current { Ok(()) } else { Err(forked()) }
    }
}
