//! The served kinds: their names, columns, schemas and hooks.

mod column;
mod core_event;
mod json_path;
mod presets;
mod registry;
mod resource;

pub use self::column::PrintColumn;
pub use self::registry::RegistryError;
pub use self::resource::ServedResource;

pub(crate) use self::core_event::{core_event, stored_path};
pub(crate) use self::presets::NAMESPACE;
pub(crate) use self::registry::KindRegistry;
pub(crate) use self::resource::ObjectSource;
