//! The naive model: the text of the contract as plain lists, with no wheel, no slab and no levels.

use std::collections::HashMap;
use std::time::Duration;

use homeostat::queue::{DroppedRun, EnqueueMethod, EnqueueRequest, STARVATION_BOUND};
use homeostat::{EnqueueOutcome, Priority, Reasons, Shutdown};

pub(super) const KEYS: u8 = 3;
/// Seconds of the floor, and of the backoff by the count of failures.
pub(super) const FLOOR: u64 = 3;
pub(super) const BACKOFF: [u64; 4] = [2, 4, 8, 10];
/// A time that never comes.
pub(super) const NEVER: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Done,
    CoolDown(Duration),
    RequeueAfter(Duration),
    RetryAfter(Duration),
    Retry,
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wanted {
    Nothing,
    Soft,
    At(u64),
    /// For a debounced change, which waits only for the floor.
    Debounced(u64),
    Now,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    Ready(Priority),
    Delayed(u64),
    Claimed(Wanted),
}

struct Record {
    level: Priority,
    reasons: Reasons,
    failures: u32,
    /// A request moved the next or current run before the end of its backoff.
    early: bool,
    /// The end of the last backoff.
    backoff_end: u64,
    /// The latest time of a debounced run; `None` for any other run.
    cap: Option<u64>,
    at: At,
}

#[derive(Clone, Copy, PartialEq)]
enum At {
    Line,
    /// The due time, and a number for the order of equal times.
    Delay(u64, u64),
    Claim(Wanted),
}

#[derive(Default)]
pub(super) struct Model {
    pub(super) now: u64,
    /// The minimum interval.
    interval: u64,
    records: HashMap<u8, Record>,
    /// The ready keys in order, each with the number of the dequeue by which it must be taken.
    line: Vec<(u8, usize)>,
    /// The end of a cool-down or of the minimum interval, until the next claim of the key.
    cool: HashMap<u8, u64>,
    pub(super) mode: Option<Shutdown>,
    dropped: Vec<(u8, DroppedRun)>,
    numbers: u64,
    /// For each dequeue, whether it passed over a key of a higher level.
    takes: Vec<bool>,
}

fn after(now: u64, delay: Duration) -> u64 {
    if delay == Duration::MAX { NEVER } else { now + delay.as_secs() }
}

impl Model {
    pub(super) fn new(interval: u64) -> Self {
        Self { interval, ..Self::default() }
    }

    pub(super) fn state(&self, key: u8) -> Option<State> {
        let record = self.records.get(&key)?;
        Some(match record.at {
            At::Line => State::Ready(record.level),
            At::Delay(due, _) => State::Delayed(due),
            At::Claim(wanted) => State::Claimed(wanted),
        })
    }

    pub(super) fn ready(&self) -> usize {
        self.line.len()
    }

    pub(super) fn line(&self) -> Vec<u8> {
        let mut line: Vec<_> = self.line.iter().map(|&(key, _)| key).collect();
        line.sort_by_key(|key| std::cmp::Reverse(self.records[key].level));
        line
    }

    fn delays(&self) -> Vec<(u64, u64, u8)> {
        let mut delays: Vec<_> = self
            .records
            .iter()
            .filter_map(|(&key, record)| match record.at {
                At::Delay(due, number) => Some((due, number, key)),
                _ => None,
            })
            .collect();
        delays.sort_unstable();
        delays
    }

    pub(super) fn delayed(&self) -> usize {
        self.delays().len()
    }

    pub(super) fn next_due(&self) -> Option<u64> {
        self.delays().first().map(|&(due, ..)| due)
    }

    pub(super) fn claimed(&self) -> Vec<u8> {
        (0..KEYS).filter(|&key| matches!(self.state(key), Some(State::Claimed(_)))).collect()
    }

    pub(super) fn dropped(&self) -> &[(u8, DroppedRun)] {
        &self.dropped
    }

    /// Whether no key is ready, and no claim has a pending rerun.
    pub(super) fn is_over(&self) -> bool {
        let wanted = |record: &Record| matches!(record.at, At::Claim(wanted) if wanted != Wanted::Nothing);
        self.mode.is_some() && self.line.is_empty() && !self.records.values().any(wanted)
    }

    fn level(&self, key: u8) -> Priority {
        self.records[&key].level
    }

    /// Moves the key to the tail of its level.
    fn put_in_line(&mut self, key: u8) {
        self.line.retain(|&(other, _)| other != key);
        let ahead = self.line.iter().filter(|&&(other, _)| self.level(other) == self.level(key)).count();
        self.line.push((key, self.takes.len() + STARVATION_BOUND * (ahead + 1)));
        self.records.get_mut(&key).unwrap().at = At::Line;
    }

    /// Schedules the key at `due`. It is ready if that time has passed.
    fn wake_at(&mut self, key: u8, due: u64) -> EnqueueOutcome {
        if due <= self.now {
            self.put_in_line(key);
            return EnqueueOutcome::Queued;
        }
        self.line.retain(|&(other, _)| other != key);
        self.numbers += 1;
        self.records.get_mut(&key).unwrap().at = At::Delay(due, self.numbers);
        EnqueueOutcome::Scheduled
    }

    pub(super) fn advance(&mut self, by: u64) {
        let target = self.now + by;
        while let Some(&(due, _, key)) = self.delays().first().filter(|&&(due, ..)| due <= target) {
            self.now = due;
            self.put_in_line(key);
        }
        self.now = target;
    }

    pub(super) fn request(&mut self, key: u8, request: EnqueueRequest) -> EnqueueOutcome {
        if self.mode.is_some() {
            return EnqueueOutcome::Closed;
        }
        let method = if request.method == EnqueueMethod::EnqueueAfter(Duration::ZERO) {
            EnqueueMethod::Enqueue
        } else {
            request.method
        };
        let outcome = match self.records.get(&key).map(|record| record.at) {
            None => self.request_idle(key, method, request.priority),
            Some(At::Line) => self.request_in_line(key, method),
            Some(At::Delay(due, _)) => self.request_delayed(key, due, method),
            Some(At::Claim(wanted)) => self.request_claimed(key, wanted, method),
        };
        if outcome != EnqueueOutcome::Ignored {
            let record = self.records.get_mut(&key).unwrap();
            record.reasons |= request.reasons;
            if method != EnqueueMethod::EnqueueIfAbsent && request.priority > record.level {
                record.level = request.priority;
                if record.at == At::Line {
                    self.put_in_line(key);
                }
            }
        }
        outcome
    }

    /// No run may start before the cool-down ends.
    fn cooled(&self, key: u8, due: u64) -> u64 {
        due.max(self.cool.get(&key).copied().unwrap_or(0))
    }

    fn request_idle(&mut self, key: u8, method: EnqueueMethod, level: Priority) -> EnqueueOutcome {
        let (due, cap) = match method {
            EnqueueMethod::EnqueueIfAbsent
            | EnqueueMethod::EnqueueResync
            | EnqueueMethod::EnqueueSelected
            | EnqueueMethod::Enqueue
            | EnqueueMethod::EnqueueNow => (self.now, None),
            EnqueueMethod::EnqueueAfter(delay) | EnqueueMethod::Reschedule(delay) => (after(self.now, delay), None),
            EnqueueMethod::EnqueueDebounced { quiet, max_wait }
            | EnqueueMethod::EnqueueNowDebounced { quiet, max_wait } => {
                (after(self.now, quiet.min(max_wait)), Some(after(self.now, max_wait)))
            }
        };
        let reasons = Reasons::NONE;
        let record = Record { level, reasons, failures: 0, early: false, backoff_end: 0, cap, at: At::Line };
        self.records.insert(key, record);
        self.wake_at(key, self.cooled(key, due))
    }

    fn request_in_line(&mut self, key: u8, method: EnqueueMethod) -> EnqueueOutcome {
        match method {
            EnqueueMethod::EnqueueIfAbsent | EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected => {
                EnqueueOutcome::Ignored
            }
            EnqueueMethod::Reschedule(delay) => {
                let wanted = self.cooled(key, after(self.now, delay));
                let record = self.records.get_mut(&key).unwrap();
                record.cap = None;
                record.early = wanted < record.backoff_end;
                self.wake_at(key, wanted)
            }
            _ => EnqueueOutcome::Merged,
        }
    }

    fn request_delayed(&mut self, key: u8, due: u64, method: EnqueueMethod) -> EnqueueOutcome {
        let now = self.now;
        let record = &self.records[&key];
        let floor = if record.failures > 0 && record.backoff_end > now { FLOOR } else { 0 };
        let mut cap_after = None;
        let wanted = match method {
            EnqueueMethod::EnqueueIfAbsent => return EnqueueOutcome::Ignored,
            EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected
                if record.failures > 0 || record.cap.is_some() =>
            {
                return EnqueueOutcome::Ignored;
            }
            EnqueueMethod::EnqueueNowDebounced { quiet, max_wait } => {
                // The latest time of the change, and the scheduled run.
                let latest = after(now, max_wait).min(record.cap.unwrap_or(due));
                let quiet = if record.cap.is_some() { after(now, quiet).max(due) } else { after(now, quiet) };
                let mut wanted = quiet.min(latest);
                if wanted < due {
                    wanted = wanted.max(self.cooled(key, now + floor)).min(due);
                }
                cap_after = Some(latest.max(wanted));
                wanted
            }
            EnqueueMethod::EnqueueDebounced { quiet, .. } => {
                return match record.cap.map(|cap| after(now, quiet).min(cap)) {
                    Some(pushed) if pushed > due => {
                        self.records.get_mut(&key).unwrap().early = pushed < record.backoff_end;
                        self.wake_at(key, pushed)
                    }
                    _ => EnqueueOutcome::Held,
                };
            }
            EnqueueMethod::EnqueueNow | EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected => {
                self.cooled(key, now + floor).min(due)
            }
            EnqueueMethod::Reschedule(delay) => self.cooled(key, after(now, delay)),
            EnqueueMethod::Enqueue | EnqueueMethod::EnqueueAfter(_) => return EnqueueOutcome::Held,
        };
        let record = self.records.get_mut(&key).unwrap();
        record.cap = cap_after;
        record.early = wanted < record.backoff_end;
        let may_stand = matches!(
            method,
            EnqueueMethod::EnqueueNow
                | EnqueueMethod::EnqueueResync
                | EnqueueMethod::EnqueueSelected
                | EnqueueMethod::EnqueueNowDebounced { .. }
        );
        if may_stand && wanted == due {
            return EnqueueOutcome::Held;
        }
        self.wake_at(key, wanted)
    }

    fn request_claimed(&mut self, key: u8, wanted: Wanted, method: EnqueueMethod) -> EnqueueOutcome {
        let now = self.now;
        let record = self.records.get_mut(&key).unwrap();
        let (wanted, cap) = match (method, wanted) {
            (EnqueueMethod::EnqueueIfAbsent | EnqueueMethod::EnqueueResync | EnqueueMethod::EnqueueSelected, _) => {
                return EnqueueOutcome::Ignored;
            }
            (EnqueueMethod::Reschedule(delay), _) | (EnqueueMethod::EnqueueAfter(delay), Wanted::Nothing) => {
                (Wanted::At(after(now, delay)), None)
            }
            (_, Wanted::Now) | (EnqueueMethod::EnqueueNow, _) => (Wanted::Now, None),
            (EnqueueMethod::Enqueue, Wanted::Nothing) => (Wanted::Soft, None),
            (EnqueueMethod::EnqueueDebounced { quiet, max_wait }, Wanted::Nothing) => {
                (Wanted::At(after(now, quiet.min(max_wait))), Some(after(now, max_wait)))
            }
            (EnqueueMethod::EnqueueDebounced { quiet, .. }, Wanted::Debounced(due)) => {
                let cap = record.cap.unwrap();
                (Wanted::Debounced(after(now, quiet).min(cap).max(due)), Some(cap))
            }
            (EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }, Wanted::Nothing | Wanted::Soft) => {
                (Wanted::Debounced(after(now, quiet.min(max_wait))), Some(after(now, max_wait)))
            }
            (EnqueueMethod::EnqueueNowDebounced { quiet, max_wait }, Wanted::At(due) | Wanted::Debounced(due)) => {
                let cap = after(now, max_wait).min(record.cap.unwrap_or(due));
                let quiet = if record.cap.is_some() { after(now, quiet).max(due) } else { after(now, quiet) };
                (Wanted::Debounced(quiet.min(cap)), Some(cap))
            }
            (EnqueueMethod::EnqueueDebounced { quiet, .. }, Wanted::At(due)) => match record.cap {
                Some(cap) => (Wanted::At(after(now, quiet).min(cap).max(due)), Some(cap)),
                None => (Wanted::At(due), None),
            },
            (_, wanted) => (wanted, record.cap),
        };
        record.at = At::Claim(wanted);
        record.cap = cap;
        EnqueueOutcome::Rerun
    }

    pub(super) fn cancel(&mut self, key: u8) {
        let Some(record) = self.records.get_mut(&key) else { return };
        if let At::Claim(_) = record.at {
            record.at = At::Claim(Wanted::Nothing);
            record.reasons = Reasons::NONE;
            record.cap = None;
        } else {
            self.records.remove(&key);
            self.line.retain(|&(other, _)| other != key);
        }
    }

    /// Checks a key that the queue handed out: it is the first of its level, and no key has waited too long.
    pub(super) fn take(&mut self, key: u8) -> (u32, Reasons, Priority) {
        let level = self.level(key);
        let first = self.line.iter().position(|&(other, _)| self.level(other) == level).unwrap();
        assert_eq!(self.line[first].0, key, "first in, first out");
        self.takes.push(self.line.iter().any(|&(other, _)| self.level(other) > level));
        assert!(self.line.iter().all(|&(_, by)| self.takes.len() <= by), "a key was passed over for too long");
        let recent = self.takes.len().saturating_sub(STARVATION_BOUND);
        assert!(self.takes[recent..].iter().filter(|&&over| over).count() <= 2, "higher levels have their turns");
        self.line.remove(first);
        self.cool.remove(&key);
        let record = self.records.get_mut(&key).unwrap();
        record.at = At::Claim(Wanted::Nothing);
        record.cap = None;
        (record.failures, std::mem::take(&mut record.reasons), level)
    }

    pub(super) fn end(&mut self, key: u8, end: End) {
        let now = self.now;
        let record = self.records.get_mut(&key).unwrap();
        let At::Claim(wanted) = record.at else { panic!("{key} is not claimed") };
        let counted = record.failures + u32::from(!record.early);
        let (failed, requeued) = match end {
            End::Done | End::CoolDown(_) => (None, None),
            End::RequeueAfter(delay) => (None, Some(delay)),
            End::RetryAfter(backoff) => (Some(backoff), None),
            End::Retry | End::Drop => {
                let step = BACKOFF[BACKOFF.len().min(counted.max(1) as usize) - 1];
                (Some(Duration::from_secs(step)), None)
            }
        };
        record.failures = if failed.is_some() { counted } else { 0 };
        record.early = false;
        record.backoff_end = 0;
        if failed.is_some() {
            record.reasons |= Reasons::RETRY;
        } else if requeued.is_some() {
            record.reasons |= Reasons::REQUEUE;
        }
        if self.mode.is_some() {
            if wanted != Wanted::Nothing {
                return self.put_in_line(key);
            }
            self.records.remove(&key);
            let wake = requeued.map(|_| DroppedRun::Requeue).or(failed.map(|_| DroppedRun::Retry));
            self.dropped.extend(wake.map(|wake| (key, wake)));
            return;
        }
        let pause = if let End::CoolDown(delay) = end { after(now, delay) } else { 0 };
        self.cool.insert(key, pause.max(now + self.interval));
        if let Some(backoff) = failed {
            let backoff = after(now, backoff);
            let due = match wanted {
                Wanted::Now => backoff.min(now + FLOOR),
                Wanted::Debounced(due) => backoff.min(due.max(now + FLOOR)),
                Wanted::Nothing | Wanted::Soft | Wanted::At(_) => backoff,
            };
            record.cap = record.cap.filter(|_| matches!(wanted, Wanted::Debounced(_))).map(|cap| cap.min(backoff));
            record.backoff_end = backoff;
            let due = self.cooled(key, due);
            self.records.get_mut(&key).unwrap().early = due < backoff;
            self.wake_at(key, due);
        } else if let Some(delay) = requeued {
            let asked = after(now, delay);
            record.cap = record.cap.filter(|_| matches!(wanted, Wanted::Debounced(_))).map(|cap| cap.min(asked));
            let due = match wanted {
                Wanted::Now => now,
                Wanted::At(due) | Wanted::Debounced(due) => due.min(after(now, delay)),
                Wanted::Nothing | Wanted::Soft => after(now, delay),
            };
            self.wake_at(key, self.cooled(key, due));
        } else {
            match wanted {
                Wanted::Nothing => {
                    self.records.remove(&key);
                }
                Wanted::At(due) | Wanted::Debounced(due) => {
                    self.wake_at(key, self.cooled(key, due));
                }
                Wanted::Soft | Wanted::Now => {
                    self.wake_at(key, self.cooled(key, now));
                }
            }
        }
    }

    pub(super) fn shut_down(&mut self, mode: Shutdown) {
        if self.mode >= Some(mode) {
            return;
        }
        self.mode = Some(mode);
        self.cool.clear();
        for (_, _, key) in self.delays() {
            if mode == Shutdown::RunDelayedNow {
                self.put_in_line(key);
            } else {
                self.records.remove(&key);
                self.dropped.push((key, DroppedRun::Delayed));
            }
        }
        for key in self.claimed() {
            let at = &mut self.records.get_mut(&key).unwrap().at;
            let survives = match at {
                At::Claim(Wanted::Nothing) => continue,
                At::Claim(Wanted::At(_) | Wanted::Debounced(_)) => mode == Shutdown::RunDelayedNow,
                _ => mode != Shutdown::Discard,
            };
            if !survives {
                *at = At::Claim(Wanted::Nothing);
                self.dropped.push((key, DroppedRun::PendingRerun));
            }
        }
        if mode == Shutdown::Discard {
            for (key, _) in std::mem::take(&mut self.line) {
                self.records.remove(&key);
                self.dropped.push((key, DroppedRun::Ready));
            }
        }
    }
}
