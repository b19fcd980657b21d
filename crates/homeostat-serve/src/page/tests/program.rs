//! A program with one controller for the tests.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde_json::Value;

use super::get;
use crate::http::{Handler, Reply, ReplyBody};
use crate::page::StatusPages;
use crate::until::until;
use homeostat::base::ManualClock;
use homeostat::controller::ControllerHandle;
use homeostat::{Action, BoxError, Context, Controller, Exponential, Manager, Running, terminal};

/// A text that tries to leave its place.
pub(super) const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror='a'>\"&\n\u{202e}";

/// A manager with one controller. The name of a key decides how its run ends.
pub(super) struct Program {
    pub(super) manager: Manager,
    pub(super) pages: StatusPages,
    pub(super) keys: ControllerHandle<String>,
    pub(super) running: Option<Running<Manager>>,
    pub(super) clock: ManualClock,
}

impl Program {
    pub(super) fn new() -> Self {
        let clock = ManualClock::new();
        let manager = Manager::builder().name("appliance").clock(clock.clock()).threads(2).build().unwrap();
        let reconcile = |cx: &Context, key: &String| -> Result<Action, BoxError> {
            match key.as_str() {
                "slow" => Ok(cx.sleep(Duration::MAX).map(|()| Action::await_change())?),
                "later" => Ok(Action::requeue_after(Duration::from_secs(30))),
                "bad" => Err("no answer".into()),
                "heals" if cx.attempt() == 1 => Err("<conflict>".into()),
                key if key.starts_with("own-") => Err(terminal(key.to_owned()).into()),
                key if key.starts_with(HOSTILE) => Err(terminal(HOSTILE).into()),
                _ => Ok(Action::await_change()),
            }
        };
        let controller = Controller::builder("v<m>", reconcile)
            .clock(clock.clock())
            .retry(Exponential::new(Duration::from_secs(40), Duration::from_secs(40)).jitter(0.0))
            .max_concurrent_reconciles(2)
            .reconcile_timeout(Duration::from_secs(3_600))
            .build()
            .unwrap();
        let keys = controller.handle();
        manager.add(controller).unwrap();
        let pages = StatusPages::new(&manager).unwrap();
        Self { manager, pages, keys, running: None, clock }
    }

    pub(super) fn started() -> Self {
        let mut program = Self::new();
        program.running = Some(program.manager.start().unwrap());
        program
    }

    /// Returns other pages of the manager.
    pub(super) fn pages_again(&self) -> StatusPages {
        StatusPages::new(&self.manager).unwrap()
    }

    pub(super) fn run(&self, key: &str) {
        self.keys.enqueue(key.to_owned());
        if ["bad", "heals", "later"].contains(&key) {
            // The key is never idle, because it waits for its next run.
            until("the key has failed and waits", || {
                self.keys.queue().next_due().is_some() && self.keys.metrics().runs.runs() > 0
            });
        } else {
            self.keys.wait(&key.to_owned(), Duration::MAX).unwrap();
        }
    }

    /// Adds a controller with the name `stuck`, and waits for its run of this key. The run ignores its deadline of five
    /// seconds. It ends once the sender is dropped.
    pub(super) fn hang(&self, key: &str) -> (ControllerHandle<String>, Sender<()>) {
        let (end, may_end) = channel::<()>();
        let may_end = crate::sync::Mutex::new(may_end);
        let reconcile = move |_cx: &Context, _key: &String| -> Result<Action, BoxError> {
            let _ended = may_end.lock().recv();
            Ok(Action::await_change())
        };
        let controller = Controller::builder("stuck", reconcile).clock(self.clock.clock());
        let controller = controller.reconcile_timeout(Duration::from_secs(5)).build().unwrap();
        let stuck = controller.handle();
        self.manager.add(controller).unwrap();
        stuck.enqueue(key.to_owned());
        until("the run is active", || stuck.metrics().runs.active == 1);
        (stuck, end)
    }

    pub(super) fn get(&self, target: &str) -> (u16, String) {
        let reply = self.pages.handle(&get(target));
        (reply.status.as_u16(), text(reply))
    }

    pub(super) fn json(&self, target: &str) -> Value {
        serde_json::from_str(&self.get(target).1).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.manager.abort();
    }
}

pub(super) fn text(reply: Reply) -> String {
    let ReplyBody::Full(body) = reply.body else { panic!("a stream") };
    String::from_utf8(body).unwrap()
}
