//! Counts the objects and index entries that a call visits, in tests. In a program this does
//! nothing.
//!
//! Each thread counts its own visits, so that parallel tests do not disturb each other.

#[cfg(test)]
thread_local! {
    static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts a visit of an object or an index entry.
#[inline]
pub(crate) fn visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}

/// Returns how many objects and entries this thread has visited.
#[cfg(test)]
pub(crate) fn visits() -> usize {
    VISITS.get()
}
