//! Cases with servers of their own, which they kill, restore and overload.

mod many_objects;
mod restarts;
mod rotation;
mod soak;
