//! What a step is told.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use jiff::Timestamp;

use super::config::Config;
use super::stash::{Stash, StashError, StashKey, Stashed};
use super::tracking::Tracking;
use crate::base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::objects::{
    Api, ClientError, DynamicObject, EventType, Kind, Object, ObjectKey, ObjectMeta, ObjectRef, TrackRef,
    add_finalizer, reasons, remove_finalizer_of_any,
};
use crate::run::context::Context;

/// What one run is about: the object, and what its steps say to each other. Made by who calls the first step: a
/// [`ResourceReconciler`](super::ResourceReconciler), or a test.
#[derive(Debug)]
pub struct Request {
    /// The object as it was read, without what it wants and has: whatever type a step sees it as.
    subject: DynamicObject,
    reference: ObjectRef,
    /// What the run began with: its client keeps the object.
    config: Config,
    stash: Stash,
    skips_status: AtomicBool,
    tracking: Option<Arc<Tracking>>,
}

impl Request {
    /// A run of this object, which `config`'s client keeps.
    #[must_use]
    pub fn new(object: &impl Object, config: Config) -> Self {
        let (kind, meta) = (object.kind(), object.meta());
        let subject = bare(&kind, meta);
        let reference = ObjectRef::new(&kind, &meta.key());
        let stash = Stash::new(reference.clone());
        Self { subject, reference, config, stash, skips_status: AtomicBool::new(false), tracking: None }
    }

    /// A run of a controller, which remembers the trackers that its runs use.
    pub(super) fn tracked_by(self, tracking: &Arc<Tracking>) -> Self {
        Self { config: tracking.config(&self.config), tracking: Some(Arc::clone(tracking)), ..self }
    }

    /// What the steps say to each other.
    #[must_use]
    pub fn stash(&self) -> &Stash {
        &self.stash
    }

    /// Whether a step has asked for the [status to be left as it is](SubContext::skip_status_update).
    #[must_use]
    pub fn skips_status_update(&self) -> bool {
        self.skips_status.load(Relaxed)
    }
}

/// What a step is told: the [`Context`] of the run, the object that it is about, the [`Config`] to work with, and what steps before it
/// have [stashed](Stash).
///
/// # Examples
///
/// Calling a step by hand:
///
/// ```
/// use homeostat::objects::{DynamicObject, Kind, MemoryClient};
/// use homeostat::sub::{Config, Flow, Request, SubContext, SubReconciler, SubResult};
/// use homeostat::Context;
/// use std::sync::Arc;
///
/// let step = |cx: &SubContext<'_>, app: &mut DynamicObject| -> SubResult {
///     app.fields.insert("seen".to_owned(), cx.now().to_string().into());
///     Ok(Flow::proceed())
/// };
/// let config = Config::new(Arc::new(MemoryClient::new()));
/// let mut app = DynamicObject::new(&Kind::namespaced("example.com", "v1", "App"), "default", "shop");
/// let (cx, request) = (Context::detached(), Request::new(&app, config));
/// step.reconcile(&SubContext::new("app", &cx, &request), &mut app)?;
/// assert!(app.fields.contains_key("seen"));
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
    /// For the first step of a run, in a reconciler of this name.
    #[must_use]
    pub fn new(name: &'a str, cx: &'a Context, request: &'a Request) -> Self {
        Self { name: Cow::Borrowed(name), cx, request, config: Cow::Borrowed(&request.config) }
    }

    /// The same for a step within this one: `function` and `child-image` make `function.child-image`.
    #[must_use]
    pub fn named(&self, name: &str) -> SubContext<'_> {
        SubContext { name: Cow::Owned(format!("{}.{name}", self.name)), ..self.by_ref() }
    }

    /// The same, with another config for the steps within this one. The object itself stays where the run began: so do its
    /// finalizers and its events.
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

    /// The name of this step, behind those of the steps that it is in: for log lines.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The object that the run is about.
    #[must_use]
    pub fn object(&self) -> &ObjectRef {
        &self.request.reference
    }

    /// Its kind, whatever type a [cast](super::CastResource) shows it as.
    #[must_use]
    pub fn kind(&self) -> &Kind {
        self.request.reference.kind()
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> &ObjectKey {
        self.request.reference.key()
    }

    /// The object as it was read, without what it wants and has: its kind and metadata, for owner references.
    #[must_use]
    pub fn subject(&self) -> &DynamicObject {
        &self.request.subject
    }

    /// Whether its deletion had been asked for when it was read.
    #[must_use]
    pub fn is_deleting(&self) -> bool {
        self.request.subject.metadata.is_deleting()
    }

    /// What to work with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the run began with, whatever [`WithConfig`](super::WithConfig) says: its client keeps the object.
    #[must_use]
    pub fn original_config(&self) -> &Config {
        &self.request.config
    }

    /// What steps of this run have left.
    #[must_use]
    pub fn stash(&self) -> &Stash {
        &self.request.stash
    }

    /// What a step before has stashed: [`Stash::require`].
    ///
    /// # Errors
    ///
    /// [`StashError`], which names the object and the key.
    pub fn stashed<V: Stashed + Clone>(&self, key: StashKey<V>) -> Result<V, StashError> {
        self.request.stash.require(key)
    }

    /// The time of day, by the clock of the [config](Self::config).
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.config.clock().time_of_day().try_into().unwrap_or_default()
    }

    /// Calls the object again when such an object of this kind changes. Track first, then read. It holds until the next run of this
    /// object succeeds that does not track the same again.
    pub fn track(&self, kind: &Kind, what: TrackRef) {
        let tracker = self.config.tracker();
        match &self.request.tracking {
            Some(tracking) => tracking.track(tracker, kind, what, self.key()),
            None => tracker.track(kind, what, self.key().clone()),
        }
    }

    /// [Tracks](Self::track) an object by its name, and reads it.
    ///
    /// # Errors
    ///
    /// As [`Api::get`].
    pub fn track_and_get<U: Object>(&self, api: &Api<U>, key: &ObjectKey) -> Result<U, ClientError> {
        self.track(api.kind(), TrackRef::name(key.clone()));
        api.get(key)
    }

    /// Records that something happens to the object.
    pub fn event(&self, event: EventType, reason: &str, message: &str) {
        self.original_config().recorder().event(self.subject(), event, reason, message);
    }

    /// Leaves the status of the object as it is in the client, whatever this run makes of it.
    pub fn skip_status_update(&self) {
        self.request.skips_status.store(true, Relaxed);
    }

    /// Writes that `finalizer` holds the object, if it does not yet, and puts what that changes into `meta`: its metadata.
    ///
    /// # Errors
    ///
    /// As [`add_finalizer`]; an event tells of them.
    pub fn add_finalizer(&self, meta: &mut ObjectMeta, finalizer: &str) -> Result<(), ClientError> {
        if meta.has_finalizer(finalizer) {
            return Ok(());
        }
        self.write_finalizer(meta, finalizer, add_finalizer)
    }

    /// Writes that `finalizer` no longer holds the object, if it does, and puts what that changes into `meta`: its metadata. If the
    /// object has changed since it was read, `meta` keeps its version: what else is written of it is a conflict.
    ///
    /// # Errors
    ///
    /// As [`remove_finalizer`](crate::objects::remove_finalizer), but for an object that is gone; an event tells of them.
    pub fn remove_finalizer(&self, meta: &mut ObjectMeta, finalizer: &str) -> Result<(), ClientError> {
        if !meta.has_finalizer(finalizer) {
            return Ok(());
        }
        match self.write_finalizer(meta, finalizer, |api, held, finalizer| {
            let (mut written, as_read) = remove_finalizer_of_any(api, held, finalizer)?;
            if !as_read {
                // What the run makes of the object that it has read is not of this one: let it be a conflict.
                written.metadata.resource_version.clone_from(&held.metadata.resource_version);
                written.metadata.generation = held.metadata.generation;
            }
            Ok(written)
        }) {
            Err(ClientError::NotFound { .. }) => {
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
        let api = Api::of_kind(self.original_config().client().clone(), self.kind().clone());
        match write(&api, &bare(self.kind(), meta), finalizer) {
            Ok(written) => {
                meta.finalizers = written.metadata.finalizers;
                meta.resource_version = written.metadata.resource_version;
                meta.generation = written.metadata.generation;
                self.event(EventType::Normal, reasons::FINALIZER_PATCHED, &format!("Patched finalizer {finalizer:?}"));
                Ok(())
            }
            Err(error) => {
                // Somebody else has written, or the object is gone: the next run will see it.
                if !error.is_not_found() && !error.is_conflict() {
                    let message = format!("Failed to patch finalizer {finalizer:?}: {error}");
                    self.event(EventType::Warning, reasons::FINALIZER_PATCH_FAILED, &message);
                }
                Err(error)
            }
        }
    }
}

/// An object of this kind that says nothing but its metadata.
fn bare(kind: &Kind, meta: &ObjectMeta) -> DynamicObject {
    DynamicObject { metadata: meta.clone(), ..DynamicObject::new(kind, "", "") }
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
