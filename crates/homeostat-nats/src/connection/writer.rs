//! Writing: on the thread that has something to send, or on the writer thread.
//!
//! One thread at a time has the *turn*: it takes the outbound bytes and writes them. The thread with the turn also
//! writes the bytes that arrive meanwhile, in the next turn.
//!
//! A caller takes the turn if it is free, so a request needs no other thread on its way out. A caller never blocks at
//! the socket: if the socket is full, the caller leaves the rest of its turn to the writer thread. No turn starts
//! while the reader delivers messages. Afterwards the reader writes in one turn the requests that the receivers have
//! sent meanwhile.

use std::io;
use std::sync::Arc;

use super::shared::{Link, LinkShared, ThreadEnd};
use super::transport::Transport;
use super::turn::Turn;
use homeostat::rt::Nanos;

/// How many turns a caller takes in sequence before it leaves the bytes of others to the writer thread.
const TURNS: usize = 4;

impl Link {
    /// Takes the turn if it is free and bytes are waiting.
    pub(super) fn take_turn(&mut self) -> Option<Turn> {
        let is_free = !self.writing && !self.delivering;
        let transport = self.transport.as_ref().filter(|_| is_free && self.state.has_output())?;
        self.writing = true;
        let mut buffers = std::mem::take(&mut self.buffers);
        self.state.take_output(&mut buffers.plain);
        Some(Turn::new(Arc::clone(transport), buffers))
    }

    /// Gives the turn back.
    fn end_turn(&mut self, turn: Turn) {
        self.writing = false;
        self.buffers = turn.into_buffers();
    }
}

impl LinkShared {
    /// Changes the state. If the turn is free, also writes the outbound bytes on this thread. Never blocks at the
    /// socket.
    pub(super) fn change_and_send<R>(&self, change: impl FnOnce(&mut Link) -> R) -> R {
        let (result, turn) = self.link.change(|link| (change(link), link.take_turn()));
        self.send(turn);
        result
    }

    /// Writes the bytes of a turn and of the next ones. Never blocks at the socket.
    pub(super) fn send(&self, mut turn: Option<Turn>) {
        for _ in 0..TURNS {
            let Some(mut current) = turn else { return };
            match current.write_now() {
                Ok(true) => {}
                Ok(false) => {
                    self.link.with(|link| link.unfinished = Some(current));
                    return self.work.set();
                }
                Err(error) => self.lose(current.transport(), &error),
            }
            turn = self.next_turn(current);
        }
        if turn.is_some() {
            self.link.with(|link| link.unfinished = turn);
            self.work.set();
        }
    }

    /// Ends a turn, and takes the next one if bytes are waiting. Wakes callers that wait for room.
    fn next_turn(&self, turn: Turn) -> Option<Turn> {
        self.link.change(|link| {
            link.end_turn(turn);
            link.take_turn()
        })
    }

    /// The body of the writer thread. Writes outbound bytes that no caller writes, and sends pings.
    pub(super) fn write(&self) {
        let _end = ThreadEnd(self);
        let clock = &self.options.clock;
        let mut next_ping = Nanos::NEVER;
        loop {
            self.work.wait_until(next_ping);
            let (closed, connected) = self.link.with(|link| (link.state.is_closed(), link.transport.is_some()));
            if closed {
                break;
            }
            if !connected {
                next_ping = Nanos::NEVER;
            } else if next_ping == Nanos::NEVER {
                next_ping = clock.nanos().after(self.options.ping_interval);
            } else if clock.reached(next_ping) {
                self.ping();
                next_ping = clock.nanos().after(self.options.ping_interval);
            }
            let mut turn = self.link.change(|link| link.unfinished.take().or_else(|| link.take_turn()));
            while let Some(mut current) = turn {
                if let Err(error) = current.write() {
                    self.lose(current.transport(), &error);
                }
                turn = self.next_turn(current);
            }
        }
    }

    /// Appends a ping. Ends a connection that leaves too many pings unanswered.
    fn ping(&self) {
        let stale = self.link.with(|link| {
            let stale = link.state.keep_alive(self.options.pings_out).err();
            if let (Some(_), Some(transport)) = (&stale, &link.transport) {
                transport.shut_down();
            }
            stale
        });
        if let Some(reason) = stale {
            let name = self.options.name.as_str();
            log::debug!(connection = name, reason:%; "{name}: the connection is stale: {reason}");
        }
    }

    /// Shuts down a connection after a failed write. The reader notices the end.
    fn lose(&self, transport: &Arc<Transport>, error: &io::Error) {
        transport.shut_down();
        let name = self.options.name.as_str();
        log::debug!(connection = name, error:%; "{name}: cannot write to the connection: {error}");
    }
}
