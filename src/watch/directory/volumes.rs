//! The volumes of a listing, so that the next listing notices an unmounted one: its directory is still there, but empty.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::entry::FolderId;
use super::tree::Folder;

/// The mounted file systems of the last listing that succeeded.
#[derive(Clone, Debug, Default)]
pub(super) struct Volumes {
    /// `None` before that listing.
    root: Option<RootVolume>,
    /// The mount points below the root.
    below: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug)]
struct RootVolume {
    id: FolderId,
    mount: u64,
    /// The path of the root without symbolic links.
    path: PathBuf,
    /// The mounts of the directories above the root, except for its own.
    outside: Vec<u64>,
}

impl Volumes {
    /// Returns whether the root is now outside of the volume that it was on.
    pub(super) fn has_lost_root(&self, path: &Path, root: &Folder) -> bool {
        self.root.as_ref().is_some_and(|before| {
            before.outside.contains(&root.mount) && path.canonicalize().is_ok_and(|now| now == before.path)
        })
    }

    /// Returns whether this directory of the same root was a mount point. `root` is the identity of the root now.
    pub(super) fn had(&self, path: &Path, root: FolderId) -> bool {
        self.below.contains(path) && self.root.as_ref().is_some_and(|before| before.id == root)
    }

    /// Remembers the volumes of a listing.
    pub(super) fn found(&mut self, path: &Path, (id, mount): (FolderId, u64), below: BTreeSet<PathBuf>) {
        self.below = below;
        if self.root.as_ref().is_none_or(|before| (before.id, before.mount) != (id, mount)) {
            // If the root was exchanged just now, the next listing tries again.
            self.root = RootVolume::of(path, id, mount).ok();
        }
    }
}

impl RootVolume {
    fn of(path: &Path, id: FolderId, mount: u64) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let mut outside = path.ancestors().skip(1).map(Folder::mount_at).collect::<io::Result<Vec<_>>>()?;
        outside.retain(|other| *other != mount);
        Ok(Self { id, mount, path, outside })
    }
}
