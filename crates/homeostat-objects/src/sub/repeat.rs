//! Steps that run several times.

use std::error::Error;
use std::fmt;

use super::SubReconciler;
use super::branch::StepCondition;
use super::context::SubContext;
use super::flow::{Failures, SubResult};
use super::setup::Setup;
use super::stash::{StashKey, Stashed};
use crate::ObjectRef;
use homeostat::rt::debug_with_causes;
use homeostat::run::BoxError;

/// The number of the current pass of a [`While`], starting at 0. It is stashed for the condition and the body. In
/// nested loops, it is the number of the innermost loop.
pub const ITERATION: StashKey<usize> = StashKey::new("homeostat/iteration");

/// Runs a step while a condition holds. Each pass should make progress towards the end: do not use it to wait.
///
/// The delays of the passes are [combined](super::Flow::and). The loop ends at the first pass that fails or halts, and
/// then the next steps do not run. The number of the pass is stashed as [`ITERATION`].
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Flow, ITERATION, SubContext, SubResult, While};
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

/// The error of a [`While`] that reaches its limit while its condition still holds.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndlessLoop {
    /// The reconciled object.
    pub object: ObjectRef,
    /// The limit.
    pub at_most: usize,
}

impl fmt::Display for EndlessLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a loop has not ended after {} passes", self.object, self.at_most)
    }
}

debug_with_causes!(EndlessLoop);

impl Error for EndlessLoop {}

impl<T> While<T> {
    /// Runs `body` while the condition holds.
    pub fn new(
        condition: impl Fn(&SubContext<'_>, &T) -> bool + Send + Sync + 'static,
        body: impl SubReconciler<T> + 'static,
    ) -> Self {
        Self { condition: Box::new(condition), body: Box::new(body), at_most: 100 }
    }

    /// Limits the number of passes. If the condition still holds after that many, the error is [`EndlessLoop`].
    /// Default: 100.
    pub fn at_most(self, passes: usize) -> Self {
        Self { at_most: passes, ..self }
    }

    /// Runs one pass if the condition holds.
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

/// The item of the current pass of a [`ForEach`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor<I> {
    /// The item.
    pub item: I,
    /// The position of the item, starting at 0.
    pub index: usize,
    /// The number of items.
    pub len: usize,
}

/// Runs a step once for each of several items, in order.
///
/// The current item is stashed as a [`Cursor`] under a key that you choose. In nested loops use keys with different
/// names. The delays of the passes are [combined](super::Flow::and). The loop ends at the first pass that fails or
/// halts, and then the next steps do not run.
///
/// # Examples
///
/// ```
/// use homeostat_objects::DynamicObject;
/// use homeostat_objects::sub::{Cursor, Flow, ForEach, StashKey, SubContext, SubResult};
/// use homeostat::BoxError;
///
/// const PORT: StashKey<Cursor<u64>> = StashKey::new("port");
///
/// fn ports(_cx: &SubContext<'_>, service: &DynamicObject) -> Result<Vec<u64>, BoxError> {
///     let ports = service.pointer("/spec/ports");
///     Ok(ports.into_iter().flat_map(|ports| ports.items()).filter_map(|port| port.as_u64()).collect())
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
    /// Runs `body` for each of the items. `items` is called once in each run.
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
