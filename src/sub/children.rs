//! How children are found, claimed, made and removed: what a step of one child and a step of many have in common.

use std::cell::OnceCell;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::context::SubContext;
use super::flow::{Failures, SubResult};
use super::manager::ObjectManager;
use super::setup::Setup;
use crate::base::sync::Mutex;
use crate::objects::json::{owners_of, uid_of};
use crate::objects::{Api, Client, ClientError, Ignore, Kind, Object, ObjectKey, Query, TrackRef, set_controller};
use crate::run::error::{BoxError, Chain};
use crate::watch::store::Index;

/// What is desired of a child, or of several.
///
/// # Examples
///
/// ```
/// use homeostat::sub::Desired;
///
/// assert_eq!(Desired::from(Some("page")), Desired::This("page"));
/// assert_eq!(Desired::<&str>::from(None), Desired::Nothing);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desired<C> {
    /// That it is there, and so.
    This(C),
    /// That it is not there.
    Nothing,
    /// That it stays as it is, there or not: nothing is written, and what it is like is reflected.
    AsItIs,
}

impl<C> From<Option<C>> for Desired<C> {
    fn from(desired: Option<C>) -> Self {
        desired.map_or(Self::Nothing, Self::This)
    }
}

/// How children are found, and who makes them.
pub(super) struct Children<T, C> {
    pub(super) kind: Kind,
    pub(super) manager: Box<dyn ObjectManager<C>>,
    pub(super) listed_by: Option<Lists<T>>,
    pub(super) ours: Option<Ours<T, C>>,
    pub(super) reflects: Box<dyn Fn(&ClientError) -> bool + Send + Sync>,
    /// Whether they are tracked, and have no owner reference.
    pub(super) tracked: bool,
    pub(super) indexed: bool,
    /// By the uid of who manages them. Set up with the controller.
    index: Mutex<Option<Index<String, ObjectKey, C>>>,
}

type Lists<T> = Box<dyn Fn(&T) -> Query + Send + Sync>;
type Ours<T, C> = Box<dyn Fn(&T, &C) -> bool + Send + Sync>;

/// What has come of a child.
pub(super) struct Made<C> {
    pub(super) child: Result<Option<C>, ClientError>,
    /// Of each that was there beside it.
    pub(super) surplus: Vec<ClientError>,
}

impl<T: Object, C: Object> Children<T, C> {
    pub(super) fn new(kind: Kind, manager: Box<dyn ObjectManager<C>>) -> Self {
        Self {
            kind,
            manager,
            listed_by: None,
            ours: None,
            reflects: Box::new(|error| error.is_already_exists() || error.is_invalid()),
            tracked: false,
            indexed: false,
            index: Mutex::new(None),
        }
    }

    /// Adds the watches that the step of this name needs. Fails if another step would take the same children.
    pub(super) fn setup(&self, step: &str, setup: &mut Setup<'_>) -> Result<(), BoxError> {
        let api = Api::<C>::of_kind(Arc::clone(setup.config().client()), self.kind.clone());
        if !self.tracked {
            setup.children(&self.kind, step, self.ours.is_some())?;
            setup.owned(&api)?;
            if self.indexed {
                let by_owner = |child: &C| child.meta().controller().map(|owner| owner.uid.clone());
                *self.index.lock() = Some(setup.index(&api, by_owner)?);
            }
        }
        // Of others' objects in the way of a child, too.
        setup.tracked(&api)?;
        self.manager.setup(setup)
    }

    /// Takes `desired` as a child of the object that the run is about.
    pub(super) fn claim(&self, cx: &SubContext<'_>, resource: &T, mut desired: C) -> Result<C, ClientError> {
        if !self.tracked {
            let mut owned = desired.clone();
            set_controller(cx.subject(), &mut owned)?;
            // Else its own reference stays: it may say more.
            if !desired.meta().is_controlled_by(&cx.subject().metadata.uid) {
                desired = owned;
            }
        }
        if self.is_ours(cx, resource, &desired) {
            return Ok(desired);
        }
        let rule = format!("must be what is taken for a child of {}, or it is not found again", cx.object());
        Err(ClientError::invalid(desired.object_ref(), "", "", rule))
    }

    fn is_ours(&self, cx: &SubContext<'_>, resource: &T, child: &C) -> bool {
        (self.tracked || child.meta().is_controlled_by(&cx.subject().metadata.uid))
            && self.ours.as_ref().is_none_or(|ours| ours(resource, child))
    }

    /// The children, in the order of their keys; as a cache has them, if there is one.
    pub(super) fn find(&self, cx: &SubContext<'_>, resource: &T) -> Result<Vec<C>, ClientError> {
        let index = if self.indexed && !self.tracked { self.index.lock().clone() } else { None };
        let Some(index) = index else { return self.list(cx, resource, cx.config().client()) };
        let mut found = index.get(&cx.subject().metadata.uid);
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        let found = found.iter().map(|(_, child)| C::clone(child));
        Ok(found.filter(|child| self.is_ours(cx, resource, child)).collect())
    }

    fn list(&self, cx: &SubContext<'_>, resource: &T, client: &Arc<dyn Client>) -> Result<Vec<C>, ClientError> {
        let namespace = &resource.meta().namespace;
        let query = match &self.listed_by {
            Some(listed_by) => listed_by(resource),
            None if namespace.is_empty() => Query::all(),
            None => Query::all().namespace(namespace),
        };
        let listed = client.list(&self.kind, &query)?.items;
        listed.iter().filter_map(|json| self.if_ours(cx, resource, json).transpose()).collect()
    }

    /// What is another's need not even be of the type.
    fn if_ours(&self, cx: &SubContext<'_>, resource: &T, json: &Value) -> Result<Option<C>, ClientError> {
        let uid = &*cx.subject().metadata.uid;
        if !self.tracked && owners_of(json).all(|owner| uid_of(owner) != uid) {
            return Ok(None);
        }
        Ok(Some(C::from_json(json)?).filter(|child| self.is_ours(cx, resource, child)))
    }

    /// Whether what [`find`](Self::find) says may be old.
    fn is_cached(&self, cx: &SubContext<'_>) -> bool {
        cx.config().is_cached() || self.indexed && !self.tracked && self.index.lock().is_some()
    }

    /// Deletes the children of an owner that is being deleted, if no garbage collection does.
    pub(super) fn finalize(&self, cx: &SubContext<'_>, resource: &mut T) -> SubResult {
        let mut failures = Failures::default();
        if self.tracked || self.manager.held_by().is_some() {
            let found = self.list(cx, resource, cx.config().uncached())?;
            for child in &found {
                if let Err(error) = self.remove(cx, resource, child) {
                    failures.add(Err(error.into()));
                }
            }
            if let Err(error) = self.removed(cx, resource) {
                failures.add(Err(error.into()));
            }
        }
        failures.into_result(false)
    }

    /// All that are to be removed, where some have been found: if a finalizer is to go then, all that there are, whatever a cache says.
    pub(super) fn to_remove(&self, cx: &SubContext<'_>, resource: &T, found: Vec<C>) -> Result<Vec<C>, ClientError> {
        if self.holds(resource) { self.list(cx, resource, cx.config().uncached()) } else { Ok(found) }
    }

    /// Once all have been removed there is nothing to hold the owner for.
    pub(super) fn removed(&self, cx: &SubContext<'_>, resource: &mut T) -> Result<(), ClientError> {
        if self.holds(resource) && self.list(cx, resource, cx.config().uncached())?.is_empty() {
            self.manager.manage(cx, resource.meta_mut(), None, None)?;
        }
        Ok(())
    }

    fn holds(&self, resource: &T) -> bool {
        self.manager.held_by().is_some_and(|finalizer| resource.meta().has_finalizer(finalizer))
    }

    /// Whether this error of the manager is one that the status tells of.
    pub(super) fn is_reflected(&self, cx: &SubContext<'_>, error: &ClientError) -> bool {
        let reflected = (self.reflects)(error);
        if reflected {
            let (reconciler, object, shown) = (cx.name(), cx.object(), Chain(error));
            log::info!(
                reconciler, object:%, error:% = shown;
                "{reconciler}: {object}: shown in the status, and not tried again: {shown}"
            );
        }
        reflected
    }

    pub(super) fn remove(&self, cx: &SubContext<'_>, resource: &mut T, child: &C) -> Result<(), ClientError> {
        self.track(cx, child);
        self.manager.manage(cx, resource.meta_mut(), Some(child), None).map(drop)
    }

    fn track(&self, cx: &SubContext<'_>, child: &C) {
        if self.tracked {
            cx.track(&self.kind, TrackRef::name(child.key()));
        }
    }
}

impl<T, C> fmt::Debug for Children<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Children")
            .field("kind", &self.kind)
            .field("tracked", &self.tracked)
            .field("indexed", &self.indexed)
            .finish_non_exhaustive()
    }
}

/// The settings that all steps of children have.
macro_rules! settings {
    ($reconciler:ident) => {
        impl<T: Object, C: Object> $reconciler<T, C> {
            /// Its name in log lines. Default: `child-` and the plural of the kind.
            pub fn named(self, name: impl Into<String>) -> Self {
                Self { name: name.into(), ..self }
            }

            /// Takes only those children for its own for which `ours` returns true; `ours` must return true for each desired child.
            /// Two steps that have children of one kind both need it: without it the set-up fails, since each step would overwrite
            /// the other's children. Default: all children of the kind.
            pub fn ours(mut self, ours: impl Fn(&T, &C) -> bool + Send + Sync + 'static) -> Self {
                self.children.ours = Some(Box::new(ours));
                self
            }

            /// Lists children by this query. Default: all in the namespace of their owner; all there are, if that is in none.
            pub fn listed_by(mut self, query: impl Fn(&T) -> Query + Send + Sync + 'static) -> Self {
                self.children.listed_by = Some(Box::new(query));
                self
            }

            /// Finds children by an index of the watch of their kind, instead of listing them: in no time, and perhaps not as they are
            /// now. Needs [`setup`](crate::sub::SubReconciler::setup); without it they are listed. Of no use with [`tracked`](Self::tracked).
            pub fn indexed(mut self) -> Self {
                self.children.indexed = true;
                self
            }

            /// Children have no owner reference: they may be in another namespace, or another client. They are those of the query of
            /// which `ours` says so; they are tracked, and deleted when their owner is. Something has to hold it until then: the
            /// [finalizer](crate::sub::UpdatingObjectManager::finalizer) of the manager.
            pub fn tracked(
                mut self,
                query: impl Fn(&T) -> Query + Send + Sync + 'static,
                ours: impl Fn(&T, &C) -> bool + Send + Sync + 'static,
            ) -> Self {
                self.children.tracked = true;
                self.listed_by(query).ours(ours)
            }

            /// Which errors of the manager are reflected in the status of the owner, and are no errors of the run then. Default:
            /// [`AlreadyExists`](ClientError::AlreadyExists) and [`Invalid`](ClientError::Invalid).
            pub fn reflects(mut self, reflects: impl Fn(&ClientError) -> bool + Send + Sync + 'static) -> Self {
                self.children.reflects = Box::new(reflects);
                self
            }
        }
    };
}
pub(super) use settings;

/// The making of children in one run.
pub(super) struct Making<'a, T, C> {
    children: &'a Children<T, C>,
    cx: &'a SubContext<'a>,
    /// The children without a cache, once that has been asked for.
    fresh: OnceCell<Vec<C>>,
}

impl<'a, T: Object, C: Object> Making<'a, T, C> {
    pub(super) fn new(children: &'a Children<T, C>, cx: &'a SubContext<'a>) -> Self {
        Self { children, cx, fresh: OnceCell::new() }
    }

    pub(super) fn cx(&self) -> &'a SubContext<'a> {
        self.cx
    }

    /// Sees to it that the child is there as it is desired. `found` is what has been found of it; `is_it` says whether another child
    /// is it, too.
    pub(super) fn make(&self, resource: &mut T, found: Vec<C>, desired: C, is_it: &dyn Fn(&C) -> bool) -> Made<C> {
        let mut surplus = Vec::new();
        let child = self.look_again(resource, found, &desired, is_it).and_then(|found| {
            let (kept, extra) = choose(found, &desired.meta().name);
            for child in &extra {
                self.children.remove(self.cx, resource, child)?;
                surplus.extend(kept.as_ref().map(|kept| self.surplus(child, kept)));
            }
            self.manage(resource, kept.as_ref(), desired, is_it)
        });
        Made { child, surplus }
    }

    /// Before a child is created, or one that is too many deleted: a cache that has not heard of it yet must not make for a second one,
    /// nor one that has not heard of its end for none.
    fn look_again(
        &self,
        resource: &T,
        found: Vec<C>,
        desired: &C,
        is_it: &dyn Fn(&C) -> bool,
    ) -> Result<Vec<C>, ClientError> {
        if found.len() == 1 || !self.children.is_cached(self.cx) {
            return Ok(found);
        }
        if found.len() > 1 || desired.meta().name.is_empty() {
            return Ok(self.fresh(resource)?.iter().filter(|child| is_it(child)).cloned().collect());
        }
        let there = self.read(&desired.key())?.map(|json| self.children.if_ours(self.cx, resource, &json));
        Ok(there.transpose()?.flatten().into_iter().filter(|child| is_it(child)).collect())
    }

    fn fresh(&self, resource: &T) -> Result<&[C], ClientError> {
        if let Some(fresh) = self.fresh.get() {
            return Ok(fresh);
        }
        let listed = self.children.list(self.cx, resource, self.cx.config().uncached())?;
        Ok(self.fresh.get_or_init(|| listed))
    }

    fn read(&self, key: &ObjectKey) -> Result<Option<Arc<Value>>, ClientError> {
        self.cx.config().uncached().get(&self.children.kind, key).ignore_not_found()
    }

    fn surplus(&self, extra: &C, kept: &C) -> ClientError {
        let rule = format!(
            "must be {:?}, that of the one such child of {}: it is deleted",
            kept.meta().name,
            self.cx.object()
        );
        ClientError::invalid(extra.object_ref(), "metadata.name", &extra.meta().name, rule)
    }

    fn manage(
        &self,
        resource: &mut T,
        kept: Option<&C>,
        desired: C,
        is_it: &dyn Fn(&C) -> bool,
    ) -> Result<Option<C>, ClientError> {
        let Self { children, cx, .. } = self;
        let (key, again) = (desired.key(), desired.clone());
        let result = self.write(resource, kept, desired);
        if kept.is_some() || !result.as_ref().is_err_and(ClientError::is_already_exists) {
            return result;
        }
        let conflict =
            |reason: &str| Err(ClientError::Conflict { object: again.object_ref(), reason: reason.to_owned() });
        if key.name().is_empty() {
            return conflict("the name that was made for it is another's");
        }
        // Its end is told, whoever's it is.
        cx.track(&children.kind, TrackRef::name(key.clone()));
        let Some(there) = self.read(&key)? else {
            return conflict("it was there as it was to be created, and is gone");
        };
        match children.if_ours(cx, resource, &there)?.filter(is_it) {
            Some(child) => self.write(resource, Some(&child), again),
            None => result,
        }
    }

    fn write(&self, resource: &mut T, current: Option<&C>, desired: C) -> Result<Option<C>, ClientError> {
        let Self { children, cx, .. } = self;
        let known = current.unwrap_or(&desired);
        let is_named = !known.meta().name.is_empty();
        if is_named {
            children.track(cx, known);
        }
        let child = children.manager.manage(cx, resource.meta_mut(), current, Some(desired))?;
        if let (false, Some(created)) = (is_named, &child) {
            children.track(cx, created);
        }
        Ok(child)
    }
}

/// The one that is kept of several, if nothing is to be written.
pub(super) fn foremost<C: Object>(found: Vec<C>) -> Option<C> {
    choose(found, "").0
}

/// Which of these is the child, and which are too many: the one of this name, or the oldest, and of those that are being deleted
/// none if there are others.
fn choose<C: Object>(mut found: Vec<C>, name: &str) -> (Option<C>, Vec<C>) {
    let rank = |child: &C| {
        let meta = child.meta();
        (meta.is_deleting(), meta.name != name, meta.creation_timestamp, child.key())
    };
    found.sort_by_cached_key(rank);
    let mut found = found.into_iter();
    let kept = found.next();
    (kept, found.filter(|child| !child.meta().is_deleting()).collect())
}
