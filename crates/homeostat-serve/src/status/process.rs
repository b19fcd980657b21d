//! Facts about this process that are cheap to read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Facts about this process. Linux provides all of them, and other systems only the id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessFacts {
    pub(crate) id: u32,
    /// CPU time in user and system mode.
    pub(crate) cpu: Option<Duration>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) max_files: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) started: Option<SystemTime>,
    /// The name of the machine or container.
    pub(crate) host: Option<String>,
}

/// The unit of times in `/proc/<pid>/stat`. It is 100 on all Linux architectures that Rust supports.
const TICKS_PER_SECOND: u64 = 100;

impl ProcessFacts {
    /// Reads the facts about this process.
    pub(crate) fn read() -> Self {
        let facts = Self { id: std::process::id(), ..Self::default() };
        if cfg!(target_os = "linux") { facts.with_proc() } else { facts }
    }

    fn with_proc(self) -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let facts = self.with_stat(&text("/proc/self/stat"), &text("/proc/stat"));
        let open = std::fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as u64);
        Self {
            resident_bytes: kibibytes(&text("/proc/self/status"), "VmRSS:"),
            // The listing itself has one file open.
            open_files: open.map(|open| open.saturating_sub(1)),
            max_files: max_files(&text("/proc/self/limits")),
            host: Some(text("/proc/sys/kernel/hostname").trim().to_owned()).filter(|host| !host.is_empty()),
            ..facts
        }
    }

    /// Adds the facts in `/proc/self/stat`. `system` is the text of `/proc/stat`, which has the machine's start time.
    fn with_stat(self, stat: &str, system: &str) -> Self {
        // The program's name is in parentheses before these fields, and may contain any character.
        let fields: Vec<&str> = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
        // Field 3 in the manual is the first one here.
        let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok());
        let boot = system.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        let started = field(22).zip(boot).and_then(|(ticks, boot): (u64, u64)| {
            UNIX_EPOCH.checked_add(Duration::from_secs(boot))?.checked_add(of_ticks(ticks))
        });
        let cpu = field(14).zip(field(15)).map(|(user, system)| of_ticks(user.saturating_add(system)));
        Self { cpu, threads: field(20), virtual_bytes: field(23), started, ..self }
    }
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND))
}

/// Returns a size from `/proc/self/status` in bytes.
fn kibibytes(status: &str, name: &str) -> Option<u64> {
    let size = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = size.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

fn max_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_linux_are_read() {
        let stat = "4711 (a) b (c) S 1 2 3 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 12 0 300 8192000 77";
        let facts = ProcessFacts::default().with_stat(stat, "cpu 1 2\nbtime 1700000000\nprocesses 5\n");
        assert_eq!(facts.cpu, Some(Duration::from_secs(3)));
        assert_eq!((facts.threads, facts.virtual_bytes), (Some(12), Some(8_192_000)));
        assert_eq!(facts.started, Some(UNIX_EPOCH + Duration::from_secs(1_700_000_003)));
        assert_eq!(kibibytes("Name:\ta\nVmRSS:\t    1234 kB\n", "VmRSS:"), Some(1234 * 1024));
        let limits = "Limit  Soft  Hard\nMax open files            1024                 4096                 files\n";
        assert_eq!(max_files(limits), Some(1024));
        assert_eq!(max_files("Max open files unlimited unlimited files"), None);
    }

    #[test]
    fn foreign_texts_are_ignored() {
        for text in ["", ") ", "1 (a) S", "1 (a) S x y z"] {
            assert_eq!(ProcessFacts::default().with_stat(text, "btime x"), ProcessFacts::default());
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_memory_files_and_threads() {
        let facts = ProcessFacts::read();
        assert_eq!(facts.id, std::process::id());
        assert!(facts.resident_bytes > Some(100_000) && facts.threads >= Some(1) && facts.open_files >= Some(1));
        assert!(facts.started.is_some() && facts.cpu.is_some() && facts.host.is_some());
    }
}
