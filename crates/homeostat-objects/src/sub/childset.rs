//! A step that keeps a set of children.

use std::collections::BTreeMap;
use std::fmt;

use super::SubReconciler;
use super::children::{ChildRun, ChildSettings, DesiredChild, WrittenChild, child_settings};
use super::context::SubContext;
use super::flow::{Failures, SubResult};
use super::manager::ObjectManager;
use super::setup::Setup;
use crate::dependents::foremost;
use crate::{ClientError, Kind, Object, Query};
use homeostat::run::{BoxError, terminal};

/// The result for one child of a set.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildResult<C> {
    /// The identifier of the child.
    pub id: String,
    /// The child as the client returned it, or `None` if it does not exist.
    pub child: Result<Option<C>, ClientError>,
}

/// Keeps a set of objects of a kind for its owner: the *children*. It treats each child as a
/// [`ChildReconciler`](super::ChildReconciler) does.
///
/// `identify` must return the same identifier for a desired child and its stored copy, and different identifiers for
/// different children.
///
/// - `desired` gets the existing children in the order of their keys. It returns all children to keep.
/// - Existing children that are not desired are deleted. Children without an identifier are deleted too.
/// - The children are written in the order of their identifiers. A failure does not stop the others.
/// - `reflect` gets all results in this order. The run fails with the errors that are not [reflected](Self::reflects).
///
/// If two desired children have the same identifier, or one has no identifier, nothing is written. The run fails with a
/// terminal [`Invalid`](crate::ClientErrorKind::Invalid).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, DynamicObject, Kind, MemoryClient};
/// use homeostat_objects::sub::{
///     ChildResult, ChildSetReconciler, Config, DesiredChild, Flow, Request, SubContext, SubReconciler,
///     UpdatingObjectManager,
/// };
/// use homeostat::Context;
/// use serde_json::json;
/// use std::sync::Arc;
///
/// const SITE: Kind = Kind::namespaced("example.com", "v1", "Site");
/// const PAGE: Kind = Kind::namespaced("example.com", "v1", "Page");
///
/// let pages = ChildSetReconciler::of_kind(
///     PAGE,
///     |_cx, site: &mut DynamicObject, _pages: &[DynamicObject]| {
///         let languages = site.get("languages").into_iter().flat_map(|languages| languages.items()).filter_map(|language| language.as_str());
///         let page = |language: &str| {
///             let name = format!("{}-{language}", site.name());
///             DynamicObject::new(&PAGE, site.namespace(), name).with("language", json!(language))
///         };
///         Ok(DesiredChild::This(languages.map(page).collect()))
///     },
///     |page| page.get("language").and_then(|language| language.as_str()).unwrap_or_default().to_owned(),
///     |_cx, site, pages: &[ChildResult<DynamicObject>]| {
///         let ready = pages.iter().filter(|page| matches!(page.child, Ok(Some(_)))).count();
///         site.fields_mut().insert("status".to_owned(), json!({"pages": ready}));
///         Ok(Flow::proceed())
///     },
///     UpdatingObjectManager::of_kind(PAGE, |current: &mut DynamicObject, desired| {
///         *current.fields_mut() = desired.fields().into_owned();
///     }),
/// );
///
/// let client = Arc::new(MemoryClient::new());
/// let shop = DynamicObject::new(&SITE, "default", "shop").with("languages", json!(["de", "en"]));
/// let mut shop = Api::of_kind(client.clone(), SITE).create(&shop)?;
/// let (cx, request) = (Context::detached(), Request::new(&shop, Config::new(client)));
/// pages.reconcile(&SubContext::new("site", &cx, &request), &mut shop)?;
/// assert_eq!(shop.get("status").unwrap(), json!({"pages": 2}));
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use]
pub struct ChildSetReconciler<T, C> {
    name: String,
    settings: ChildSettings<T, C>,
    desired: DesireChildren<T, C>,
    identify: Box<dyn Fn(&C) -> String + Send + Sync>,
    reflect: ReflectChildren<T, C>,
}

type DesireChildren<T, C> =
    Box<dyn Fn(&SubContext<'_>, &mut T, &[C]) -> Result<DesiredChild<Vec<C>>, BoxError> + Send + Sync>;
type ReflectChildren<T, C> = Box<dyn Fn(&SubContext<'_>, &mut T, &[ChildResult<C>]) -> SubResult + Send + Sync>;

/// The existing children and the desired child with one identifier.
type ChildSlot<C> = (Vec<C>, Option<C>);

impl<T: Object, C: Object> ChildSetReconciler<T, C> {
    /// Creates a step for children of the type `C`, with closures for the desired children, their identifiers and the
    /// owner's status.
    ///
    /// Does not compile for a [`DynamicObject`](crate::DynamicObject): see [`of_kind`](Self::of_kind).
    pub fn new(
        desired: impl Fn(&SubContext<'_>, &mut T, &[C]) -> Result<DesiredChild<Vec<C>>, BoxError> + Send + Sync + 'static,
        identify: impl Fn(&C) -> String + Send + Sync + 'static,
        reflect: impl Fn(&SubContext<'_>, &mut T, &[ChildResult<C>]) -> SubResult + Send + Sync + 'static,
        manager: impl ObjectManager<C> + 'static,
    ) -> Self {
        const { C::KIND.assert_known() };
        Self::of_kind(C::KIND, desired, identify, reflect, manager)
    }

    /// Creates a step for children of this kind, for types that have no fixed kind.
    pub fn of_kind(
        kind: Kind,
        desired: impl Fn(&SubContext<'_>, &mut T, &[C]) -> Result<DesiredChild<Vec<C>>, BoxError> + Send + Sync + 'static,
        identify: impl Fn(&C) -> String + Send + Sync + 'static,
        reflect: impl Fn(&SubContext<'_>, &mut T, &[ChildResult<C>]) -> SubResult + Send + Sync + 'static,
        manager: impl ObjectManager<C> + 'static,
    ) -> Self {
        Self {
            name: format!("child-{}", kind.plural()),
            settings: ChildSettings::new(kind, manager),
            desired: Box::new(desired),
            identify: Box::new(identify),
            reflect: Box::new(reflect),
        }
    }

    /// Groups the children by their identifiers.
    fn slots(&self, found: Vec<C>, desired: Vec<C>) -> Result<BTreeMap<String, ChildSlot<C>>, ClientError> {
        let mut slots = BTreeMap::<_, ChildSlot<C>>::new();
        for child in found {
            slots.entry((self.identify)(&child)).or_default().0.push(child);
        }
        for child in desired {
            let id = (self.identify)(&child);
            let refused = |rule| ClientError::invalid(child.object_ref(), "identifier", &id, rule);
            if id.is_empty() {
                return Err(refused("must not be empty"));
            }
            let (_, desired) = slots.entry(id.clone()).or_default();
            if desired.is_some() {
                return Err(refused("must be unique among the desired children"));
            }
            *desired = Some(child);
        }
        Ok(slots)
    }

    /// Writes one child. Adds its errors to `failures`, but not a reflected error.
    fn write(
        &self,
        children: &ChildRun<'_, T, C>,
        resource: &mut T,
        (id, (found, desired)): (String, ChildSlot<C>),
        failures: &mut Failures,
    ) -> ChildResult<C> {
        let desired = match desired.map(|desired| children.claim(resource, desired)).transpose() {
            Ok(desired) => desired,
            Err(error) => {
                failures.add(Err(terminal(error.clone()).into()));
                return ChildResult { id, child: Err(error) };
            }
        };
        let is_it = |child: &C| (self.identify)(child) == id;
        let WrittenChild { child, surplus } = children.write(resource, found, desired, &is_it);
        let own = child.as_ref().err().filter(|error| !children.is_reflected(error)).cloned();
        for error in surplus.into_iter().chain(own) {
            failures.add(Err(error.into()));
        }
        ChildResult { id, child }
    }
}

child_settings!(ChildSetReconciler);

impl<T: Object, C: Object> SubReconciler<T> for ChildSetReconciler<T, C> {
    fn setup(&self, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        self.settings.setup(&self.name, setup)
    }

    fn reconcile(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let cx = &cx.named(&self.name);
        let children = ChildRun::new(&self.settings, cx);
        if cx.is_deleting() {
            return children.finalize(resource);
        }
        let found = children.find(resource)?;
        let mut failures = Failures::default();
        let desired = match (self.desired)(cx, resource, &found)? {
            DesiredChild::AsItIs => None,
            DesiredChild::Nothing => Some(Vec::new()),
            DesiredChild::This(desired) => Some(desired),
        };
        let results: Vec<_> = match desired {
            None => {
                let slots = self.slots(found, Vec::new())?;
                slots.into_iter().map(|(id, (found, _))| ChildResult { id, child: Ok(foremost(found)) }).collect()
            }
            Some(desired) => {
                let none = desired.is_empty();
                let found = if none { children.all(resource, found)? } else { found };
                let slots = self.slots(found, desired).map_err(terminal)?;
                let mut results = Vec::with_capacity(slots.len());
                for slot in slots {
                    if let Err(ended) = cx.check_term() {
                        failures.add(Err(ended.into()));
                        return failures.into_result(true);
                    }
                    results.push(self.write(&children, resource, slot, &mut failures));
                }
                if none && let Err(error) = children.release(resource) {
                    failures.add(Err(error.into()));
                }
                results
            }
        };
        let halted = failures.add((self.reflect)(cx, resource, &results));
        failures.into_result(halted)
    }
}

impl<T, C> fmt::Debug for ChildSetReconciler<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSetReconciler")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
