//! The kinds of keys that the benches use.

use std::fmt::Debug;
use std::sync::Arc;

use homeostat::Key;

/// A kind of key.
pub(crate) trait BenchKey: Key + Sync + Debug {
    /// The name in the results.
    const NAME: &'static str;

    /// Returns key number `n`.
    fn number(n: usize) -> Self;

    /// Returns `count` different keys.
    fn distinct(count: usize) -> Vec<Self> {
        (0..count).map(Self::number).collect()
    }
}

impl BenchKey for u64 {
    const NAME: &'static str = "u64";

    fn number(n: usize) -> Self {
        n as Self
    }
}

impl BenchKey for String {
    const NAME: &'static str = "string";

    fn number(n: usize) -> Self {
        format!("default/virtual-machine-{n:08}")
    }
}

impl BenchKey for Arc<str> {
    const NAME: &'static str = "arc-str";

    fn number(n: usize) -> Self {
        String::number(n).into()
    }
}
