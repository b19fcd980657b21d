//! What is built on any client: finalizers, garbage collection, events, tracking.

mod tracker;
