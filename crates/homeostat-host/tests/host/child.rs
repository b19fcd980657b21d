//! Reports of the ends of real child processes.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};

use homeostat::rt::Joiner;
use homeostat::{Enqueue, WorkQueue};
use homeostat_host::watch_child;

fn shell(script: &str) -> Child {
    Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Watches a child and returns a receiver for the status that the hook gets.
fn watched(child: &Child) -> (Joiner, Receiver<Option<ExitStatus>>) {
    let (sender, statuses) = channel();
    (watch_child(child, move |status| sender.send(status).unwrap()).unwrap(), statuses)
}

#[test]
fn the_hook_receives_the_status_and_the_child_is_not_reaped() {
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        let mut child = shell(script);
        let (watch, statuses) = watched(&child);
        let status = statuses.recv().unwrap().unwrap();
        assert_eq!(status.code(), Some(code));
        // Signal 0 only checks whether the process id is in use.
        rustix::process::test_kill_process(rustix::process::Pid::from_child(&child)).unwrap();
        watch.join();
        assert_eq!(child.wait().unwrap(), status);
    }
}

#[test]
fn the_status_of_a_killed_child_has_the_signal() {
    let mut child = shell("read line");
    let (watch, statuses) = watched(&child);
    child.kill().unwrap();
    let status = statuses.recv().unwrap().unwrap();
    assert_eq!((status.code(), status.signal()), (None, Some(9)));
    watch.join();
    assert_eq!(child.wait().unwrap(), status);
}

#[test]
fn nothing_is_called_while_the_child_runs() {
    let mut child = shell("read line");
    let (watch, statuses) = watched(&child);
    assert!(child.try_wait().unwrap().is_none());
    statuses.try_recv().unwrap_err();
    // Closing its input ends the child.
    drop(child.stdin.take());
    assert!(!statuses.recv().unwrap().unwrap().success());
    watch.join();
    child.wait().unwrap();
}

#[test]
fn a_child_that_has_ended_before_is_reported_at_once() {
    let mut child = shell("exit 3");
    // The first watch ends once the child has ended.
    watched(&child).0.join();
    let (watch, statuses) = watched(&child);
    watch.join();
    assert_eq!(statuses.try_recv().unwrap().unwrap().code(), Some(3));
    child.wait().unwrap();
}

#[test]
fn a_child_that_was_reaped_before_has_no_status() {
    let mut child = shell("exit 3");
    child.wait().unwrap();
    let (watch, statuses) = watched(&child);
    watch.join();
    assert_eq!(statuses.try_recv().unwrap(), None);
}

#[test]
fn a_child_that_is_reaped_while_watched_is_reported() {
    let mut child = shell("read line");
    let (watch, statuses) = watched(&child);
    // `wait` closes the input of the child first.
    child.wait().unwrap();
    // The hook gets a status only if its thread was faster than `wait`.
    statuses.recv().unwrap();
    watch.join();
}

#[test]
fn a_panic_of_the_hook_is_caught() {
    let mut child = shell("exit 0");
    watch_child(&child, |_| panic!("out of luck")).unwrap().join();
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_ends_of_many_children_enqueue_their_keys() {
    let queue = WorkQueue::new();
    let children: Vec<_> = (0..20).map(|_| shell("read line")).collect();
    let watch = |child: &Child| {
        let (queue, key) = (queue.clone(), child.id());
        let ended = move |_| {
            queue.enqueue_now(key);
        };
        watch_child(child, ended).unwrap()
    };
    let watches: Vec<_> = children.iter().map(watch).collect();
    assert!(queue.try_dequeue().is_err());
    let mut expected: Vec<_> = children.iter().map(Child::id).collect();
    for mut child in children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut ended: Vec<_> = expected.iter().map(|_| *queue.dequeue().unwrap()).collect();
    ended.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ended, expected);
    watches.into_iter().for_each(Joiner::join);
}
