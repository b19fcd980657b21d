//! The machine of a group in random worlds.
