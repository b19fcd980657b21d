//! A step again and again: as long as something holds, or once for each of several items.

use std::error::Error;
use std::fmt;

use super::SubReconciler;
use super::branch::StepCondition;
use super::context::SubContext;
use super::flow::{Failures, SubResult};
use super::setup::Setup;
use super::stash::{StashKey, Stashed};
use crate::objects::ObjectRef;
use crate::run::error::BoxError;

/// Which pass of a [`While`] it is, from 0: stashed for its condition and its body. Of loops within loops it is the innermost one's.
pub const ITERATION: StashKey<usize> = StashKey::new("homeostat/iteration");

/// A step as long as a condition holds, which is asked before each pass. Not for waiting: it should be what the step does that ends it.
///
/// The delays that the passes ask for are [put together](super::Flow::and). It stops at the first pass that fails or halts, and then
/// the steps behind it do not follow either. Which pass it is is stashed as [`ITERATION`].
///
/// # Examples
///
/// ```
/// use homeostat::objects::DynamicObject;
/// use homeostat::sub::{Flow, ITERATION, SubContext, SubResult, While};
///
/// fn has_more(_cx: &SubContext<'_>, book: &DynamicObject) -> bool {
///     book.pointer("/status/next").is_some()
/// }
///
/// fn read_page(cx: &SubContext<'_>, _book: &mut DynamicObject) -> SubResult {
///     log::debug!(reconciler = cx.name(), object:% = cx.object(), page = cx.stashed(ITERATION)?; "reading");
///     // …
///     Ok(Flow::proceed())
/// }
///
/// let pages = While::new(has_more, read_page).at_most(1000);
/// # let _ = pages;
/// ```
#[must_use]
pub struct While<T> {
    condition: StepCondition<T>,
    body: Box<dyn SubReconciler<T>>,
    at_most: usize,
}

/// A [`While`] has made all passes that it may, and its condition still holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndlessLoop {
    /// Whose run it is.
    pub object: ObjectRef,
    /// How many passes it may make.
    pub at_most: usize,
}

impl fmt::Display for EndlessLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a loop has not ended after {} passes", self.object, self.at_most)
    }
}

impl Error for EndlessLoop {}

impl<T> While<T> {
    /// Calls `body` as long as the condition holds.
    pub fn new(
        condition: impl Fn(&SubContext<'_>, &T) -> bool + Send + Sync + 'static,
        body: impl SubReconciler<T> + 'static,
    ) -> Self {
        Self { condition: Box::new(condition), body: Box::new(body), at_most: 100 }
    }

    /// If it still holds after this many passes, that is an error: [`EndlessLoop`]. Default: 100.
    pub fn at_most(self, passes: usize) -> Self {
        Self { at_most: passes, ..self }
    }

    /// One pass, if another one is to follow.
    fn pass(&self, cx: &SubContext<'_>, resource: &mut T, number: usize) -> Option<SubResult> {
        if !(self.condition)(cx, resource) {
            return None;
        }
        if number == self.at_most {
            return Some(Err(EndlessLoop { object: cx.object().clone(), at_most: number }.into()));
        }
        Some(self.body.reconcile(cx, resource))
    }
}

impl<T> SubReconciler<T> for While<T> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.body.setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let (mut together, mut halted) = (Failures::default(), false);
        for number in 0.. {
            match cx.stash().during(ITERATION, number, || self.pass(cx, resource, number)) {
                Some(result) => halted = together.add(result),
                None => break,
            }
            if halted {
                break;
            }
        }
        together.into_result(halted)
    }
}

impl<T> fmt::Debug for While<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("While").field("at_most", &self.at_most).finish_non_exhaustive()
    }
}

/// Which of several items a pass of a [`ForEach`] is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor<I> {
    /// The item.
    pub item: I,
    /// Its place among them, from 0.
    pub index: usize,
    /// How many there are.
    pub len: usize,
}

/// A step once for each of several items, in their order. Which one a pass is about is stashed under a key of one's own, as a
/// [`Cursor`], and taken away behind it; loops within loops have keys of different names.
///
/// The delays that the passes ask for are [put together](super::Flow::and). It stops at the first item whose pass fails or halts, and
/// then the steps behind it do not follow either.
///
/// # Examples
///
/// ```
/// use homeostat::objects::DynamicObject;
/// use homeostat::sub::{Cursor, Flow, ForEach, StashKey, SubContext, SubResult};
/// use homeostat::BoxError;
///
/// const PORT: StashKey<Cursor<u64>> = StashKey::new("port");
///
/// fn ports(_cx: &SubContext<'_>, service: &DynamicObject) -> Result<Vec<u64>, BoxError> {
///     let ports = service.pointer("/spec/ports").and_then(|ports| ports.as_array());
///     Ok(ports.into_iter().flatten().filter_map(|port| port.as_u64()).collect())
/// }
///
/// fn open(cx: &SubContext<'_>, _service: &mut DynamicObject) -> SubResult {
///     let port = cx.stashed(PORT)?.item;
///     # let _ = port;
///     // …
///     Ok(Flow::proceed())
/// }
///
/// let open_all = ForEach::new(PORT, ports, open);
/// # let _ = open_all;
/// ```
#[must_use]
pub struct ForEach<T, I> {
    key: StashKey<Cursor<I>>,
    items: Items<T, I>,
    body: Box<dyn SubReconciler<T>>,
}

type Items<T, I> = Box<dyn Fn(&SubContext<'_>, &T) -> Result<Vec<I>, BoxError> + Send + Sync>;

impl<T, I> ForEach<T, I>
where
    Cursor<I>: Stashed,
{
    /// Calls `body` for each of the items, which are asked for once a run.
    pub fn new(
        key: StashKey<Cursor<I>>,
        items: impl Fn(&SubContext<'_>, &T) -> Result<Vec<I>, BoxError> + Send + Sync + 'static,
        body: impl SubReconciler<T> + 'static,
    ) -> Self {
        Self { key, items: Box::new(items), body: Box::new(body) }
    }
}

impl<T, I> SubReconciler<T> for ForEach<T, I>
where
    Cursor<I>: Stashed,
{
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.body.setup(setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let items = (self.items)(cx, resource)?;
        let len = items.len();
        let (mut together, mut halted) = (Failures::default(), false);
        for (index, item) in items.into_iter().enumerate() {
            let cursor = Cursor { item, index, len };
            halted = together.add(cx.stash().during(self.key, cursor, || self.body.reconcile(cx, resource)));
            if halted {
                break;
            }
        }
        together.into_result(halted)
    }
}

impl<T, I> fmt::Debug for ForEach<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForEach").field("key", &self.key).finish_non_exhaustive()
    }
}
