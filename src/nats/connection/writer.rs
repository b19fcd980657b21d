//! Writes: by the thread that has something to send, or by the writer thread.
//!
//! One thread at a time has the *turn*: it takes the outbound bytes and writes them. A caller takes the turn if it is free, so that
//! a request needs no other thread on its way out, and never blocks at the socket: if the socket is full, it leaves the rest of its
//! turn to the writer thread. Bytes that arrive during a turn are written in the next one, by the same thread. While the reader
//! delivers messages, no turn begins: the reader writes the requests that its receivers send next, in one turn.

use std::io;
use std::sync::Arc;

use super::shared::{Link, LinkShared, ThreadEnd};
use super::transport::Transport;
use super::turn::Turn;
use crate::base::time::Nanos;

/// The turns that a caller takes in sequence, before it leaves the bytes of others to the writer thread.
const TURNS: usize = 4;

impl Link {
    /// Takes the turn, if it is free and there are outbound bytes.
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
    /// Changes the state, and writes the outbound bytes on this thread if the turn is free. Blocks at no socket.
    pub(super) fn change_and_send<R>(&self, change: impl FnOnce(&mut Link) -> R) -> R {
        let (result, turn) = self.link.change(|link| (change(link), link.take_turn()));
        self.send(turn);
        result
    }

    /// Writes the bytes of a turn, and of the next ones. Blocks at no socket.
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

    /// Ends a turn, and takes the next one if there are bytes. Wakes callers that wait for room.
    fn next_turn(&self, turn: Turn) -> Option<Turn> {
        self.link.change(|link| {
            link.end_turn(turn);
            link.take_turn()
        })
    }

    /// The body of the writer: writes outbound bytes that no caller writes, and sends pings.
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

    /// Appends a ping, or ends a connection that does not answer.
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

    /// Ends a connection that cannot be written to. The reader finds its end.
    fn lose(&self, transport: &Arc<Transport>, error: &io::Error) {
        transport.shut_down();
        let name = self.options.name.as_str();
        log::debug!(connection = name, error:%; "{name}: the connection cannot be written to: {error}");
    }
}
