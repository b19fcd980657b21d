//! The thread of a member: renews its lease, reads the group, and makes the calls that the [machine](super::machine)
//! decides on.
//!
//! # Invariants
//!
//! - Once another member has cleared or deleted a member's lease, the member does not take it again. The process joins
//!   again under another name.
//! - An assignment takes effect in this process before its lease announces it. While lost keys run, the lease announces
//!   the last assignment in which all of them ran here.
//! - The lease is released only after the last run has ended, unless the process aborts: then the lease runs out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::machine::{FoundGroup, MemberMachine, MemberWrite};
use super::record::{GROUP_LABEL, assignment_lease, cleared_lease, found_assignment, found_member, member_lease};
use super::shards::{ShardStatus, ShardTable};
use super::shared::MembersShared;
use crate::lease::{
    LEASE, LeaseAnswer, LeaseCall, LeaseMachine, LeaseReply, LeaseWrite, LimitedTerm, boot_nanos, read_lease,
    write_lease,
};
use crate::sync::atomic::Ordering::SeqCst;
use crate::{ClientError, DeleteOptions, LabelSelector, Query};
use homeostat::base::Clock;
use homeostat::rt::{Chain, Draws, Nanos, Next, Task, ThreadGroup};
use homeostat::run::Fence;

/// One membership: from the creation of its lease until the lease is lost or released.
struct MemberSession {
    name: String,
    lease: LeaseMachine,
    /// The lease as it was last read or written.
    last: Option<Value>,
    machine: MemberMachine,
    /// Limits the runs, from the first renewal on.
    term: Option<LimitedTerm>,
    /// The number of the assignment that is in effect in this process.
    divided: u64,
    /// The number of the last assignment that the lease announces, and of the last one that it was renewed for.
    announced: u64,
    announcing: u64,
    /// When to read the group again.
    next_look: Nanos,
    /// Whether the lease may have been created.
    has_created: bool,
    /// The runs of lost keys that the other members wait for.
    delay: Option<HandOverDelay>,
    /// Whether the log already says that the lease of the group holds no assignment.
    says_foreign: bool,
}

impl MemberSession {
    fn fence(&self) -> Option<&Fence> {
        self.term.as_ref().map(LimitedTerm::fence)
    }
}

/// Runs of lost keys.
struct HandOverDelay {
    /// The number of the assignment that the lease announces until they end.
    number: u64,
    since: Nanos,
    is_logged: bool,
}

/// The body of the thread.
pub(super) struct MemberTask {
    shared: Arc<MembersShared>,
    group: Arc<ThreadGroup>,
    clock: Clock,
    draws: Draws,
    membership: Option<MemberSession>,
    /// Whether the last call failed, for the log.
    is_failing: bool,
    is_leaving: bool,
}

impl MemberTask {
    pub(super) fn new(shared: Arc<MembersShared>, group: Arc<ThreadGroup>) -> Self {
        let clock = group.clock.clone();
        let draws = clock.draws();
        Self { shared, group, clock, draws, membership: None, is_failing: false, is_leaving: false }
    }

    fn join(&mut self) -> MemberSession {
        let MembersShared { group, identity, timing, .. } = &*self.shared;
        let name = format!("{group}-{identity}-{:016x}", self.draws.draw());
        let group = group.as_str();
        let member = name.as_str();
        log::info!(group, member; "{group}: joining as {member}");
        MemberSession {
            lease: LeaseMachine::new(name.clone(), *timing),
            last: None,
            machine: MemberMachine::new(name.clone(), timing.duration),
            term: None,
            divided: 0,
            announced: 0,
            announcing: 0,
            next_look: Nanos::ZERO,
            has_created: false,
            delay: None,
            says_foreign: false,
            name,
        }
    }

    /// Makes the calls of a membership that are due. Returns the time of the next ones; `None` if the lease was lost or
    /// released.
    fn advance(&mut self, member: &mut MemberSession) -> Option<Nanos> {
        loop {
            let lease_due = self.keep_lease(member)?;
            if member.term.is_none() {
                return Some(lease_due);
            }
            // Even while this process leaves: the others rely on the first member.
            if boot_nanos(&self.clock) >= member.next_look {
                self.look(member)?;
            }
            if !self.announces(member) {
                return Some(lease_due.min(member.next_look));
            }
        }
    }

    /// Logs that the lease was lost, unless this process is releasing it.
    fn log_loss(&self, member: &MemberSession, loss: &dyn fmt::Display) {
        let (group, member) = (self.shared.group.as_str(), member.name.as_str());
        if !self.is_leaving {
            log::warn!(group, member; "{group}: {member} is no longer a member: {loss}");
        }
    }

    /// Makes a call. If it hangs, the watchdog ends the runs in time.
    fn watched<R>(&self, member: &MemberSession, call: impl FnOnce(&Self) -> R) -> R {
        let limit = member.fence().and_then(|fence| Some((fence.ended(), fence.remaining()?)));
        let _run = limit.map(|(ended, left)| self.group.begin_call(self.clock.nanos().after(left), ended));
        call(self)
    }

    /// Renews the lease, and with it the limit of runs. Returns the time of the next call; `None` if the lease was
    /// lost.
    fn keep_lease(&mut self, member: &mut MemberSession) -> Option<Nanos> {
        loop {
            let now = boot_nanos(&self.clock);
            let answer = match member.lease.next(now) {
                LeaseCall::Wait(at) => return Some(at),
                LeaseCall::Ended(loss) => {
                    self.log_loss(member, &loss);
                    return None;
                }
                LeaseCall::Read => self.read_lease(member),
                LeaseCall::Write(write) => self.write_lease(member, &write),
            };
            if matches!(&answer, LeaseAnswer::Found(found) if found.spec.holder.is_empty()) {
                // The others consider this member permanently gone: it must not take its lease again.
                self.log_loss(member, &"another member has expelled it");
                return None;
            }
            if answer == LeaseAnswer::Missing && member.has_created && member.term.is_none() {
                // Perhaps it was created, cleared and deleted.
                self.log_loss(member, &"its lease is missing");
                return None;
            }
            let draw = self.draws.draw();
            // Counted from `now`, a time before the call was sent.
            member.lease.answered(now, boot_nanos(&self.clock), answer, draw);
            if let Some((number, work_ends)) = member.lease.term() {
                let begin = || LimitedTerm::with_rising_number(number, self.clock.clone(), work_ends);
                _ = member.term.get_or_insert_with(begin).extend(work_ends);
            }
            if member.fence().is_some_and(|fence| fence.check().is_err()) {
                self.log_loss(member, &"a call took longer than its lease");
                return None;
            }
        }
    }

    fn read_lease(&mut self, member: &mut MemberSession) -> LeaseAnswer {
        let key = self.shared.key(&member.name);
        let reply = self.watched(member, |task| read_lease(&*task.shared.client, &key));
        self.note(member, reply)
    }

    fn write_lease(&mut self, member: &mut MemberSession, write: &LeaseWrite) -> LeaseAnswer {
        let announced = self.to_announce(member);
        let (key, now) = (self.shared.key(&member.name), self.clock.time_of_day());
        let lease = member_lease(write, &key, &self.shared.group, announced, member.last.as_ref(), now);
        member.has_created |= write.version.is_none();
        let reply = self.watched(member, |task| write_lease(&*task.shared.client, lease));
        let answer = self.note(member, reply);
        if let LeaseAnswer::Written(_) = answer {
            member.announced = announced;
        }
        answer
    }

    /// Records whether a call for the member's lease has failed, and keeps the lease that came with its answer.
    fn note(&mut self, member: &mut MemberSession, reply: LeaseReply) -> LeaseAnswer {
        self.log_change(reply.as_ref().err());
        let Ok((answer, lease)) = reply else { return LeaseAnswer::Failed };
        if let Some(lease) = lease {
            member.last = Some(lease.to_value());
        }
        answer
    }

    /// Returns the number of the assignment that the lease may announce now.
    fn to_announce(&self, member: &MemberSession) -> u64 {
        self.shared.shards.lost_runs().to_announce(member.divided, member.announced)
    }

    /// If the lease can announce a later assignment, makes the next renewal due, once. Returns whether it can.
    fn announces(&self, member: &mut MemberSession) -> bool {
        let number = self.to_announce(member);
        if self.is_leaving || number <= member.announcing {
            return false;
        }
        member.announcing = number;
        member.lease.renew_at(boot_nanos(&self.clock))
    }

    /// Reads the group, makes the writes that are due, and puts the assignment into effect. Renews the lease before
    /// each call. Returns `None` if the lease was lost.
    fn look(&mut self, member: &mut MemberSession) -> Option<()> {
        let now = boot_nanos(&self.clock);
        let poll = self.shared.timing.poll();
        member.next_look = now.after(poll);
        let group = match self.read_group(member)? {
            Ok(group) => group,
            Err(error) => {
                self.log_change(Some(&error));
                return Some(());
            }
        };
        self.log_change(None);
        let writes = member.machine.look(boot_nanos(&self.clock), &group);
        self.divide(member);
        for write in writes {
            self.keep_lease(member)?;
            self.write(member, &write);
        }
        self.divide(member);
        let now = boot_nanos(&self.clock);
        if !member.machine.is_settled(&group) {
            // A change is expected.
            member.next_look = now.after(poll / 4);
        }
        member.next_look = member.next_look.min(member.machine.next_stale(now, &group));
        Some(())
    }

    /// Puts the assignment into effect in this process, unless it leaves.
    fn divide(&self, member: &mut MemberSession) {
        if self.is_leaving {
            return;
        }
        let (table, status) = (member.machine.table(), member.machine.status());
        let fence = member.fence().map(|fence| fence.numbered(table.number));
        let is_new = table.number != std::mem::replace(&mut member.divided, table.number);
        if is_new {
            let (group, member) = (self.shared.group.as_str(), member.name.as_str());
            log::info!(group, member; "{group}: {member}: {status}");
        }
        self.shared.shards.divide(table, status, fence);
        self.log_delay(member);
    }

    /// Logs if runs of lost keys have delayed other members for the duration of a lease.
    fn log_delay(&self, member: &mut MemberSession) {
        let lost = self.shared.shards.lost_runs();
        let Some(number) = lost.number else {
            member.delay = None;
            return;
        };
        let now = boot_nanos(&self.clock);
        let first = HandOverDelay { number, since: now, is_logged: false };
        let delay = member.delay.take().filter(|delay| delay.number == number).unwrap_or(first);
        let is_long = now.since(delay.since) > self.shared.timing.duration;
        if is_long && !delay.is_logged {
            let (group, count) = (self.shared.group.as_str(), lost.count);
            log::warn!(
                group, count;
                "{group}: {count} runs of keys that this member has lost have not ended; until they end, it hands over none of these keys"
            );
        }
        member.delay = Some(HandOverDelay { is_logged: is_long, ..delay });
    }

    fn read_group(&mut self, member: &mut MemberSession) -> Option<Result<FoundGroup, ClientError>> {
        let shared = Arc::clone(&self.shared);
        let key = shared.key(&shared.group);
        let assignment = match self.watched(member, |_| shared.client.get(&LEASE, &key)) {
            Ok(lease) => {
                let found = found_assignment(&lease);
                if found.is_none() && !member.says_foreign {
                    member.says_foreign = true;
                    let group = shared.group.as_str();
                    log::error!(
                        group; "{group}: the lease {key} holds no assignment of keys: choose another group, or delete the lease"
                    );
                }
                found
            }
            Err(error) if error.is_not_found() => None,
            Err(error) => return Some(Err(error)),
        };
        self.keep_lease(member)?;
        // Read after the assignment, so that every member of the assignment has its lease in the list.
        let query = Query::all().namespace(&shared.namespace).labels(LabelSelector::label(GROUP_LABEL, &shared.group));
        let leases = self.watched(member, |_| shared.client.list(&LEASE, &query));
        Some(leases.map(|leases| FoundGroup { assignment, members: leases.items.iter().map(found_member).collect() }))
    }

    /// Makes a write. If another member was faster, the next read of the group finds its write.
    fn write(&mut self, member: &mut MemberSession, write: &MemberWrite) {
        let MembersShared { client, group, timing, .. } = &*self.shared;
        let group = group.as_str();
        let reply = match write {
            MemberWrite::Assign { version, assignment } => {
                let (key, now) = (self.shared.key(group), self.clock.time_of_day());
                let lease = assignment_lease(&key, version.as_deref(), assignment, &member.name, timing.duration, now);
                let reply = self.watched(member, |_| write_lease(&**client, lease));
                if let Ok((LeaseAnswer::Written(_), _)) = reply {
                    member.machine.keep(assignment.clone());
                }
                reply.map(|_| ())
            }
            MemberWrite::Expel { name, version } => {
                {
                    let member = name.as_str();
                    log::warn!(group, member; "{group}: {member} has not renewed its lease, so it is expelled");
                }
                self.watched(member, |task| task.expel(name, version.as_deref()))
            }
            MemberWrite::Forget { name, version } => {
                let options = DeleteOptions::default().resource_version(version);
                let key = self.shared.key(name);
                let deletion = self.watched(member, |_| client.delete(&LEASE, &key, &options));
                deletion
                    .map(|_| ())
                    .or_else(|error| if error.is_conflict() || error.is_not_found() { Ok(()) } else { Err(error) })
            }
        };
        if let Err(error) = reply {
            self.log_change(Some(&error));
        }
    }

    /// Clears the lease of another member, in the version that was seen.
    fn expel(&self, name: &str, version: Option<&str>) -> Result<(), ClientError> {
        let MembersShared { client, group, .. } = &*self.shared;
        let key = self.shared.key(name);
        let lease = match version {
            None => None,
            Some(version) => match read_lease(&**client, &key)?.1 {
                Some(lease) if lease.resource_version() == version => Some(lease),
                // It is gone, or has been renewed since.
                _ => return Ok(()),
            },
        };
        write_lease(&**client, cleared_lease(&key, group, lease.as_ref())).map(|_| ())
    }

    /// Logs the first failure of a series, and its end.
    fn log_change(&mut self, error: Option<&ClientError>) {
        let before = std::mem::replace(&mut self.is_failing, error.is_some());
        let group = self.shared.group.as_str();
        if let Some(error) = error {
            let level = if before { log::Level::Debug } else { log::Level::Warn };
            let shown = Chain(error);
            log::log!(level, group, error:% = shown; "{group}: the leases cannot be read or written: {shown}");
        } else if before {
            log::info!(group; "{group}: the leases can be read and written again");
        }
    }

    /// Takes all keys from this process: no run begins, and the active runs are cancelled if the lease was lost.
    fn leave(&self, fence: Option<&Fence>) {
        if let Some(fence) = fence {
            fence.ended().cancel();
        }
        self.shared.shards.divide(ShardTable::default(), ShardStatus::default(), None);
    }

    /// Releases the lease once the last run has ended. Returns whether that is done.
    fn gives_back(&mut self, member: &mut MemberSession) -> bool {
        if !self.is_leaving {
            self.is_leaving = true;
            self.leave(None);
        }
        if self.shared.shards.lost_runs().count > 0 {
            let aborts = self.group.abort.is_cancelled();
            if aborts {
                // If runs do not end, no other runs may follow them before the lease runs out.
                self.leave(member.fence());
            }
            return aborts;
        }
        member.lease.release();
        self.keep_lease(member);
        true
    }

    /// Makes the calls that are due. Returns the time of the next step, counting sleep; `None` at the end.
    fn run(&mut self) -> Option<Nanos> {
        let mut member = self.membership.take();
        if self.group.is_stopping() && member.as_mut().is_none_or(|member| self.gives_back(member)) {
            return None;
        }
        let mut member = member.unwrap_or_else(|| self.join());
        if let Some(next) = self.advance(&mut member) {
            self.membership = Some(member);
            return Some(next);
        }
        self.leave(member.fence());
        if self.is_leaving { None } else { Some(boot_nanos(&self.clock).after(self.shared.timing.poll())) }
    }
}

impl Drop for MemberTask {
    fn drop(&mut self) {
        self.shared.is_running.store(false, SeqCst);
    }
}

impl Task for MemberTask {
    fn step(&mut self, _now: Nanos) -> Next {
        let Some(next) = self.run() else { return Next::Finished };
        let pause = next.since(boot_nanos(&self.clock)).max(Duration::from_millis(1));
        Next::At(self.clock.nanos().after(pause))
    }
}
