//! The step that has one child.

use std::fmt;

use super::SubReconciler;
use super::children::{ChildRun, ChildSettings, DesiredChild, Written, child_settings};
use super::context::SubContext;
use super::flow::{SubResult, both};
use super::manager::ObjectManager;
use super::setup::Setup;
use crate::objects::dependents::foremost;
use crate::objects::{ClientError, Kind, Object, Query};
use crate::run::error::{BoxError, terminal};

/// A step that sees to one object of a kind, the *child*: creates it, keeps it as it is desired, deletes it, and reflects in the status
/// of its owner what has become of it.
///
/// One run, of an owner that lives:
///
/// 1. the children are looked for: those that the owner manages by its controller reference, in its namespace. Other ways are
///    [`listed_by`](Self::listed_by), [`indexed`](Self::indexed) and [`tracked`](Self::tracked); [`ours`](Self::ours) leaves some
///    out;
/// 2. `desired` says what is desired;
/// 3. the [manager](ObjectManager) makes it so. The child gets the owner as its controller, unless it names it itself;
/// 4. `reflect` is given the child as the client returned it, `None` if there is none, or the error, if it is one of those that are
///    [reflected](Self::reflects). Others are those of the run.
///
/// # What is there already
///
/// - Where [`uncached`](super::Config::uncached) is another client, or children are [indexed](Self::indexed), it is asked before a child
///   is created, or deleted because there are several: one that a cache has not heard of yet is not made a second time.
/// - An object that has the name of the child and is not one of the owner's is not touched: that is
///   [`AlreadyExists`](ClientError::AlreadyExists), and the owner is reconciled when that object changes.
/// - Of several children, where one is desired, the one that is kept has the desired name, or was created first. The others
///   are deleted, and each is an error of the run, beside what the kept one has come to: the next run finds one. A child that is being
///   deleted is not one too many.
/// - An existing child keeps its name, whatever name is desired.
///
/// # What is desired and cannot be
///
/// A child in another namespace than its owner, one that another object manages, or one of which [`ours`](Self::ours) says that it is none:
/// nothing is written, and the run fails with [`ClientError::Invalid`], for good.
///
/// # The end of the owner
///
/// The children of an owner that is being deleted are left to the garbage collection. But if they are
/// [tracked](Self::tracked), or if the manager has a [finalizer](super::UpdatingObjectManager::finalizer), they are deleted, as
/// the uncached client has them, and the finalizer is removed once none is left. Neither closure is called.
///
/// # Examples
///
/// ```
/// use homeostat::objects::{Api, ClientError, MemoryClient, ObjectMeta};
/// use homeostat::sub::{ChildReconciler, Config, Flow, Request, SubContext, SubReconciler, UpdatingObjectManager};
/// use homeostat::Context;
/// use serde::{Deserialize, Serialize};
/// use std::sync::Arc;
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Function {
///     metadata: ObjectMeta,
///     source: Option<String>,
///     #[serde(default)]
///     status: FunctionStatus,
/// }
///
/// #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
/// struct FunctionStatus {
///     image: Option<String>,
/// }
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Image {
///     metadata: ObjectMeta,
///     source: String,
/// }
///
/// homeostat::object!(Function, namespaced, "example.com", "v1", status: FunctionStatus);
/// homeostat::object!(Image, namespaced, "example.com", "v1");
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
    /// For a child of this type: what is desired of it, what its owner's status says of it, and who makes it so.
    ///
    /// Does not compile for a [`DynamicObject`](crate::objects::DynamicObject): see [`of_kind`](Self::of_kind).
    pub fn new(
        desired: impl Fn(&SubContext<'_>, &mut T) -> Result<DesiredChild<C>, BoxError> + Send + Sync + 'static,
        reflect: impl Fn(&SubContext<'_>, &mut T, Result<Option<&C>, &ClientError>) -> SubResult + Send + Sync + 'static,
        manager: impl ObjectManager<C> + 'static,
    ) -> Self {
        const { C::KIND.assert_known() };
        Self::of_kind(C::KIND, desired, reflect, manager)
    }

    /// The same for a child of this kind, whose type does not say it.
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
                let Written { child, surplus } = children.write(resource, found, Some(desired), &|_| true);
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
