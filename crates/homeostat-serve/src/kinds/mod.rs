//! The served kinds: their definitions, compiled, and their hooks.

mod column;
mod core_event;
mod presets;
mod registry;
mod resource;

pub use self::resource::ServedResource;

pub(crate) use self::column::ServedColumn;
pub(crate) use self::core_event::{CORE_EVENT, STORED_EVENT, core_event, core_path, stored_event, stored_selector};
pub(crate) use self::presets::NAMESPACE;
pub(crate) use self::registry::KindRegistry;
pub(crate) use self::resource::ObjectSource;
