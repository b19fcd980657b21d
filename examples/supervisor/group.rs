//! Waits until a process group is empty.
//!
//! The members are not children of the supervisor, so the system does not report when they end. Linux lists them in
//! `/proc`, and a descriptor watches each of them. Other systems show no members, and then nothing waits for them.

use rustix::process::Pid;

/// Blocks until every process of the group is dead, including its leader.
///
/// The leader must be dead but not reaped: once it is reaped, the system may give the group's number to another group.
/// Returns early if the members cannot be seen.
pub(crate) fn await_empty(group: Pid) {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::await_empty(group) {
        log::warn!("cannot see the members of process group {}: {error}", group.as_raw_nonzero());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = group;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;
    use std::{fs, io};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::{Errno, retry_on_intr};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    pub(super) fn await_empty(group: Pid) -> io::Result<()> {
        loop {
            let members = living(group)?;
            if members.is_empty() {
                return Ok(());
            }
            // Becomes readable when the process ends.
            let mut fds: Vec<_> = members.iter().map(|member| PollFd::new(member, PollFlags::IN)).collect();
            retry_on_intr(|| poll(&mut fds, None))?;
        }
    }

    fn living(group: Pid) -> io::Result<Vec<OwnedFd>> {
        let mut members = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            // The process may have ended since.
            let Ok(stat) = fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())) else {
                continue;
            };
            if !lives_in(&String::from_utf8_lossy(&stat), group) {
                continue;
            }
            match pidfd_open(pid, PidfdFlags::empty()) {
                Ok(member) => members.push(member),
                Err(Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(members)
    }

    /// Returns whether a line of `/proc/<pid>/stat` (`pid (name) state parent group ...`) describes a living process in
    /// `group`. The name may contain any character, including spaces and parentheses.
    fn lives_in(stat: &str, group: Pid) -> bool {
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            return false;
        };
        let mut fields = rest.split(' ');
        let state = fields.next();
        // -1 for a process that is about to disappear.
        let pgid = fields.nth(1).and_then(|pgid| pgid.parse().ok());
        !matches!(state, Some("Z" | "X")) && pgid == Some(group.as_raw_nonzero().get())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_may_look_like_the_fields_behind_it() {
            let group = Pid::from_raw(77).unwrap();
            assert!(lives_in("80 (sleep) S 1 77 77 0 -1 4194304", group));
            assert!(lives_in("80 (a) Z 1 5 (b) R 1 77 77 0 -1 4194304", group));
            assert!(!lives_in("80 (sleep) Z 1 77 77 0 -1 4194304", group));
            assert!(!lives_in("80 (sleep) X 0 -1 -1 0 -1 4194304", group));
            assert!(!lives_in("80 (sleep) R 0 -1 -1 0 -1 4194304", group));
            assert!(!lives_in("80 (S 1 77) S 1 76 76 0 -1 4194304", group));
            assert!(!lives_in("80 (cut off", group));
        }
    }
}
