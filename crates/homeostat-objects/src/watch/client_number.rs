//! Numbers of clients, for names that stay the same over starts of a program.

use std::sync::{Arc, LazyLock, Weak};

use crate::client::Client;
use crate::sync::Mutex;

/// The clients by number. A number is free again once its client has been dropped.
type KnownClients = Vec<Weak<dyn Client>>;

static CLIENTS: LazyLock<Mutex<KnownClients>> = LazyLock::new(Mutex::default);

/// Returns the number of a client in this process: 0 for the first client, and so on.
pub(super) fn client_number(client: &Arc<dyn Client>) -> usize {
    number_among(&mut CLIENTS.lock(), client)
}

fn number_among(known: &mut KnownClients, client: &Arc<dyn Client>) -> usize {
    // A weak reference keeps the address, so no other client can have it.
    if let Some(number) = known.iter().position(|of| std::ptr::addr_eq(of.as_ptr(), Arc::as_ptr(client))) {
        return number;
    }
    let number = known.iter().position(|of| of.strong_count() == 0).unwrap_or(known.len());
    match known.get_mut(number) {
        Some(free) => *free = Arc::downgrade(client),
        None => known.push(Arc::downgrade(client)),
    }
    number
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stable_hash::stable_hash;
    use crate::{Api, DynamicObject, Kind, MemoryClient, Query};

    #[test]
    fn the_name_of_a_shared_watch_has_the_number_of_its_client_not_its_address() {
        let client: Arc<dyn Client> = Arc::new(MemoryClient::new());
        let kind = Kind::namespaced("example.com", "v1", "Thing");
        let api = Api::<DynamicObject>::of_kind(Arc::clone(&client), kind.clone());
        let of_type = std::any::type_name::<DynamicObject>();
        let hash = stable_hash(&[&client_number(&client).to_string(), &kind.to_string(), of_type, ""]);
        assert_eq!(super::super::watch_name(&api, &Query::all()), format!("things-{hash}"));
    }

    #[test]
    fn each_client_keeps_its_number_and_frees_it_at_its_end() {
        let mut known = KnownClients::new();
        let clients: [Arc<dyn Client>; 3] = std::array::from_fn(|_| Arc::new(MemoryClient::new()) as _);
        for _ in 0..2 {
            assert_eq!([0, 1, 2].map(|at: usize| number_among(&mut known, &clients[at])), [0, 1, 2]);
        }
        let [first, second, third] = clients;
        drop(second);
        let next: Arc<dyn Client> = Arc::new(MemoryClient::new());
        assert_eq!([&first, &next, &third].map(|client| number_among(&mut known, client)), [0, 1, 2]);
        assert_eq!(known.len(), 3);
    }
}
