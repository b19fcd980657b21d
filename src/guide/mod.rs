//! A guide in short pages, in the order in which to read them.
//!
//! A page about another crate of the family is in the documentation of that crate.
//!
//! | page | crate | answers |
//! |---|---|---|
//! | **begin** | | |
//! | [`layers`] | `homeostat` | Which layer do I need, and which enqueue method? |
//! | [`from_a_loop`] | `homeostat` | How do I replace a loop with `sleep`? |
//! | [`idempotence`] | `homeostat` | How do I write a reconciler that may run at any time? |
//! | [`errors`] | `homeostat` | How are errors retried, and how do I change that? |
//! | [`testing`] | `homeostat-testing` | How do I test without sleeping? |
//! | **operators and objects** | | |
//! | [`operators`] | `homeostat-objects` | Which of three ways to write an operator is mine? |
//! | [`operator`] | `homeostat-kubernetes` | How do I get from an empty directory to an operator in a cluster? |
//! | [`nats`] | `homeostat-nats` | How do I keep objects in NATS? |
//! | **operate** | | |
//! | [`observability`] | `homeostat` | Which logs and metrics are there, and which buckets do dashboards need? |
//! | [`leaders`] | `homeostat` | How do I run several processes so that only one works? |
//! | [`sharding`] | `homeostat-objects` | How do several processes divide keys, and how does one controller serve several stores? |
//! | [`production`] | `homeostat` | Which checks come before I ship? |
//! | [`clients`] | `homeostat-serve` | Which clients work with a served API, and with which settings? |
//! | **move from another framework** | | |
//! | [`from_controller_runtime`] | `homeostat-objects` | I know controller-runtime. |
//! | [`from_kube_rs`] | `homeostat-objects` | I know kube-rs. |
//! | [`from_reconciler_io`] | `homeostat-testing` | I know reconciler.io. |
//! | [`from_easykube`] | `homeostat-objects` | I know easykube-runtime. |
//! | [`from_kumori`] | `homeostat-objects` | I know Kumori's controllerruntime. |
//! | [`from_openclarity`] | `homeostat` | I know openclarity's simple-controller-runtime. |
//!
//! Each page ends with links to the previous and the next page. The pages about other frameworks can be read alone.
//!
//! The code on all pages is compiled, and run if it needs no server. The only exception is an excerpt for another
//! crate.
//!
//! [`testing`]: https://docs.rs/homeostat-testing/latest/homeostat_testing/guide/testing/index.html
//! [`operators`]: https://docs.rs/homeostat-objects/latest/homeostat_objects/guide/operators/index.html
//! [`operator`]: https://docs.rs/homeostat-kubernetes/latest/homeostat_kubernetes/guide/operator/index.html
//! [`nats`]: https://docs.rs/homeostat-nats/latest/homeostat_nats/guide/nats/index.html
//! [`sharding`]: https://docs.rs/homeostat-objects/latest/homeostat_objects/guide/sharding/index.html
//! [`clients`]: https://docs.rs/homeostat-serve/latest/homeostat_serve/guide/clients/index.html
//! [`from_controller_runtime`]:
//! https://docs.rs/homeostat-objects/latest/homeostat_objects/guide/from_controller_runtime/index.html
//! [`from_kube_rs`]: https://docs.rs/homeostat-objects/latest/homeostat_objects/guide/from_kube_rs/index.html
//! [`from_reconciler_io`]:
//! https://docs.rs/homeostat-testing/latest/homeostat_testing/guide/from_reconciler_io/index.html
//! [`from_easykube`]: https://docs.rs/homeostat-objects/latest/homeostat_objects/guide/from_easykube/index.html
//! [`from_kumori`]: https://docs.rs/homeostat-objects/latest/homeostat_objects/guide/from_kumori/index.html

#[doc = include_str!("layers.md")]
pub mod layers {}
#[doc = include_str!("from_a_loop.md")]
pub mod from_a_loop {}
#[doc = include_str!("idempotence.md")]
pub mod idempotence {}
#[doc = include_str!("errors.md")]
pub mod errors {}
#[doc = include_str!("observability.md")]
pub mod observability {}
#[doc = include_str!("leaders.md")]
pub mod leaders {}
#[doc = include_str!("production.md")]
pub mod production {}
#[doc = include_str!("from_openclarity.md")]
pub mod from_openclarity {}
