//! A program with a manager, as a library for other languages: `start`, `run`, `stop`.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use homeostat::{Action, BoxError, Context, Controller, Manager, Running, controller::ControllerHandle};

struct Program {
    manager: Running<Manager>,
    controller: ControllerHandle<u64>,
    runs: Arc<AtomicU64>,
}

static PROGRAM: Mutex<Option<Program>> = Mutex::new(None);

fn started() -> Result<Program, BoxError> {
    let runs = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&runs);
    let reconcile = move |_cx: &Context, _key: &u64| -> Result<Action, BoxError> {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(Action::requeue_after(Duration::from_secs(3600)))
    };
    let controller = Controller::builder("embedded", reconcile)
        .poll(Duration::from_millis(1), |_cx: &Context| Ok::<_, BoxError>([0]))
        .build()?;
    let handle = controller.handle();
    let manager = Manager::builder().name("embedded").threads(2).build()?;
    manager.add(controller)?;
    Ok(Program { manager: manager.start()?, controller: handle, runs })
}

/// Starts the manager. Returns 0, or 1 if it cannot start.
#[unsafe(no_mangle)]
pub extern "C" fn start() -> i32 {
    match started() {
        Ok(program) => {
            *PROGRAM.lock().unwrap() = Some(program);
            0
        }
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}

/// Runs this number of keys, and returns how many runs there were since the start.
#[unsafe(no_mangle)]
pub extern "C" fn run(keys: u64) -> u64 {
    let program = PROGRAM.lock().unwrap();
    let program = program.as_ref().expect("a started program");
    for key in 1..=keys {
        program.controller.enqueue(key);
    }
    for key in 1..=keys {
        program.controller.wait(&key, Duration::from_secs(60)).expect("a run");
    }
    program.runs.load(Ordering::SeqCst)
}

/// Stops the manager and joins its threads. Returns 0, or 1 if it has failed.
#[unsafe(no_mangle)]
pub extern "C" fn stop() -> i32 {
    let program = PROGRAM.lock().unwrap().take().expect("a started program");
    match program.manager.shutdown(Duration::from_secs(10)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            1
        }
    }
}
