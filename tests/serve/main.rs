//! Tests of the feature `serve`.
