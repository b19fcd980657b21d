//! Managers in several processes share a lock file. When the leader is killed, another one takes over, and never
//! earlier.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use homeostat::{Action, BoxError, CancellationToken, Component, Context, Controller, Manager};
use parking_lot::Mutex;

use super::{ChildProcesses, FOLDER, Recorder, check, elector, end_with_the_test};
use crate::MS;

#[test]
fn a_manager_that_is_killed_is_followed_by_the_other_one_and_never_do_two_work() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return candidate(Path::new(&folder));
    }
    let mut children = ChildProcesses::new(
        "processes::managers::a_manager_that_is_killed_is_followed_by_the_other_one_and_never_do_two_work",
    );
    let elector = elector(children.folder.path());
    children.start();
    children.wait("a first leader", |lines| !lines.is_empty());
    children.start();
    let kills = 25;
    for kill in 0..kills {
        let follower = children.pids()[1];
        let waits = children.folder.path().join(format!("waits-{follower}"));
        // The kill comes early or later in the term, while the other manager starts or waits with ready work.
        let lines = children.wait("the leader at work", |lines| {
            let term = lines.last().map(|line| line.term.clone());
            let worked = lines.iter().rev().take_while(|line| Some(&line.term) == term.as_ref()).count();
            worked > 1 + kill % 4 * 5 && (kill % 3 == 0 || waits.exists())
        });
        let leader = lines.last().unwrap().pid;
        assert_eq!(leader, children.pids()[0]);
        assert_eq!(elector.holder().unwrap().unwrap().pid, Some(leader));
        children.kill(leader);
        children.wait("another leader", |lines| lines.last().is_some_and(|line| line.pid == follower));
        children.start();
    }
    let terms = check(&children.end());
    assert_eq!(terms.len(), kills + 1);
    assert!(terms.iter().all(|term| !term.has_ended && term.lines > 0));
}

/// Runs the body of a started process, until it is killed or the test ends.
fn candidate(folder: &Path) {
    end_with_the_test();
    let manager = Manager::builder().elector(elector(folder)).threads(2).build().unwrap();
    let record = Arc::new(Mutex::new((Recorder::open(folder), 0)));
    let leads = manager.clone();
    // Runs and the function share one recorder, because the checker needs their lines in one order.
    let work = Arc::new(move || {
        let (recorder, lines) = &mut *record.lock();
        if *lines == 0 {
            recorder.say(0, "start");
        }
        recorder.say(0, &if leads.is_leading() { format!("work {lines}") } else { "early".to_owned() });
        *lines += 1;
    });
    let works = Arc::clone(&work);
    let reconcile = move |cx: &Context, _: &u32| -> Result<Action, BoxError> {
        works();
        cx.sleep(MS / 4)?;
        Ok(Action::requeue_after(Duration::ZERO))
    };
    let vms = Controller::builder("vm", reconcile).max_concurrent_reconciles(2);
    let vms = vms.poll(Duration::from_secs(1), |_: &Context| Ok::<_, BoxError>([1, 2])).build().unwrap();
    let handle = vms.handle();
    manager.add(vms).unwrap();
    let janitor = move |cx: &Context| -> Result<(), BoxError> {
        while cx.sleep(MS).is_ok() {
            work();
        }
        Ok(())
    };
    manager.add(Component::function("janitor", janitor).when_leading()).unwrap();
    let waits = folder.join(format!("waits-{}", std::process::id()));
    let says = move |cx: &Context| -> Result<(), BoxError> {
        while !handle.has_synced() {
            cx.sleep(MS)?;
        }
        Ok(std::fs::write(waits, "")?)
    };
    manager.add(Component::function("says", says)).unwrap();
    manager.run(&CancellationToken::new()).unwrap();
}
