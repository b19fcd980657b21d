//! Cases with their own servers, which they kill, restore and overload.

#[cfg(target_os = "linux")]
mod divided;
mod many_objects;
mod restarts;
mod rotation;
mod soak;
