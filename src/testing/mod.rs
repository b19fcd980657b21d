//! For tests of reconcilers, of back ends, and of what is built on them. Feature `testing`.

mod client;
pub mod conformance;
mod factory;
mod reactor;

pub use self::client::{TestClient, Write};
pub use self::factory::{Factory, Sample};
pub use self::reactor::{Call, Reactor, Verb};
