//! For tests of reconcilers, of back ends, and of what is built on them. Feature `testing`.
//!
//! - [`SubReconcilerTestCase`] and [`ReconcilerTestCase`], in tables: what is given, and all that is expected.
//! - [`TestClient`], [`Reactor`] and [`Factory`]: objects as they are given, and calls that fail.
//! - [`Simulation`]: whole controllers on one thread and simulated time, in an order that a seed decides.
//! - [`conformance`]: one suite for all clients of objects.

mod case;
mod client;
mod config;
pub mod conformance;
mod difference;
mod factory;
mod reactor;
mod simulation;
mod subjects;
mod table;
mod writes;

pub use self::case::{Given, Subject, TestCase};
pub use self::client::{TestClient, Write};
pub use self::config::ConfigCase;
pub use self::factory::{Factory, Sample};
pub use self::reactor::{Call, Reactor, Verb};
pub use self::simulation::{Simulation, Turn};
pub use self::subjects::{Keyed, ReconcilerTable, ReconcilerTestCase, Step, SubReconcilerTable, SubReconcilerTestCase};
pub use self::table::Table;
