//! A guide in short pages, in the order in which to read them.
//!
//! | page | answers |
//! |---|---|
//! | **begin** | |
//! | [`layers`] | Which layer do I need, and which enqueue method? |
//! | [`from_a_loop`] | How do I replace a loop with `sleep`? |
//! | [`idempotence`] | How do I write a reconciler that may run at any time? |
//! | [`errors`] | How are errors retried, and how do I change that? |
//! | **operators and objects** | |
//! | [`operators`] | Which of three ways to write an operator is mine? |
//! | **operate** | |
//! | [`observability`] | Which logs and metrics are there, and which buckets do dashboards need? |
//! | [`leaders`] | How do I run several processes so that only one works? |
//! | [`production`] | Which checks come before I ship? |
//! | **move from another framework** | |
//! | [`from_easykube`] | I know easykube-runtime. |
//! | [`from_kumori`] | I know Kumori's controllerruntime. |
//! | [`from_openclarity`] | I know openclarity's simple-controller-runtime. |
//!
//! Each page ends with links to the previous and the next page. The pages about other frameworks can be read alone.
//!
//! The code on all pages is compiled, and run if it needs no server. The only exception is an excerpt for another
//! crate.

#[doc = include_str!("layers.md")]
pub mod layers {}
#[doc = include_str!("from_a_loop.md")]
pub mod from_a_loop {}
#[doc = include_str!("idempotence.md")]
pub mod idempotence {}
#[doc = include_str!("errors.md")]
pub mod errors {}
#[doc = include_str!("operators.md")]
pub mod operators {}
#[doc = include_str!("observability.md")]
pub mod observability {}
#[doc = include_str!("leaders.md")]
pub mod leaders {}
#[doc = include_str!("production.md")]
pub mod production {}
#[doc = include_str!("from_easykube.md")]
pub mod from_easykube {}
#[doc = include_str!("from_kumori.md")]
pub mod from_kumori {}
#[doc = include_str!("from_openclarity.md")]
pub mod from_openclarity {}
