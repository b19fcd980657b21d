//! The conformance suite for the crate's own clients, one test for each case.

use std::sync::Arc;

use homeostat_objects::{Client, MemoryClient};
use homeostat_testing::conformance::Backend;

mod broken;
mod layers;
mod slow;
mod suite;

/// An in-memory client with a history long enough for all cases.
struct Memory;

impl Backend for Memory {
    fn client(&self) -> Arc<dyn Client> {
        Arc::new(MemoryClient::builder().history(170).build())
    }

    fn history(&self) -> Option<usize> {
        Some(170)
    }
}

mod memory {
    homeostat_testing::conformance_tests!(super::Memory);
}

/// An in-memory client with a short history and without a garbage collector.
struct Plain;

impl Backend for Plain {
    fn client(&self) -> Arc<dyn Client> {
        Arc::new(MemoryClient::builder().history(3).cascade(false).build())
    }

    fn history(&self) -> Option<usize> {
        Some(3)
    }
}

mod file {
    use std::sync::Arc;

    use homeostat_objects::{Client, FileClient};
    use homeostat_testing::conformance::Backend;

    struct File;

    impl Backend for File {
        /// The folder is removed as soon as the file is open.
        #[expect(clippy::unwrap_used, reason = "without a file there is no test")]
        fn client(&self) -> Arc<dyn Client> {
            let folder = tempfile::tempdir().unwrap();
            Arc::new(FileClient::builder().history(170).open(folder.path().join("objects.redb")).unwrap())
        }

        fn history(&self) -> Option<usize> {
            Some(170)
        }
    }

    homeostat_testing::conformance_tests!(File);
}
