//! Machines with their own clocks in one simulation.

use std::time::UNIX_EPOCH;

use homeostat::{CancellationToken, Controller, ControllerHandle};
use homeostat_testing::SimulatedMachine;

use super::*;

/// Starts a process on a machine. It runs its key now, and `period` after each run.
fn start(
    machine: &SimulatedMachine,
    notes: &Notes,
    name: Key,
    period: Duration,
) -> (Running<WorkerPool>, Running<ControllerHandle<Key>>) {
    let pool = WorkerPool::builder().threads(1).clock(machine.clock()).start().unwrap();
    let reconcile = notes.run(move |_, _| Ok(Action::requeue_after(period)));
    let running = Controller::builder(name, reconcile).clock(machine.clock()).build().unwrap().start(&pool).unwrap();
    running.enqueue(name);
    (pool, running)
}

/// Returns when a key ran, in milliseconds.
fn runs(notes: &Notes, name: Key) -> Vec<u128> {
    notes.all().into_iter().filter(|(_, what)| what == name).map(|(at, _)| at.as_millis()).collect()
}

#[test]
fn delays_follow_the_rate_of_the_machine() {
    Simulation::seeds(0..10, |sim| {
        let notes = Notes::new(sim);
        let rates = [("slow", 80), ("exact", 100), ("fast", 120)];
        let processes = rates.map(|(name, percent)| start(&sim.machine(percent), &notes, name, 6 * SECOND));
        sim.run_for(20 * SECOND);
        drop(processes);
        assert_eq!(runs(&notes, "slow"), [0, 7_500, 15_000]);
        assert_eq!(runs(&notes, "exact"), [0, 6_000, 12_000, 18_000]);
        assert_eq!(runs(&notes, "fast"), [0, 5_000, 10_000, 15_000, 20_000]);
    });
}

#[test]
fn a_wait_follows_the_rate_of_the_machine() {
    let sim = Simulation::new(1);
    let cx = Context::detached_with(sim.machine(50).clock(), CancellationToken::new());
    cx.sleep(SECOND).unwrap();
    assert_eq!(sim.elapsed(), 2 * SECOND);
}

#[test]
fn no_run_begins_while_the_machine_is_paused() {
    Simulation::seeds(0..10, |sim| {
        let (notes, one, other) = (Notes::new(sim), sim.machine(100), sim.machine(100));
        let processes = [start(&one, &notes, "one", 2 * SECOND), start(&other, &notes, "other", 2 * SECOND)];
        sim.run_for(3 * SECOND);
        one.pause(Duration::from_millis(4_500));
        one.pause(SECOND);
        let before = one.clock().now();
        sim.run_for(7 * SECOND);
        assert_eq!(one.clock().now() - before, 7 * SECOND);
        drop(processes);
        assert_eq!(runs(&notes, "one"), [0, 2_000, 7_500, 9_500]);
        assert_eq!(runs(&notes, "other"), [0, 2_000, 4_000, 6_000, 8_000, 10_000]);
    });
}

#[test]
fn a_run_in_progress_pauses_at_its_next_wait() {
    Simulation::seeds(0..10, |sim| {
        let (notes, machine) = (Notes::new(sim), sim.machine(100));
        let pool = WorkerPool::builder().threads(1).clock(machine.clock()).start().unwrap();
        let (paused, ends) = (machine.clone(), notes.clone());
        let reconcile = notes.run(move |cx: &Context, _| {
            paused.pause(5 * SECOND);
            cx.sleep(SECOND)?;
            ends.add("end");
            Ok(Action::await_change())
        });
        let controller = Controller::builder("vm", reconcile).clock(machine.clock()).build().unwrap();
        let running = controller.start(&pool).unwrap();
        running.enqueue("vm-1");
        sim.run_for(MINUTE);
        drop((running, pool));
        assert_eq!((runs(&notes, "vm-1"), runs(&notes, "end")), (vec![0], vec![5_000]));
    });
}

#[test]
fn the_time_of_day_is_that_of_the_machine() {
    let noon = UNIX_EPOCH + DAY / 2;
    let sim = Simulation::at(1, noon);
    sim.run_for(HOUR);
    let (slow, other) = (sim.machine(80), sim.machine(100));
    sim.run_for(10 * SECOND);
    assert_eq!(slow.clock().time_of_day(), noon + HOUR + 8 * SECOND);
    slow.set_time_of_day(noon);
    sim.run_for(10 * SECOND);
    assert_eq!(slow.clock().time_of_day(), noon + 8 * SECOND);
    assert_eq!(other.clock().time_of_day(), noon + HOUR + 20 * SECOND);
    assert_eq!(sim.clock().time_of_day(), noon + HOUR + 20 * SECOND);
}

#[test]
fn the_parts_of_a_machine_may_outlive_the_simulation() {
    let sim = Simulation::new(1);
    let (notes, machine) = (Notes::new(&sim), sim.machine(80));
    let process = start(&machine, &notes, "vm", SECOND);
    sim.run_for(SECOND);
    drop(sim);
    drop(process);
    assert_eq!(runs(&notes, "vm"), [0]);
}

#[test]
fn a_clock_that_stands_still_is_refused() {
    let message = panic_of(|| drop(Simulation::new(1).machine(0)));
    assert_eq!(message, "the rate of a machine's clock must be at least 1 %");
}
