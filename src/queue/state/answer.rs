//! The answers of the rules, and the endings of a claim.

use std::time::Duration;

use super::super::request::{EnqueueOutcome, Priority, Reasons};
use crate::base::time::Nanos;

/// Which list a record is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In none: it is idle, or a claim holds it.
    Out,
    /// In line, in this lane.
    Lane(Priority),
    /// In the wheel, due at this time.
    Wheel(Nanos),
}

/// How a claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Done,
    /// As done, and the key is ready no sooner than this much later.
    CoolDown(Duration),
    RequeueAfter(Duration),
    /// The run failed; try again this much later.
    Retry(Duration),
    /// The run was given up before it succeeded or failed: the key is in line again, for these reasons and whatever came
    /// meanwhile, and its failures stand.
    PutBack(Reasons),
    /// There was no run: the key is put aside, with these reasons and its failures, until something asks for it at once or for a
    /// time.
    PutAside(Reasons),
}

/// What a request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) admission: EnqueueOutcome,
    /// The key goes to the tail of its list even where it stands in that list already.
    pub(crate) to_tail: bool,
}

impl From<EnqueueOutcome> for Answer {
    fn from(admission: EnqueueOutcome) -> Self {
        Self { admission, to_tail: false }
    }
}
