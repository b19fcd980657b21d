//! The threads, sockets and memory of this process, from `/proc`.

use std::fs;

/// The resources of this process.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    pub(crate) threads: usize,
    pub(crate) sockets: usize,
    /// The resident memory in bytes.
    pub(crate) memory: u64,
    /// The highest resident memory so far, in bytes.
    pub(crate) peak_memory: u64,
}

/// Returns the resources that this process uses.
pub(crate) fn usage() -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Usage {
        threads: usize::try_from(field("Threads:")).unwrap(),
        sockets: descriptors.filter(|path| path.to_string_lossy().starts_with("socket:")).count(),
        memory: field("VmRSS:") * 1_024,
        peak_memory: field("VmHWM:") * 1_024,
    }
}
