//! The manager: starts the components of a program in order, and stops them together.

mod builder;
mod component;
mod drive;
pub(crate) mod election;
mod error;
mod handle;
mod lead;
mod member;
#[cfg(feature = "serve")]
mod metrics;
mod removal;
mod running;
#[cfg(all(unix, feature = "signals"))]
mod signals;
mod start;
mod state;
mod status;
mod watches;

pub use self::builder::ManagerBuilder;
pub use self::component::Component;
pub use self::election::{
    AlwaysLeader, Candidacy, Candidate, Elector, ElectorError, FileElector, Holder, Leadership, LeadershipLost, Term,
};
pub use self::error::ManagerError;
pub use self::handle::Manager;
#[cfg(feature = "serve")]
pub(crate) use self::handle::WeakManager;
#[cfg(feature = "serve")]
pub(crate) use self::metrics::{ManagerMetrics, NamedMetrics};
pub use self::removal::RemoveError;
pub use self::status::{Health, ManagerStatus};
