//! The shared parts of the child steps: how children are found, claimed, written and deleted.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use super::context::SubContext;
use super::flow::{Failures, Flow, SubResult};
use super::manager::ObjectManager;
use super::setup::Setup;
use crate::dependents::{OwnerClaim, Plan, check_term, list, plan, put_or_adopt, take};
use crate::rules::change::ORPHAN;
use crate::sync::Mutex;
use crate::{Api, Client, ClientError, Ignore, Kind, Object, ObjectKey, Query, SharedObject, TrackRef};
use homeostat::rt::Chain;
use homeostat::run::BoxError;
use homeostat::watch::Index;

/// The desired state of one child.
///
/// # Examples
///
/// ```
/// use homeostat_objects::sub::DesiredChild;
///
/// assert_eq!(DesiredChild::from(Some("page")), DesiredChild::This("page"));
/// assert_eq!(DesiredChild::<&str>::from(None), DesiredChild::Nothing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DesiredChild<C> {
    /// The child exists, with this content.
    This(C),
    /// The child does not exist.
    Nothing,
    /// The child stays as it is, existing or not. Nothing is written; the current state is passed to `reflect`.
    AsItIs,
}

impl<C> From<Option<C>> for DesiredChild<C> {
    fn from(desired: Option<C>) -> Self {
        desired.map_or(Self::Nothing, Self::This)
    }
}

/// The settings of a child step: how its children are found, and the manager that writes them.
pub(super) struct ChildSettings<T, C> {
    pub(super) kind: Kind,
    pub(super) manager: Box<dyn ObjectManager<C>>,
    pub(super) listed_by: Option<ListedBy<T>>,
    pub(super) ours: Option<Ours<T, C>>,
    pub(super) reflects: Box<dyn Fn(&ClientError) -> bool + Send + Sync>,
    /// [`OwnerClaim::Unnamed`] for tracked children, which have no owner reference.
    pub(super) claim: OwnerClaim,
    pub(super) indexed: bool,
    /// The children by the uid of their controller. Created by the set-up.
    index: Mutex<Option<Index<String, ObjectKey, C>>>,
}

type ListedBy<T> = Box<dyn Fn(&T) -> Query + Send + Sync>;
type Ours<T, C> = Box<dyn Fn(&T, &C) -> bool + Send + Sync>;

impl<T: Object, C: Object> ChildSettings<T, C> {
    pub(super) fn new(kind: Kind, manager: impl ObjectManager<C> + 'static) -> Self {
        Self {
            kind,
            manager: Box::new(manager),
            listed_by: None,
            ours: None,
            reflects: Box::new(|error| error.is_already_exists() || error.is_invalid()),
            claim: OwnerClaim::Controller,
            indexed: false,
            index: Mutex::new(None),
        }
    }

    fn is_tracked(&self) -> bool {
        matches!(self.claim, OwnerClaim::Unnamed)
    }

    /// Adds the watches that the step with this name needs. Fails if another step has the same children.
    pub(super) fn setup(&self, step: &str, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let api = Api::<C>::of_kind(Arc::clone(setup.config().client()), self.kind.clone());
        if !self.is_tracked() {
            setup.children(&self.kind, step, self.ours.is_some())?;
            setup.owned(&api)?;
            if self.indexed {
                let by_owner = |child: &C| child.meta().controller().map(|owner| owner.uid.clone());
                *self.index.lock() = Some(setup.index(&api, by_owner)?);
            }
        }
        // An object of another owner may have the name of a child, and is tracked too.
        setup.tracked(&api)?;
        self.manager.setup(setup)
    }
}

/// The children of one object in one run.
pub(super) struct ChildRun<'a, T, C> {
    settings: &'a ChildSettings<T, C>,
    cx: &'a SubContext<'a>,
    /// The children in the uncached client, once they have been listed.
    fresh: OnceCell<Vec<C>>,
}

/// The result of writing one child.
pub(super) struct WrittenChild<C> {
    pub(super) child: Result<Option<C>, ClientError>,
    /// One error for each further child that was deleted.
    pub(super) surplus: Vec<ClientError>,
}

impl<'a, T: Object, C: Object> ChildRun<'a, T, C> {
    pub(super) fn new(settings: &'a ChildSettings<T, C>, cx: &'a SubContext<'a>) -> Self {
        Self { settings, cx, fresh: OnceCell::new() }
    }

    /// Finds the children, in the order of their keys. They are read from the index or from the client, which may be a
    /// cache.
    pub(super) fn find(&self, resource: &T) -> Result<Vec<C>, ClientError> {
        let Some(index) = self.index() else { return self.list(resource, self.cx.config().client()) };
        let mut found = index.get(&self.cx.subject().meta().uid);
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let found = found.iter().map(|(_, child)| C::clone(child));
        Ok(found.filter(|child| self.is_ours(resource, child)).collect())
    }

    fn index(&self) -> Option<Index<String, ObjectKey, C>> {
        if self.settings.is_tracked() { None } else { self.settings.index.lock().clone() }
    }

    /// Lists the children. Tracked children are tracked first, so that a change in between enqueues the owner, and so
    /// that a run without writes keeps their track.
    fn list(&self, resource: &T, client: &Arc<dyn Client>) -> Result<Vec<C>, ClientError> {
        let ChildSettings { kind, claim, listed_by, .. } = self.settings;
        let meta = resource.meta();
        let namespace = Some(&*meta.namespace).filter(|namespace| !namespace.is_empty());
        let query = listed_by.as_ref().map_or_else(
            || namespace.map_or_else(Query::all, |namespace| Query::all().namespace(namespace)),
            |listed_by| listed_by(resource),
        );
        if self.settings.is_tracked() {
            self.cx.track(kind, selected_by(kind, &query));
        }
        let mut found = list(&**client, kind, &query, claim, self.cx.subject())?;
        found.retain(|child| self.is_ours(resource, child));
        Ok(found)
    }

    fn is_ours(&self, resource: &T, child: &C) -> bool {
        let ChildSettings { claim, ours, .. } = self.settings;
        claim.holds(self.cx.subject(), &child.meta()) && ours.as_ref().is_none_or(|ours| ours(resource, child))
    }

    /// Makes the reconciled object the owner of `desired`.
    pub(super) fn claim(&self, resource: &T, desired: C) -> Result<C, ClientError> {
        let claimed = self.settings.claim.claim(self.cx.subject(), desired)?;
        if self.is_ours(resource, &claimed) {
            return Ok(claimed);
        }
        let rule = format!("must be accepted by `ours` as a child of {}, or it is not found again", self.cx.object());
        Err(ClientError::invalid(claimed.object_ref(), "", "", rule))
    }

    /// Writes one child in its desired state. `found` are the candidates; `is_it` recognizes further ones.
    pub(super) fn write(
        &self,
        resource: &mut T,
        found: Vec<C>,
        desired: Option<C>,
        is_it: &dyn Fn(&C) -> bool,
    ) -> WrittenChild<C> {
        let mut surplus = Vec::new();
        let found = match &desired {
            Some(_) => self.recheck_uncached(resource, found, is_it),
            None => Ok(found),
        };
        let child = found.and_then(|found| {
            let Plan { delete, keep, desired } = plan(found, desired);
            let mut deleted = Ok(());
            for child in &delete {
                let result = self.delete(resource, child);
                surplus.extend(keep.as_ref().filter(|_| result.is_ok()).map(|keep| self.surplus(child, keep)));
                deleted = deleted.and(result);
            }
            deleted?;
            desired.map_or(Ok(None), |desired| self.put(resource, keep.as_ref(), desired, is_it))
        });
        WrittenChild { child, surplus }
    }

    /// Lists the children in the uncached client before a child is created or a surplus one deleted, because a stale
    /// cache must not cause either.
    fn recheck_uncached(&self, resource: &T, found: Vec<C>, is_it: &dyn Fn(&C) -> bool) -> Result<Vec<C>, ClientError> {
        let is_cached = self.cx.config().is_cached() || self.index().is_some();
        if found.len() == 1 || !is_cached {
            return Ok(found);
        }
        // The child may have another name than the desired one.
        Ok(self.fresh(resource)?.iter().filter(|child| is_it(child)).cloned().collect())
    }

    fn fresh(&self, resource: &T) -> Result<&[C], ClientError> {
        if let Some(fresh) = self.fresh.get() {
            return Ok(fresh);
        }
        let listed = self.list(resource, self.cx.config().uncached())?;
        Ok(self.fresh.get_or_init(|| listed))
    }

    fn read(&self, key: &ObjectKey) -> Result<Option<SharedObject>, ClientError> {
        self.cx.config().uncached().get(&self.settings.kind, key).ignore_not_found()
    }

    /// Returns the object if it is a child.
    fn take(&self, resource: &T, object: &SharedObject) -> Result<Option<C>, ClientError> {
        let child = take(&self.settings.claim, self.cx.subject(), object)?;
        Ok(child.filter(|child| self.is_ours(resource, child)))
    }

    fn surplus(&self, child: &C, keep: &C) -> ClientError {
        let rule =
            format!("must be {:?}: {} has one such child; this one is deleted", keep.meta().name, self.cx.object());
        ClientError::invalid(child.object_ref(), "metadata.name", &child.meta().name, rule)
    }

    fn put(
        &self,
        resource: &mut T,
        current: Option<&C>,
        desired: C,
        is_it: &dyn Fn(&C) -> bool,
    ) -> Result<Option<C>, ClientError> {
        let key = desired.key();
        let put = |resource: &mut T, current: Option<&C>, desired: C| {
            let named = Some(current.unwrap_or(&desired).key()).filter(|key| !key.name().is_empty());
            if let Some(key) = &named {
                self.track(key);
            }
            check_term(self.cx, &current.unwrap_or(&desired).object_ref())?;
            let child = self.settings.manager.manage(self.cx, &mut resource.meta_mut(), current, Some(desired))?;
            if let (None, Some(created)) = (named, &child) {
                self.track(&created.key());
            }
            Ok(child)
        };
        put_or_adopt(resource, current, desired, put, |resource, error| {
            // If the object belongs to another owner, its deletion enqueues this one.
            self.cx.track(&self.settings.kind, TrackRef::name(key.clone()));
            let Some(existing) = self.read(&key)? else { return Ok(None) };
            self.take(resource, &existing)?.filter(|child| is_it(child)).ok_or(error).map(Some)
        })
    }

    fn delete(&self, resource: &mut T, child: &C) -> Result<(), ClientError> {
        self.track(&child.key());
        check_term(self.cx, &child.object_ref())?;
        self.settings.manager.manage(self.cx, &mut resource.meta_mut(), Some(child), None).map(drop)
    }

    fn track(&self, child: &ObjectKey) {
        if self.settings.is_tracked() {
            self.cx.track(&self.settings.kind, TrackRef::name(child.clone()));
        }
    }

    /// Deletes the children of an owner that is being deleted, unless the garbage collector deletes them.
    pub(super) fn finalize(&self, resource: &mut T) -> SubResult {
        // The deletion of the owner orphans its children. The server first removes their references to the owner, then
        // this finalizer. The last change runs the owner again.
        if !self.settings.is_tracked() && self.cx.subject().meta().has_finalizer(ORPHAN) {
            return Ok(Flow::proceed());
        }
        let mut failures = Failures::default();
        let mut note = |result: Result<(), ClientError>| {
            failures.add(result.map(|()| Flow::proceed()).map_err(Into::into));
        };
        if self.settings.is_tracked() || self.settings.manager.held_by().is_some() {
            for child in &self.list(resource, self.cx.config().uncached())? {
                note(self.delete(resource, child));
                if self.cx.check_term().is_err() {
                    break;
                }
            }
            note(self.release(resource));
        }
        failures.into_result(false)
    }

    /// Returns all children that must be deleted if none is desired. If a finalizer is removed after the last one,
    /// reads them from the uncached client.
    pub(super) fn all(&self, resource: &T, found: Vec<C>) -> Result<Vec<C>, ClientError> {
        if self.holds(resource) { self.list(resource, self.cx.config().uncached()) } else { Ok(found) }
    }

    /// Deletes all children because none is desired, then lets the manager remove its finalizer.
    pub(super) fn delete_all(&self, resource: &mut T, found: Vec<C>) -> Result<(), ClientError> {
        let found = self.all(resource, found)?;
        self.write(resource, found, None, &|_| true).child?;
        self.release(resource)
    }

    /// Lets the manager remove its finalizer if there is no child.
    pub(super) fn release(&self, resource: &mut T) -> Result<(), ClientError> {
        if self.holds(resource) && self.list(resource, self.cx.config().uncached())?.is_empty() {
            check_term(self.cx, self.cx.object())?;
            self.settings.manager.manage(self.cx, &mut resource.meta_mut(), None, None)?;
        }
        Ok(())
    }

    fn holds(&self, resource: &T) -> bool {
        self.settings.manager.held_by().is_some_and(|finalizer| resource.meta().has_finalizer(finalizer))
    }

    /// Returns whether the status shows this error of the manager, so that the run does not fail with it.
    pub(super) fn is_reflected(&self, error: &ClientError) -> bool {
        let reflected = (self.settings.reflects)(error);
        if reflected {
            let (reconciler, object, shown) = (self.cx.name(), self.cx.object(), Chain(error));
            log::info!(
                reconciler, object:%, error:% = shown;
                "{reconciler}: {object}: shown in the status, and not tried again: {shown}"
            );
        }
        reflected
    }
}

/// Returns a track for the objects that a query selects. It may match more objects, because a track cannot require
/// field values other than the name.
fn selected_by(kind: &Kind, query: &Query) -> TrackRef {
    match (&query.namespace, query.fields.equal_to("metadata.name")) {
        (Some(namespace), Some(name)) => TrackRef::name(ObjectKey::new(namespace, name)),
        (None, Some(name)) if !kind.is_namespaced() => TrackRef::name(ObjectKey::cluster(name)),
        (namespace, _) => TrackRef::selector(namespace.as_deref(), query.labels.clone()),
    }
}

impl<T, C> fmt::Debug for ChildSettings<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSettings")
            .field("kind", &self.kind)
            .field("claim", &self.claim)
            .field("indexed", &self.indexed)
            .finish_non_exhaustive()
    }
}

/// The builder methods that all child steps have.
macro_rules! child_settings {
    ($reconciler:ident) => {
        impl<T: Object, C: Object> $reconciler<T, C> {
            /// Sets the name in log lines. Default: `child-` and the plural of the kind.
            pub fn named(self, name: impl Into<String>) -> Self {
                Self { name: name.into(), ..self }
            }

            /// Restricts the children of this step to those for which `ours` returns true. It must return true for each
            /// desired child.
            ///
            /// If two steps have children of the same kind, both need it, because each would overwrite the other's
            /// children. Without it, the set-up fails. Default: all children of the kind.
            pub fn ours(mut self, ours: impl Fn(&T, &C) -> bool + Send + Sync + 'static) -> Self {
                self.settings.ours = Some(Box::new(ours));
                self
            }

            /// Sets the query that lists the children. Default: the namespace of the owner, or all namespaces for an
            /// owner without one.
            ///
            /// It must select each desired child: a child that it does not list is created in every run, which fails
            /// with [`AlreadyExists`](crate::ClientErrorKind::AlreadyExists). The watch of the kind is not limited by
            /// it.
            pub fn listed_by(mut self, query: impl Fn(&T) -> Query + Send + Sync + 'static) -> Self {
                self.settings.listed_by = Some(Box::new(query));
                self
            }

            /// Finds the children in an index of their kind's watch instead of listing them. This is fast, but may be
            /// stale.
            ///
            /// Needs [`setup`](crate::sub::SubReconciler::setup); without it the children are listed. Has no effect on
            /// [tracked](Self::tracked) children.
            pub fn indexed(mut self) -> Self {
                self.settings.indexed = true;
                self
            }

            /// Manages children without an owner reference, for example in another namespace or client.
            ///
            /// The children are the objects that `query` selects and `ours` accepts. They are deleted when their owner
            /// is deleted. To keep the owner until then, give the manager a
            /// [finalizer](crate::sub::UpdatingObjectManager::finalizer).
            ///
            /// The objects that the query selects by namespace and labels, or by name, are
            /// [tracked](crate::sub::SubContext::track): a change of one of them enqueues the owner. Choose a query
            /// that selects few other objects.
            pub fn tracked(
                mut self,
                query: impl Fn(&T) -> Query + Send + Sync + 'static,
                ours: impl Fn(&T, &C) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.settings.claim = crate::dependents::OwnerClaim::Unnamed;
                self.listed_by(query).ours(ours)
            }

            /// Chooses which errors of the manager the status shows. The run does not fail with these errors. Default:
            /// [`AlreadyExists`](crate::ClientErrorKind::AlreadyExists) and
            /// [`Invalid`](crate::ClientErrorKind::Invalid).
            pub fn reflects(mut self, reflects: impl Fn(&ClientError) -> bool + Send + Sync + 'static) -> Self {
                self.settings.reflects = Box::new(reflects);
                self
            }
        }
    };
}
pub(super) use child_settings;
