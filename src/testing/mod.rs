//! For tests of reconcilers, of back ends, and of what is built on them. Feature `testing`.

mod case;
mod client;
mod config;
pub mod conformance;
mod difference;
mod factory;
mod reactor;
mod subjects;
mod table;
mod writes;

pub use self::case::{Given, Subject, TestCase};
pub use self::client::{TestClient, Write};
pub use self::config::ConfigCase;
pub use self::factory::{Factory, Sample};
pub use self::reactor::{Call, Reactor, Verb};
pub use self::subjects::{Keyed, ReconcilerTable, ReconcilerTestCase, Step, SubReconcilerTable, SubReconcilerTestCase};
pub use self::table::Table;
