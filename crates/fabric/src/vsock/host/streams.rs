//! The host's sockets of connections.
//!
//! A guest's bytes leave its ring when the socket takes them. They are copied out of the ring
//! before only if packets crowd it (`engine/spill.rs`). A program's bytes leave the socket when the
//! guest has a buffer and credit for them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use taut_api::fabric::{ForeignFd, keep_urgent, peek};
use taut_virtq::socket_header::{SHUTDOWN_RCV, SHUTDOWN_SEND};

use crate::sys::epoll::{Epoll, EventFlags, Watched, set_nonblocking};
use crate::vsock::guest::{EventSource, Sender};
use crate::vsock::proto::{ConnId, Flow, Front};

/// Buffer size that the host's side announces: as much may wait in the guest's ring, and out of it.
pub(crate) const HOST_BUFFER: u32 = 256 << 10;
/// Most bytes moved in one turn, read or written.
pub(crate) const MAX_MOVED: usize = 64 << 10;

const BOTH_WAYS: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// The host's socket of one connection.
#[derive(Debug, Default)]
pub(crate) struct HostStream {
    /// `None` while `tautd` has been asked for it.
    socket: Option<Watched<ForeignFd>>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Bytes written that the guest has been told of, modulo 2³².
    pub(crate) advertised: u32,
    /// Number of the question that `tautd` has been asked.
    question: Option<u32>,
}

/// A program's end of a connection has failed.
#[derive(Debug)]
pub(crate) struct Broken;

/// Result of reading from a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRead {
    /// Number of bytes read, at least one.
    Bytes(usize),
    /// The program sends no more.
    End,
    /// The program has sent nothing that was not read.
    Nothing,
    /// The call was interrupted by a signal.
    Again,
    /// The socket has failed.
    Broken,
}

impl HostStream {
    /// Tells whether the socket is there.
    pub(crate) fn is_attached(&self) -> bool {
        self.socket.is_some()
    }

    /// Takes up an event of the socket.
    pub(crate) fn on_event(&mut self, flags: EventFlags) {
        let broken = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        self.readable |= broken || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.writable |= broken || flags.intersects(EventFlags::OUT);
    }

    /// Answers a client whose connection the guest has accepted.
    pub(crate) fn write_answer(&self, own_port: u32) -> Result<(), Broken> {
        let line = format!("OK {own_port}\n");
        let socket = self.socket.as_ref().ok_or(Broken)?;
        // A socket that nothing was written to takes a line; one that does not is broken.
        let sent = send(&**socket, line.as_bytes(), SendFlags::NOSIGNAL);
        if sent == Ok(line.len()) { Ok(()) } else { Err(Broken) }
    }

    /// Writes bytes of a guest that were copied out of its ring, as far as they go before the bytes
    /// of its channel. Returns the number of bytes.
    pub(crate) fn write_copied(&mut self, flow: &mut Flow) -> Result<usize, Broken> {
        let mut written = 0;
        while self.writable && written < MAX_MOVED {
            let most = flow.packet_bytes().min((MAX_MOVED - written) as u64) as u32;
            let Some(spill) = &mut flow.spill else { break };
            let Some(Front { bytes: [first, _], .. }) = spill.front(most) else { break };
            if first.is_empty() {
                break;
            }
            let taken = self.write(first)?;
            if taken == 0 {
                break;
            }
            spill.remove(taken as u32);
            if spill.is_empty() {
                flow.spill = None;
            }
            flow.on_written_to_host(taken as u32);
            written += taken;
        }
        Ok(written)
    }

    /// Writes the waiting packets of a guest that go before the bytes of its ring, and gives those
    /// back that have been written. Returns the number of bytes.
    pub(crate) fn write_packets(&mut self, flow: &mut Flow, sender: &mut Sender) -> Result<usize, Broken> {
        let socket = self.socket.as_ref().ok_or(Broken)?;
        let mut written = 0;
        while self.writable
            && flow.packet_bytes() > 0
            && let Some(ring) = &sender.ring
            && let Some(packet) = flow.packets.first()
        {
            let len = sender.slots.get(packet).len;
            if len > flow.offset {
                match ring.queue.write_to(packet, flow.offset, socket.as_fd()) {
                    Ok(taken) if taken > 0 => {
                        flow.offset += taken as u32;
                        flow.on_written_to_host(taken as u32);
                        written += taken;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                    Ok(_) | Err(_) => return Err(Broken),
                }
            }
            if flow.offset == len {
                flow.offset = 0;
                flow.packets.pop(&sender.slots);
                sender.give_back(packet);
            }
            if written >= MAX_MOVED {
                break;
            }
        }
        Ok(written)
    }

    /// Writes bytes of a guest. Returns how many the socket has taken; not all of them if it takes
    /// no more for now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let socket = self.socket.as_ref().ok_or(Broken)?;
        loop {
            match send(&**socket, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.writable = false;
                    return Ok(0);
                }
                Ok(taken) if taken > 0 => return Ok(taken),
                Ok(_) | Err(_) => return Err(Broken),
            }
        }
    }

    /// Copies bytes of the program that were not read. Returns how many; `None` if there are none,
    /// which only a read tells more about.
    pub(crate) fn peek(&self, buffer: &mut [u8]) -> Option<usize> {
        let socket = self.socket.as_ref()?;
        peek(&**socket, buffer).ok().filter(|&count| count > 0)
    }

    /// Reads bytes of the program.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> HostRead {
        let Some(socket) = &self.socket else { return HostRead::Nothing };
        match socket.receive_bytes(buffer) {
            Ok(0) => HostRead::End,
            Ok(got) => HostRead::Bytes(got),
            Err(Errno::INTR) => HostRead::Again,
            Err(Errno::AGAIN) => {
                self.readable = false;
                HostRead::Nothing
            }
            Err(_) => HostRead::Broken,
        }
    }

    /// Passes a guest's shutdown on to the socket. `bits` are those of the operation.
    pub(crate) fn shut_down(&self, bits: u32) {
        let Some(socket) = &self.socket else { return };
        // A socket that has failed meanwhile shows it when it is read.
        if bits & SHUTDOWN_SEND != 0 {
            let _ = shutdown(&**socket, Shutdown::Write);
        }
        if bits & SHUTDOWN_RCV != 0 {
            let _ = shutdown(&**socket, Shutdown::Read);
        }
    }
}

/// All sockets of connections.
#[derive(Debug, Default)]
pub(crate) struct Streams(HashMap<ConnId, HostStream>);

impl Streams {
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut HostStream> {
        self.0.get_mut(&id)
    }

    /// Tells whether a connection has a socket, or `tautd` has been asked for one.
    pub(crate) fn has(&self, id: ConnId) -> bool {
        self.0.contains_key(&id)
    }

    /// Waits for the answer to a question.
    pub(crate) fn expect(&mut self, id: ConnId, question: u32) {
        self.0.insert(id, HostStream { question: Some(question), ..HostStream::default() });
    }

    /// Sets the socket of a connection.
    pub(crate) fn attach(&mut self, id: ConnId, socket: ForeignFd, events: &Epoll) -> io::Result<()> {
        set_nonblocking(&socket)?;
        // A fabric or `tautd` of an earlier version does not set the option.
        keep_urgent(&socket)?;
        let socket = events.watch(socket, EventSource::Stream(id).token(), BOTH_WAYS)?;
        let advertised = self.0.get(&id).map_or(0, |stream| stream.advertised);
        let stream =
            HostStream { socket: Some(socket), readable: true, writable: true, advertised, question: None };
        self.0.insert(id, stream);
        Ok(())
    }

    /// Closes the socket of a connection. Returns the number of the question that is still open.
    pub(crate) fn remove(&mut self, id: ConnId) -> Option<u32> {
        self.0.remove(&id)?.question
    }

    /// Duplicates of all sockets.
    pub(crate) fn duplicates(&self) -> Vec<(ConnId, OwnedFd)> {
        let sockets = self.0.iter().filter_map(|(&id, stream)| Some((id, stream.socket.as_ref()?)));
        sockets.filter_map(|(id, socket)| Some((id, socket.as_fd().try_clone_to_owned().ok()?))).collect()
    }

    /// The connections that have a socket, or will have one.
    #[cfg(any(test, feature = "rig"))]
    pub(crate) fn connections(&self) -> impl Iterator<Item = ConnId> {
        self.0.keys().copied()
    }
}
