//! Tests of leases: the machine alone, with the cases of client-go and in random worlds, and electors with a client.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed, even in its helpers")]

mod client_go;
mod electors;
mod explored;
mod random;

use std::time::Duration;

use super::machine::{
    FoundLease, LeaseAnswer, LeaseCall, LeaseLoss, LeaseMachine, LeasePurpose, LeaseSpec, LeaseWrite,
};
use super::timing::LeaseTiming;
use homeostat::rt::Nanos;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: f64) -> Nanos {
    Nanos::ZERO.after(Duration::from_secs_f64(seconds))
}

fn spec(holder: &str, seconds: u64, number: u64) -> LeaseSpec {
    LeaseSpec { holder: holder.to_owned(), duration: Some(Duration::from_secs(seconds)), number }
}

fn found(version: &str, spec: LeaseSpec) -> LeaseAnswer {
    LeaseAnswer::Found(FoundLease { version: version.to_owned(), spec })
}

fn write(version: Option<&str>, purpose: LeasePurpose, spec: LeaseSpec) -> LeaseCall {
    LeaseCall::Write(LeaseWrite { version: version.map(str::to_owned), spec, purpose })
}

fn written(version: &str) -> LeaseAnswer {
    LeaseAnswer::Written(version.to_owned())
}

/// A machine without jitter: each random number is the lowest.
struct Scripted {
    machine: LeaseMachine,
    now: Nanos,
}

impl Scripted {
    fn new() -> Self {
        Self { machine: LeaseMachine::new("me".to_owned(), LeaseTiming::default()), now: Nanos::ZERO }
    }

    fn next(&mut self) -> LeaseCall {
        self.machine.next(self.now)
    }

    fn after(&mut self, seconds: f64) -> &mut Self {
        self.now = self.now.after(Duration::from_secs_f64(seconds));
        self
    }

    /// Answers the next call at once.
    fn answer(&mut self, answer: LeaseAnswer) -> &mut Self {
        self.answer_in(0.0, answer)
    }

    /// Answers the next call after some seconds.
    fn answer_in(&mut self, seconds: f64, answer: LeaseAnswer) -> &mut Self {
        let call = self.next();
        assert!(matches!(call, LeaseCall::Read | LeaseCall::Write(_)), "{call:?}");
        let sent = self.now;
        self.after(seconds);
        self.machine.answered(sent, self.now, answer, 0);
        self
    }

    /// Lets the machine acquire a new lease, at version 1.
    fn leading(&mut self) -> &mut Self {
        self.answer(LeaseAnswer::Missing).answer(written("1"))
    }
}
