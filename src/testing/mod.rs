//! For tests of reconcilers, of back ends, and of what is built on them. Feature `testing`.
//! For tests of back ends, and of what is built on them. Feature `testing`.
//!
//! - [`conformance`]: one suite for all clients of objects.
//! - [`Simulation`]: whole controllers on one thread and simulated time, in an order that a seed decides.

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
mod simulation;

pub use self::simulation::{Simulation, Step};
