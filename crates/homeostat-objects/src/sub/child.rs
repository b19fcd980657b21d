//! A step that keeps one child.

use std::fmt;

use super::SubReconciler;
use super::children::{ChildRun, ChildSettings, DesiredChild, WrittenChild, child_settings};
use super::context::SubContext;
use super::flow::{SubResult, both};
use super::manager::ObjectManager;
use super::setup::Setup;
use crate::dependents::foremost;
use crate::{ClientError, Kind, Object, Query};
use homeostat::run::{BoxError, terminal};

/// Keeps one object of a kind for its owner: the *child*. It creates, updates and deletes the child, and copies its
/// state into the status of the owner.
///
/// Each run for an owner that is not being deleted:
///
/// 1. finds the children: the objects in the owner's namespace with a controller reference to the owner. See also
///    [`listed_by`](Self::listed_by), [`indexed`](Self::indexed), [`tracked`](Self::tracked) and [`ours`](Self::ours);
/// 2. calls `desired`;
/// 3. lets the [manager](ObjectManager) write the child, with the owner as its controller;
/// 4. calls `reflect` with the child as the client returned it, with `None` if there is no child, or with a
///    [reflected](Self::reflects) error. The run fails with any other error.
///
/// # Existing objects
///
/// - A stale cache does not cause a second child. Before the step creates a child or deletes a surplus one, it lists
///   the children in the [`uncached`](super::Config::uncached) client. It does so if that is a separate client, or if
///   children are [indexed](Self::indexed).
/// - An object that has the child's name but is not a child of the owner is not touched. The result is
///   [`AlreadyExists`](crate::ClientErrorKind::AlreadyExists), and a change of that object enqueues the owner.
/// - If there are several children, one stays: the one with the desired name, or the oldest. The others are deleted,
///   with an error for each, so that the next run finds one. A child that is already being deleted is not surplus.
/// - An existing child keeps its name, even if another name is desired.
/// - If a backup is restored without owner references, its children have no owner, and the step does not take them. In
///   that case, restore the owners first. Then [set](crate::set_controller) each owner as the controller of
///   its children before the controller starts. References with the uids of the old owners are worse: the garbage
///   collector deletes such children.
///
/// # Invalid children
///
/// The desired child must be in the owner's namespace, must not have another controller, and [`ours`](Self::ours) must
/// accept it. Otherwise nothing is written, and the run fails with a terminal
/// [`Invalid`](crate::ClientErrorKind::Invalid).
///
/// # Deletion of the owner
///
/// The garbage collector deletes the children of an owner that is being deleted. The step deletes them itself if they
/// are [tracked](Self::tracked) or if the manager has a [finalizer](super::UpdatingObjectManager::finalizer). It reads
/// them from the uncached client, and removes the finalizer after the last one. Neither closure is called. Children
/// that are not tracked stay if the owner is deleted with [`Propagation::Orphan`](crate::Propagation::Orphan).
///
/// # Examples
///
/// ```
/// use homeostat_objects::{Api, ClientError, MemoryClient, ObjectMeta};
/// use homeostat_objects::sub::{
///     ChildReconciler, Config, Flow, Request, SubContext, SubReconciler, UpdatingObjectManager,
/// };
/// use homeostat::Context;
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Function {
///     metadata: ObjectMeta,
///     source: Option<String>,
///     #[serde(default)]
///     status: FunctionStatus,
/// }
///
/// #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
/// struct FunctionStatus {
///     image: Option<String>,
/// }
///
/// #[derive(Clone, Debug, Serialize, Deserialize)]
/// struct Image {
///     metadata: ObjectMeta,
///     source: String,
/// }
///
/// homeostat_objects::object!(Function, namespaced, "example.com", "v1", status: FunctionStatus);
/// homeostat_objects::object!(Image, namespaced, "example.com", "v1");
///
/// let child_image = ChildReconciler::new(
///     |_cx, function: &mut Function| {
///         let name = format!("{}-image", function.metadata.name);
///         let metadata = ObjectMeta::new(&function.metadata.namespace, name);
///         Ok(function.source.clone().map(|source| Image { metadata, source }).into())
///     },
///     |_cx, function, image: Result<Option<&Image>, &ClientError>| {
///         function.status.image = image.ok().flatten().map(|image| image.metadata.name.clone());
///         Ok(Flow::proceed())
///     },
///     UpdatingObjectManager::new(|current: &mut Image, desired| current.source.clone_from(&desired.source)),
/// );
///
/// let client = Arc::new(MemoryClient::new());
/// let (metadata, source) = (ObjectMeta::new("default", "square"), Some("git.example.com/square".to_owned()));
/// let mut square = Api::new(client.clone()).create(&Function { metadata, source, status: Default::default() })?;
/// let (cx, request) = (Context::detached(), Request::new(&square, Config::new(client.clone())));
/// child_image.reconcile(&SubContext::new("function", &cx, &request), &mut square)?;
/// assert_eq!(square.status.image.as_deref(), Some("square-image"));
/// assert_eq!(Api::<Image>::new(client).list(&Default::default())?.items.len(), 1);
/// # Ok::<_, homeostat::BoxError>(())
/// ```
#[must_use]
pub struct ChildReconciler<T, C> {
    name: String,
    settings: ChildSettings<T, C>,
    desired: DesireChild<T, C>,
    reflect: ReflectChild<T, C>,
}

type DesireChild<T, C> = Box<dyn Fn(&SubContext<'_>, &mut T) -> Result<DesiredChild<C>, BoxError> + Send + Sync>;
type ReflectChild<T, C> =
    Box<dyn Fn(&SubContext<'_>, &mut T, Result<Option<&C>, &ClientError>) -> SubResult + Send + Sync>;

impl<T: Object, C: Object> ChildReconciler<T, C> {
    /// Creates a step for children of type `C`, with closures for the desired child and the owner's status.
    ///
    /// Does not compile for a [`DynamicObject`](crate::DynamicObject): see [`of_kind`](Self::of_kind).
    pub fn new(
        desired: impl Fn(&SubContext<'_>, &mut T) -> Result<DesiredChild<C>, BoxError> + Send + Sync + 'static,
        reflect: impl Fn(&SubContext<'_>, &mut T, Result<Option<&C>, &ClientError>) -> SubResult + Send + Sync + 'static,
        manager: impl ObjectManager<C> + 'static,
    ) -> Self {
        const { C::KIND.assert_known() };
        Self::of_kind(C::KIND, desired, reflect, manager)
    }

    /// Creates a step for children of this kind, for types that have no fixed kind.
    pub fn of_kind(
        kind: Kind,
        desired: impl Fn(&SubContext<'_>, &mut T) -> Result<DesiredChild<C>, BoxError> + Send + Sync + 'static,
        reflect: impl Fn(&SubContext<'_>, &mut T, Result<Option<&C>, &ClientError>) -> SubResult + Send + Sync + 'static,
        manager: impl ObjectManager<C> + 'static,
    ) -> Self {
        Self {
            name: format!("child-{}", kind.plural()),
            settings: ChildSettings::new(kind, manager),
            desired: Box::new(desired),
            reflect: Box::new(reflect),
        }
    }
}

child_settings!(ChildReconciler);

impl<T: Object, C: Object> SubReconciler<T> for ChildReconciler<T, C> {
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
        let (child, surplus) = match (self.desired)(cx, resource)? {
            DesiredChild::AsItIs => (Ok(foremost(found)), Vec::new()),
            DesiredChild::Nothing => (children.delete_all(resource, found).map(|()| None), Vec::new()),
            DesiredChild::This(desired) => {
                let desired = children.claim(resource, desired).map_err(terminal)?;
                let WrittenChild { child, surplus } = children.write(resource, found, Some(desired), &|_| true);
                (child, surplus)
            }
        };
        let result = match child {
            Ok(child) => (self.reflect)(cx, resource, Ok(child.as_ref())),
            Err(error) if children.is_reflected(&error) => (self.reflect)(cx, resource, Err(&error)),
            Err(error) => Err(error.into()),
        };
        surplus.into_iter().fold(result, |result, error| both(result, Err(error.into())))
    }
}

impl<T, C> fmt::Debug for ChildReconciler<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildReconciler")
            .field("name", &self.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
