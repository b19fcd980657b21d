//! Sub-reconcilers, each by itself and put together, on the embedded client.

mod support;
