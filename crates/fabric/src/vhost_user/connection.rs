//! The socket to a front end: reads whole requests and writes replies, without ever blocking.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use taut_api::fabric::ForeignFd;
use vhost::vhost_user::message::FrontendReq;

use super::error::SessionError;
use super::message::{Header, Request};
use super::wire::{HEADER, MAX_BODY, MAX_REGIONS};

/// The connection to a front end.
#[derive(Debug)]
pub struct Connection {
    socket: ForeignFd,
    /// The message being received; its first `filled` bytes are there.
    bytes: [u8; HEADER + MAX_BODY],
    filled: usize,
    /// Descriptors that came with it.
    fds: Vec<ForeignFd>,
}

impl Connection {
    /// Wraps a connected Unix stream socket.
    pub fn new(socket: ForeignFd) -> Self {
        Self { socket, bytes: [0; HEADER + MAX_BODY], filled: 0, fds: Vec::new() }
    }

    /// Reads the next whole request. Returns `None` until the rest of it arrives.
    pub fn receive(&mut self) -> Result<Option<(Header, Request)>, SessionError> {
        loop {
            let wanted = match self.header()? {
                Some(header) if self.filled == HEADER + header.size => {
                    let fds = std::mem::take(&mut self.fds);
                    let request = Request::parse(&header, &self.bytes[HEADER..self.filled], fds)?;
                    self.filled = 0;
                    return Ok(Some((header, request)));
                }
                Some(header) => HEADER + header.size,
                None => HEADER,
            };
            if !self.fill(wanted)? {
                return Ok(None);
            }
        }
    }

    /// The header of the message being received, once it is complete.
    fn header(&self) -> Result<Option<Header>, SessionError> {
        match self.bytes[..self.filled].first_chunk() {
            Some(bytes) => Ok(Some(Header::parse(bytes)?)),
            None => Ok(None),
        }
    }

    /// Reads until the message has `wanted` bytes at most. Returns `false` if nothing can be read.
    fn fill(&mut self, wanted: usize) -> Result<bool, SessionError> {
        let got = match self.socket.receive(&mut self.bytes[self.filled..wanted], &mut self.fds) {
            Ok(got) => got,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(SessionError::Socket(error.into())),
        };
        if got == 0 {
            return Err(SessionError::Closed);
        }
        if self.fds.len() > MAX_REGIONS {
            return Err(SessionError::TooManyDescriptors(self.fds.len()));
        }
        self.filled += got;
        Ok(true)
    }

    /// Closes the connection for the front end too, although `tautd` holds a duplicate of it.
    pub fn shut(&self) {
        // An error means that the front end has closed it already.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// A socket without room is an error: the front end has stopped reading.
    pub fn reply(&self, request: FrontendReq, body: &[u8]) -> Result<(), SessionError> {
        let header = Header::reply(request, body.len());
        let parts = [IoSlice::new(&header), IoSlice::new(body)];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        loop {
            match sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) if sent == HEADER + body.len() => return Ok(()),
                Err(Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => return Err(SessionError::RepliesUnread),
                Err(error) => return Err(SessionError::Socket(io::Error::from(error))),
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
