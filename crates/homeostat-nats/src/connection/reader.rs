//! The reader thread: connects, reads frames, and reconnects.

use std::sync::Arc;
use std::time::Duration;

use super::super::address::ServerAddress;
use super::super::error::NatsError;
use super::super::protocol::{Frame, FrameParser};
use super::handshake::{Established, establish};
use super::info::ServerInfo;
use super::mailbox::Mailbox;
use super::pool::{Attempt, ServerPool};
use super::shared::{LinkShared, ThreadEnd};
use super::state::Notice;
use super::transport::TransportReader;
use homeostat::rt::Chain;

impl LinkShared {
    /// The body of the reader thread. Connects, reads until the connection ends, and reconnects.
    pub(super) fn read(&self, mut pool: ServerPool) {
        let _end = ThreadEnd(self);
        let mut wait = Duration::ZERO;
        while self.sleep(wait) {
            let Some((address, established)) = self.connect(&mut pool) else { break };
            let since = self.options.clock.nanos();
            let Some((parser, reader)) = self.begin(&address, established, &mut pool) else { break };
            let reason = self.read_frames(parser, reader, &mut pool);
            self.end(&address, &reason);
            wait = pool.ended(self.options.clock.nanos().since(since));
        }
    }

    /// Waits for `wait`. Returns false if the connection is closed.
    fn sleep(&self, wait: Duration) -> bool {
        self.pause(self.options.clock.nanos().after(wait), None)
    }

    /// Tries servers until one accepts. Returns `None` if the connection is closed.
    fn connect(&self, pool: &mut ServerPool) -> Option<(ServerAddress, Established)> {
        let name = self.options.name.as_str();
        loop {
            let Attempt::Connect(delay, address) = pool.next() else {
                let last = self.link.with(|link| link.last_error.clone());
                self.close(&last.unwrap_or_else(NatsError::closed));
                return None;
            };
            if !self.sleep(delay) {
                return None;
            }
            let register = |closer| {
                self.link.with(|link| {
                    let open = !link.state.is_closed();
                    link.closer = open.then_some(closer);
                    open
                })
            };
            match establish(self, &address, register) {
                Ok(established) => return Some((address, established)),
                Err(error) => {
                    if self.link.with(|link| link.state.is_closed()) {
                        return None;
                    }
                    let (server, shown) = (address.to_string(), Chain(&error));
                    log::warn!(
                        connection = name, server:%, error:% = shown;
                        "{name}: cannot connect to {server}: {shown}"
                    );
                    let over = pool.is_round_over();
                    self.link.change(|link| {
                        link.last_error = Some(error.clone());
                        if link.state.connects() == 0 && !link.first_round_over {
                            link.first_round.push((server, error));
                            link.first_round_over = over;
                        }
                    });
                }
            }
        }
    }

    /// Makes an accepted connection available to callers and to the writer. Returns `None` if the connection is
    /// closed.
    fn begin(
        &self,
        address: &ServerAddress,
        established: Established,
        pool: &mut ServerPool,
    ) -> Option<(FrameParser, TransportReader)> {
        let Established { transport, info, parser, is_tls } = established;
        if self.options.discover {
            pool.update(&info.servers(is_tls));
        }
        let transport = Arc::new(transport);
        let (name, server) = (self.options.name.as_str(), address.to_string());
        let mut notices = Vec::new();
        let connects = self.link.change(|link| {
            if link.state.is_closed() {
                return None;
            }
            link.state.connected(&server, info.max_payload.unwrap_or(usize::MAX), &mut notices);
            link.transport = Some(Arc::clone(&transport));
            link.info = Arc::new(info);
            link.servers = pool.places();
            link.last_error = None;
            link.refusals.forget();
            Some(link.state.connects())
        });
        // Wake the writer, which starts the time until the next ping.
        self.work.set();
        self.deliver(notices);
        match connects {
            None => transport.shut_down(),
            Some(1) => log::debug!(connection = name, server:%; "{name}: connected to {server}"),
            Some(_) => log::info!(connection = name, server:%; "{name}: reconnected to {server}"),
        }
        connects.map(|_| (parser, TransportReader::new(transport)))
    }

    /// Reads frames until the connection ends. Returns the reason.
    fn read_frames(&self, mut parser: FrameParser, mut reader: TransportReader, pool: &mut ServerPool) -> String {
        let mut buffer = vec![0; 64 << 10];
        let (mut frames, mut notices) = (Vec::new(), Vec::new());
        loop {
            let failed = loop {
                match parser.next_frame() {
                    Ok(Some(Frame::Info(json))) => {
                        if let Err(error) = self.take_info(&json, pool) {
                            break Some(Chain(&error).to_string());
                        }
                    }
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break None,
                    Err(error) => break Some(format!("the server breaks the protocol: {error}")),
                }
            };
            let failed = self.take_frames(&mut frames, &mut notices).or(failed);
            if !notices.is_empty() {
                self.deliver(notices.drain(..));
                // Receivers of the first messages may already have sent their next requests.
                let turn = self.link.with(|link| {
                    link.delivering = false;
                    link.take_turn()
                });
                self.send(turn);
            }
            if let Some(reason) = failed {
                return reason;
            }
            match reader.read(&mut buffer) {
                Ok(0) => return "the server closed it".to_owned(),
                Ok(count) => parser.push(&buffer[..count]),
                Err(error) => return error.to_string(),
            }
        }
    }

    /// Applies frames to the state, and sends the answers to pings.
    fn take_frames(&self, frames: &mut Vec<Frame>, notices: &mut Vec<Notice<Arc<Mailbox>>>) -> Option<String> {
        if frames.is_empty() {
            return None;
        }
        let (failed, turn) = self.link.with(|link| {
            let failed = frames.drain(..).find_map(|frame| link.state.received(frame, notices).err());
            let turn = link.take_turn();
            link.delivering = !notices.is_empty();
            (failed, turn)
        });
        self.send(turn);
        failed
    }

    /// Handles a later `INFO`, which announces other servers or the server's shutdown.
    fn take_info(&self, json: &str, pool: &mut ServerPool) -> Result<(), NatsError> {
        let info = ServerInfo::parse(json)?;
        let name = self.options.name.as_str();
        if self.options.discover && info.connect_urls.is_some() {
            pool.update(
                &info.servers(
                    self.link.with(|link| link.transport.as_ref().is_some_and(|transport| transport.is_tls())),
                ),
            );
            self.link.with(|link| link.servers = pool.places());
        }
        if info.ldm {
            let server = self.link.with(|link| link.state.server().to_owned());
            log::warn!(
                connection = name, server:%;
                "{name}: server {server} is in lame duck mode and will end the connection"
            );
        }
        Ok(())
    }

    /// Fails the pending calls of a connection that has ended.
    fn end(&self, address: &ServerAddress, reason: &str) {
        let (name, server) = (self.options.name.as_str(), address.to_string());
        let mut notices = Vec::new();
        let closed = self.link.change(|link| {
            let closed = link.state.is_closed();
            link.state.disconnected(reason, &mut notices);
            if let Some(transport) = link.transport.take() {
                transport.shut_down();
            }
            link.closer = None;
            link.last_error = Some(NatsError::connect(reason));
            closed
        });
        self.deliver(notices);
        if !closed {
            log::warn!(
                connection = name, server:%, reason;
                "{name}: the connection to {server} was lost: {reason}"
            );
        }
    }
}
