//! Reports calls that a client has been repeating for a while. A watch shows them in the status of its source.

use std::cell::RefCell;

type CallObserver = Box<dyn Fn(String)>;

thread_local! {
    /// Receives the reports of calls on this thread.
    static OBSERVER: RefCell<Option<CallObserver>> = const { RefCell::new(None) };
}

/// Passes the reports of calls on this thread to `observer`, until this is dropped.
pub(super) struct ObservedCalls {
    outer: Option<CallObserver>,
}

impl ObservedCalls {
    pub(super) fn begin(observer: impl Fn(String) + 'static) -> Self {
        Self { outer: OBSERVER.replace(Some(Box::new(observer))) }
    }
}

impl Drop for ObservedCalls {
    fn drop(&mut self) {
        OBSERVER.replace(self.outer.take());
    }
}

/// Reports that the call on this thread is being repeated. Returns whether an observer on this thread receives the
/// report.
pub fn report_repetition(text: impl FnOnce() -> String) -> bool {
    OBSERVER.with_borrow(|observer| observer.as_ref().map(|observer| observer(text())).is_some())
}
