//! Fencing numbers in objects.

use super::term::found_later;
use crate::ObjectMeta;
use homeostat::run::{Cancelled, Fence};

/// The annotation in which [`ObjectMeta::mark_term`] writes the fencing number.
pub const FENCE_ANNOTATION: &str = "homeostat.dev/fence";

impl ObjectMeta {
    /// Marks the object with the number of the term of `fence`. Read the object just before, and update it in the
    /// version that was read.
    ///
    /// If an earlier leader writes after a later one, its write is refused: either the object's version has changed
    /// since the earlier leader read it, or the object has a greater number. Without a [number](Fence::number), this
    /// only checks the term.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled::TermEnded`] if the term has ended, or if the object has the number of a later term. In the
    /// second case, the term of a leader ends now. The number of [divided keys](crate::Members) rises within a
    /// term, so there only this run fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use homeostat::Context;
    /// use homeostat_objects::{LeaseElector, MemoryClient, ObjectMeta};
    /// use homeostat::Elector;
    /// use std::sync::Arc;
    ///
    /// let elector = LeaseElector::builder(Arc::new(MemoryClient::new()), "default", "backup").build()?;
    /// let term = elector.campaign(&Context::detached())?;
    /// let mut meta = ObjectMeta::new("default", "disk-1");
    /// meta.mark_term(&term.fence())?;
    /// assert_eq!(meta.annotations["homeostat.dev/fence"], "0");
    ///
    /// meta.annotations.insert("homeostat.dev/fence".into(), "1".into());
    /// assert!(meta.mark_term(&term.fence()).is_err());
    /// assert!(term.lost().is_cancelled());
    /// # Ok::<_, homeostat::BoxError>(())
    /// ```
    pub fn mark_term(&mut self, fence: &Fence) -> Result<(), Cancelled> {
        fence.check()?;
        let Some(number) = fence.number() else { return Ok(()) };
        let marked = self.annotations.get(FENCE_ANNOTATION).and_then(|text| text.parse::<u64>().ok());
        if marked.is_some_and(|marked| marked > number) {
            found_later(fence);
            return Err(Cancelled::TermEnded);
        }
        self.annotations.insert(FENCE_ANNOTATION.to_owned(), number.to_string());
        Ok(())
    }
}
