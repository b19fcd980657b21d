//! The outbound bytes that a thread writes in one turn.

use std::io;
use std::sync::Arc;

use super::transport::Transport;

/// The capacity that an unused buffer keeps. One large message must not occupy its memory permanently.
const KEPT: usize = 1 << 20;

/// The outbound bytes that one thread writes.
#[derive(Debug)]
pub(super) struct Turn {
    transport: Arc<Transport>,
    buffers: TurnBuffers,
    progress: TurnProgress,
}

/// The buffers that successive turns reuse.
#[derive(Debug, Default)]
pub(super) struct TurnBuffers {
    pub(super) plain: Vec<u8>,
    cipher: Vec<u8>,
}

#[derive(Debug)]
enum TurnProgress {
    New,
    /// The bytes for the socket are ready, and this many are written. `tls` says which buffer has them.
    Sealed {
        tls: bool,
        written: usize,
    },
}

impl Turn {
    pub(super) fn new(transport: Arc<Transport>, buffers: TurnBuffers) -> Self {
        Self { transport, buffers, progress: TurnProgress::New }
    }

    pub(super) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    /// Returns the emptied buffers, for the next turn.
    pub(super) fn into_buffers(self) -> TurnBuffers {
        let mut buffers = self.buffers;
        for buffer in [&mut buffers.plain, &mut buffers.cipher] {
            buffer.clear();
            buffer.shrink_to(KEPT);
        }
        buffers
    }

    /// Returns the bytes that are still to be written.
    fn rest(&mut self) -> io::Result<&[u8]> {
        if let TurnProgress::New = self.progress {
            let TurnBuffers { plain, cipher } = &mut self.buffers;
            self.progress = TurnProgress::Sealed { tls: self.transport.seal(plain, cipher)?, written: 0 };
        }
        let TurnProgress::Sealed { tls, written } = self.progress else { return Ok(&[]) };
        let bytes = if tls { &self.buffers.cipher } else { &self.buffers.plain };
        Ok(&bytes[written..])
    }

    /// Writes as much as the socket accepts without blocking. Returns whether everything is written.
    pub(super) fn write_now(&mut self) -> io::Result<bool> {
        let transport = Arc::clone(&self.transport);
        let rest = self.rest()?;
        let (count, all) = (transport.write_now(rest)?, rest.len());
        if let TurnProgress::Sealed { written, .. } = &mut self.progress {
            *written += count;
        }
        Ok(count == all)
    }

    /// Writes everything. Blocks while the socket is full.
    pub(super) fn write(&mut self) -> io::Result<()> {
        let transport = Arc::clone(&self.transport);
        transport.write(self.rest()?)
    }
}
