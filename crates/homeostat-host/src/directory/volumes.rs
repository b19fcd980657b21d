//! The volumes of a listing, by which the next listing notices an unmounted one: its directory still exists, but is
//! empty.

use std::io;
use std::path::{Path, PathBuf};

use super::entry::FolderId;
use super::tree::Folder;

/// The mounted file systems of the last listing that succeeded.
#[derive(Clone, Debug, Default)]
pub(super) struct Volumes {
    /// The volume of the root. `None` before that listing.
    root: Option<RootVolume>,
    /// The mount points below the root.
    below: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct RootVolume {
    id: FolderId,
    mount: u64,
    /// The path of the root without symbolic links.
    path: PathBuf,
    /// The mounts of the directories above the root, without the root's own mount.
    outside: Vec<u64>,
}

impl Volumes {
    /// Returns whether the root is now outside of the volume that it was on.
    pub(super) fn has_lost_root(&self, path: &Path, root: &Folder) -> bool {
        self.root.as_ref().is_some_and(|before| {
            before.outside.contains(&root.mount) && path.canonicalize().is_ok_and(|now| now == before.path)
        })
    }

    /// Returns whether this directory was a mount point in the last listing. False if `root`, the current root, is
    /// another one.
    pub(super) fn had(&self, path: &Path, root: FolderId) -> bool {
        self.below.iter().any(|mount| mount == path) && self.root.as_ref().is_some_and(|before| before.id == root)
    }

    /// Remembers the volumes of a listing.
    pub(super) fn found(&mut self, path: &Path, (id, mount): (FolderId, u64), below: Vec<PathBuf>) {
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
