//! The manager: starts the components of a program in order, and stops them together.

mod builder;
mod component;
mod drive;
pub(crate) mod election;
mod handle;
mod lead;
#[cfg(all(unix, feature = "signals"))]
mod signals;
mod state;
mod status;
mod watches;
#[cfg(not(all(unix, feature = "signals")))]
mod without_signals;

pub use self::builder::ManagerBuilder;
pub use self::component::{Component, IntoComponent};
pub use self::election::{Candidate, Elector, ElectorError, Holder, Leadership, Term};
pub use self::handle::{Manager, WeakManager};
pub use self::status::{Health, ManagerStatus};
