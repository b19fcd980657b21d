//! Tests of the feature `serve`.

mod status;
