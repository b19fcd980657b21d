//! Tools for tests of reconcilers, controllers and clients.
//!
//! - [`SubReconcilerTable`] and [`ReconcilerTable`]: tables of cases, each with its objects and its expected results.
//! - [`AdmissionTable`]: the same for admission hooks.
//! - [`Simulation`]: whole controllers and managers on one thread, in simulated time and an order that a seed
//!   determines.
//! - [`conformance`]: a test suite for clients.
//! - [`ApiServer`]: an API server with scripted answers, in place of a cluster.
//!
//! The [guide] shows [four ways to test](guide::testing), from one call of a reconciler to a whole simulated program.
//!
//! # Tables
//!
//! A [`SubReconcilerTable`] runs one sub-reconciler in many cases, a [`ReconcilerTable`] a whole reconciler. Each case
//! has its own [client](TestClient), tracker, event recorder, stash and held clock. It lists the objects that exist
//! before the run, and the expected writes, events and results, exactly and in order: if a case expects nothing,
//! nothing may happen. A [`Factory`] makes the objects, and a [`Reactor`] makes calls of the client fail.
//!
//! # Examples
//!
//! A sub-reconciler that creates a config map for each app:
//!
//! ```
//! use homeostat_objects::{Api, DynamicObject, EventType, Ignore, Kind, ObjectKey, Verb, set_controller};
//! use homeostat_objects::sub::{ErrorClass, Flow, StashKey, SubContext, SubResult};
//! use homeostat_testing::{Factory, Reactor, SubReconcilerTable, SubReconcilerTestCase};
//! use serde_json::json;
//!
//! const APP: Kind = Kind::namespaced("example.com", "v1", "App");
//! const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap");
//! const COLOURS: StashKey<ObjectKey> = StashKey::new("colours");
//!
//! fn make_colours(cx: &SubContext<'_>, app: &mut DynamicObject) -> SubResult {
//!     let maps = Api::<DynamicObject>::of_kind(cx.config().client().clone(), CONFIG_MAP);
//!     let key = ObjectKey::new(app.namespace(), &format!("{}-colours", app.name()));
//!     if cx.track_and_get(&maps, &key).ignore_not_found()?.is_none() {
//!         let sky = app.pointer("/spec/sky").map_or(json!("blue"), |sky| sky.to_value());
//!         let mut map = DynamicObject::new(&CONFIG_MAP, key.namespace(), key.name()).with("data", json!({"sky": sky}));
//!         set_controller(app, &mut map)?;
//!         maps.create(&map)?;
//!         cx.event(EventType::Normal, "Created", &format!("Created ConfigMap {:?}", key.name()));
//!     }
//!     app.fields_mut().insert("status".to_owned(), json!({"colours": key.name()}));
//!     cx.stash().put(COLOURS, key);
//!     Ok(Flow::proceed())
//! }
//!
//! let app = Factory::dynamic(&APP, "default", "shop");
//! let seen = app.field("/status/colours", "shop-colours");
//! let key = ObjectKey::new("default", "shop-colours");
//! let colours = Factory::config_map("default", "shop-colours").controlled_by(&app).data("sky", "blue");
//!
//! SubReconcilerTable::new([
//!     SubReconcilerTestCase::new("makes them", &app)
//!         .expect_track(&colours, &app)
//!         .expect_create(&colours)
//!         .expect_event(&app, EventType::Normal, "Created", "Created ConfigMap \"shop-colours\"")
//!         .expect_stashed(COLOURS, key.clone())
//!         .expect_resource(&seen),
//!     SubReconcilerTestCase::new("makes them as the app wants them", &app.field("/spec/sky", "grey"))
//!         .expect_track(&colours, &app)
//!         .expect_create(&colours.data("sky", "grey"))
//!         .expect_event(&app, EventType::Normal, "Created", "Created ConfigMap \"shop-colours\"")
//!         .expect_stashed(COLOURS, key.clone())
//!         .expect_resource(&seen.field("/spec/sky", "grey")),
//!     SubReconcilerTestCase::new("leaves them as they are", &app)
//!         .given(&colours.data("sky", "red"))
//!         .expect_track(&colours, &app)
//!         .expect_stashed(COLOURS, key)
//!         .expect_resource(&seen),
//!     SubReconcilerTestCase::new("cannot make them", &app)
//!         .reactor(Reactor::fail(Verb::Create).kind(&CONFIG_MAP))
//!         .expect_track(&colours, &app)
//!         .expect_create(&colours)
//!         .expect_error_class(ErrorClass::Transient),
//! ])
//! .run(|_given| make_colours);
//! ```
//!
//! The report of a case that fails:
//!
//! ```
//! # use homeostat_objects::{DynamicObject, Kind};
//! # use homeostat_objects::sub::{Flow, SubContext, SubResult};
//! # use homeostat_testing::{Factory, SubReconcilerTable, SubReconcilerTestCase};
//! # use serde_json::json;
//! # const APP: Kind = Kind::namespaced("example.com", "v1", "App");
//! # let step = |_: &SubContext<'_>, app: &mut DynamicObject| -> SubResult {
//! #     app.fields_mut()["status"]["colours"] = json!("shop-colours");
//! #     Ok(Flow::proceed())
//! # };
//! let app = Factory::dynamic(&APP, "default", "shop").field("/status/colours", "none");
//! let table = SubReconcilerTable::new([SubReconcilerTestCase::new("stays as it is", &app)]);
//! let report = table.check(|_given| step).unwrap_err();
//! assert_eq!(report.lines().collect::<Vec<_>>(), [
//!     "1 of 1 cases failed",
//!     "case \"stays as it is\":",
//!     "  resource differs (-expected +actual)",
//!     "           \"uid\": \"App.example.com:default/shop\"",
//!     "         },",
//!     "         \"status\": {",
//!     "      -    \"colours\": \"none\"",
//!     "      +    \"colours\": \"shop-colours\"",
//!     "         }",
//!     "       }",
//! ]);
//! ```
//!
//! # Add it to the tests of a program
//!
//! No version is on crates.io yet. These commands use a checkout of the repository, next to the program:
//!
//! ```console
//! cargo add --dev --path ../homeostat/crates/homeostat-testing
//! cargo add --dev serde_json
//! ```
//!
//! The crate has no features.
//!
//! # Other crates
//!
//! [`homeostat`] has the controllers and the held clock, [`ManualClock`](homeostat::ManualClock). [`homeostat_objects`]
//! has the objects, clients and steps that the tables test, and [`homeostat_serve`] the admission hooks.
//! [`homeostat-kubernetes`](https://docs.rs/homeostat-kubernetes) and
//! [`homeostat-nats`](https://docs.rs/homeostat-nats) have clients that pass the suite.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;
mod sync;

mod admission;
mod api_server;
mod case;
mod client;
mod config;
pub mod conformance;
mod difference;
mod factory;
mod machine;
mod rate;
mod reactor;
mod scheduler;
mod simulation;
mod subjects;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;
mod trace;
mod writes;

pub use self::admission::{AdmissionDecision, AdmissionSubject, AdmissionTable, AdmissionTestCase};
pub use self::api_server::{ApiServer, ServerAnswer, ServerRule};
pub use self::case::{CaseContext, Subject, TestCase};
pub use self::client::{TestClient, Write};
pub use self::config::ConfigCase;
pub use self::factory::{Factory, Sample};
pub use self::machine::SimulatedMachine;
pub use self::reactor::{Call, Reactor};
pub use self::simulation::{SimulatedTurn, Simulation};
pub use self::subjects::{
    KeySubject, ReconcilerTable, ReconcilerTestCase, StepSubject, SubReconcilerTable, SubReconcilerTestCase,
};
pub use self::table::Table;

/// A request that an [`ApiServer`] has received.
#[doc(no_inline)]
pub use homeostat_serve::IncomingRequest;

/// The README's code is compiled and run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
