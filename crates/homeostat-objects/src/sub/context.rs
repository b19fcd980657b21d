//! The context of a step: the run, the object and the tools.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;

use super::config::Config;
use super::stash::{Stash, StashError, StashKey, Stashed};
use super::tracking::Tracking;
use crate::dependents::check_term;
use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::{
    Api, ClientError, DynamicObject, EventType, Kind, Object, ObjectKey, ObjectMeta, ObjectRef, TrackRef,
    add_finalizer, reasons, remove_finalizer_of_any,
};
use homeostat::rt::Chain;
use homeostat::run::Context;

/// One run of the steps for one object. It holds the object as it was read, and the values that the steps stash.
///
/// A [`ResourceReconciler`](super::ResourceReconciler) creates it for each run. Create one yourself to call a step in a
/// test.
#[derive(Debug)]
pub struct Request {
    /// The kind and metadata of the object as it was read. A cast does not change them.
    subject: DynamicObject,
    reference: ObjectRef,
    /// The config of the run. Its client stores the object.
    config: Config,
    stash: Stash,
    skips_status: AtomicBool,
    tracking: Option<Arc<Tracking>>,
}

impl Request {
    /// Creates a run for an object that the client of `config` stores.
    #[must_use]
    pub fn new(object: &impl Object, config: Config) -> Self {
        let (kind, meta) = (object.kind(), object.meta());
        let subject = bare(&kind, &meta);
        let reference = ObjectRef::new(&kind, &meta.key());
        let stash = Stash::new(reference.clone());
        Self { subject, reference, config, stash, skips_status: AtomicBool::new(false), tracking: None }
    }

    /// Connects the run to its controller, which remembers the trackers that its runs use.
    pub(super) fn tracked_by(self, tracking: &Arc<Tracking>) -> Self {
        Self { config: tracking.config(&self.config), tracking: Some(Arc::clone(tracking)), ..self }
    }

    /// Returns the values that the steps have stashed.
    #[must_use]
    pub fn stash(&self) -> &Stash {
        &self.stash
    }

    /// Returns whether a step has called [`SubContext::skip_status_update`].
    #[must_use]
    pub fn skips_status_update(&self) -> bool {
        self.skips_status.load(Relaxed)
    }
}

/// The context of a step. It holds the [`Context`] of the run, a reference to the object, the [`Config`] and the
/// [`Stash`].
///
/// # Examples
///
/// Call a step in a test:
///
/// ```
/// use homeostat_objects::{DynamicObject, Kind, MemoryClient};
/// use homeostat_objects::sub::{Config, Flow, Request, SubContext, SubReconciler, SubResult};
/// use homeostat::Context;
/// use std::sync::Arc;
///
/// let step = |cx: &SubContext<'_>, app: &mut DynamicObject| -> SubResult {
///     app.fields_mut().insert("seen".to_owned(), cx.now().to_string().into());
///     Ok(Flow::proceed())
/// };
/// let config = Config::new(Arc::new(MemoryClient::new()));
/// let mut app = DynamicObject::new(&Kind::namespaced("example.com", "v1", "App"), "default", "shop");
/// let (cx, request) = (Context::detached(), Request::new(&app, config));
/// step.reconcile(&SubContext::new("app", &cx, &request), &mut app)?;
/// assert!(app.get("seen").is_some());
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[derive(Clone)]
pub struct SubContext<'a> {
    name: Cow<'a, str>,
    cx: &'a Context,
    request: &'a Request,
    config: Cow<'a, Config>,
}

impl<'a> SubContext<'a> {
    /// Creates the context of the outermost step, in a reconciler with this name.
    #[must_use]
    pub fn new(name: &'a str, cx: &'a Context, request: &'a Request) -> Self {
        Self { name: Cow::Borrowed(name), cx, request, config: Cow::Borrowed(&request.config) }
    }

    /// Returns the context of an inner step. Names are joined: `function` and `child-image` make
    /// `function.child-image`.
    #[must_use]
    pub fn named(&self, name: &str) -> SubContext<'_> {
        SubContext { name: Cow::Owned(format!("{}.{name}", self.name)), ..self.by_ref() }
    }

    /// Returns the context with another config for inner steps.
    ///
    /// The object itself stays in the client of the original config, together with its finalizers and events.
    #[must_use]
    pub fn with_config(&self, config: Config) -> SubContext<'_> {
        SubContext { config: Cow::Owned(config), ..self.by_ref() }
    }

    fn by_ref(&self) -> SubContext<'_> {
        SubContext {
            name: Cow::Borrowed(&*self.name),
            cx: self.cx,
            request: self.request,
            config: Cow::Borrowed(&*self.config),
        }
    }

    /// Returns the name of this step for log lines, after the names of its outer steps.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a reference to the reconciled object.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        &self.request.reference
    }

    /// Returns the kind of the reconciled object. A [cast](super::CastResource) does not change it.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        self.request.reference.kind()
    }

    /// Returns the key of the reconciled object.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        self.request.reference.key()
    }

    /// Returns the kind and metadata of the object as it was read, for owner references. Spec and status are missing.
    #[must_use]
    pub fn subject(&self) -> &DynamicObject {
        &self.request.subject
    }

    /// Returns whether the object was being deleted when it was read.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.request.subject.meta().is_deleting()
    }

    /// Returns the config of this step.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the config of the run, ignoring [`WithConfig`](super::WithConfig). Its client stores the object.
    #[must_use]
    pub fn original_config(&self) -> &Config {
        &self.request.config
    }

    /// Returns the values that earlier steps of this run have stashed.
    #[must_use]
    pub fn stash(&self) -> &Stash {
        &self.request.stash
    }

    /// Returns a copy of a value that an earlier step has stashed. See [`Stash::require`].
    ///
    /// # Errors
    ///
    /// [`StashError`], which names the object and the key.
    pub fn stashed<V: Stashed + Clone>(&self, key: StashKey<V>) -> Result<V, StashError> {
        self.request.stash.require(key)
    }

    /// Returns the time of day by the clock of the [config](Self::config).
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.config.clock().time_of_day().try_into().unwrap_or_default()
    }

    /// Enqueues the reconciled object again when an object of this kind that `what` selects changes.
    ///
    /// Track the object first, then read it. The track stays until a later run of this object succeeds without
    /// repeating it.
    pub fn track(&self, kind: &Kind, what: TrackRef) {
        let tracker = self.config.tracker();
        match &self.request.tracking {
            Some(tracking) => tracking.track(tracker, kind, what, self.key()),
            None => tracker.track(kind, what, self.key().clone()),
        }
    }

    /// [Tracks](Self::track) an object by name, and reads it.
    ///
    /// # Errors
    ///
    /// The same as for [`Api::get`].
    pub fn track_and_get<U: Object>(&self, api: &Api<U>, key: &ObjectKey) -> Result<U, ClientError> {
        self.track(api.kind(), TrackRef::name(key.clone()));
        api.get(key)
    }

    /// Records an event of the reconciled object.
    pub fn event(&self, event: EventType, reason: &str, message: &str) {
        self.original_config().recorder().event(self.subject(), event, reason, message);
    }

    /// Skips the write of the status at the end of this run.
    pub fn skip_status_update(&self) {
        self.request.skips_status.store(true, Relaxed);
    }

    /// Adds `finalizer` to the stored object, unless `meta`, its metadata, has it already. Updates `meta`.
    ///
    /// # Errors
    ///
    /// The errors of [`add_finalizer`]. If the object is gone, the error is a conflict. Errors other than conflicts are
    /// recorded as events.
    pub fn add_finalizer(&self, meta: &mut ObjectMeta, finalizer: &str) -> Result<(), ClientError> {
        if meta.has_finalizer(finalizer) {
            return Ok(());
        }
        self.write_finalizer(meta, finalizer, |api, held, finalizer| {
            add_finalizer(api, held, finalizer).map_err(ClientError::conflict_if_gone)
        })
    }

    /// Removes `finalizer` from the stored object if `meta`, its metadata, has it. Updates `meta`.
    ///
    /// If the object has changed since it was read, `meta` keeps its old version. Later writes of this run then fail
    /// with a conflict.
    ///
    /// # Errors
    ///
    /// The errors of [`remove_finalizer`](crate::remove_finalizer). If the object is gone, the call succeeds.
    /// Errors other than conflicts are recorded as events.
    pub fn remove_finalizer(&self, meta: &mut ObjectMeta, finalizer: &str) -> Result<(), ClientError> {
        if !meta.has_finalizer(finalizer) {
            return Ok(());
        }
        match self.write_finalizer(meta, finalizer, |api, held, finalizer| {
            let (mut written, as_read) = remove_finalizer_of_any(api, held, finalizer)?;
            if !as_read {
                // The run has read an older version. Writes based on it must fail with a conflict.
                let (mut meta, held) = (written.meta_mut(), held.meta());
                meta.resource_version.clone_from(&held.resource_version);
                meta.generation = held.generation;
            }
            Ok(written)
        }) {
            Err(error) if error.is_not_found() => {
                meta.finalizers.retain(|other| other != finalizer);
                Ok(())
            }
            other => other,
        }
    }

    fn write_finalizer(
        &self,
        meta: &mut ObjectMeta,
        finalizer: &str,
        write: fn(&Api<DynamicObject>, &DynamicObject, &str) -> Result<DynamicObject, ClientError>,
    ) -> Result<(), ClientError> {
        check_term(self, self.object())?;
        let api = Api::of_kind(self.original_config().client().clone(), self.kind().clone());
        match write(&api, &bare(self.kind(), meta), finalizer) {
            Ok(written) => {
                let written = written.meta();
                meta.finalizers.clone_from(&written.finalizers);
                meta.resource_version.clone_from(&written.resource_version);
                meta.generation = written.generation;
                self.event(EventType::Normal, reasons::FINALIZER_PATCHED, &format!("Patched finalizer {finalizer:?}"));
                Ok(())
            }
            Err(error) => {
                // The object has changed or is gone. The next run reads it again.
                if !error.is_not_found() && !error.is_conflict() {
                    let message = format!("Failed to patch finalizer {finalizer:?}: {}", Chain(&error));
                    self.event(EventType::Warning, reasons::FINALIZER_PATCH_FAILED, &message);
                }
                Err(error)
            }
        }
    }
}

/// Returns an object with this kind and metadata, and no other fields.
fn bare(kind: &Kind, meta: &ObjectMeta) -> DynamicObject {
    let mut object = DynamicObject::new(kind, "", "");
    *object.meta_mut() = meta.clone();
    object
}

impl Deref for SubContext<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.cx
    }
}

impl fmt::Debug for SubContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubContext")
            .field("name", &self.name)
            .field("object", self.object())
            .field("run", self.cx)
            .finish_non_exhaustive()
    }
}
