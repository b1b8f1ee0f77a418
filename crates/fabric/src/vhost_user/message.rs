//! Messages of vhost-user: headers and requests as values.
//!
//! A message is a 12-byte header (request, flags, size, each 32 bits in the host's byte order) and
//! a body. Only requests that this back end offers are understood; any other is a named error.

use taut_api::fabric::ForeignFd;
use taut_api::fabric::session::MemoryRecord;
use vhost::vhost_user::message::{FrontendReq, VhostUserHeaderFlag};

use super::error::MessageError;
use super::wire::{HEADER, MAX_BODY, VERSION};

/// A checked header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The request.
    pub request: FrontendReq,
    /// The front end wants an acknowledgement (effective only with `REPLY_ACK`).
    pub wants_ack: bool,
    /// Length of the body in bytes, at most [`MAX_BODY`].
    pub size: usize,
}

impl Header {
    /// Checks and reads a header.
    pub fn parse(bytes: &[u8; HEADER]) -> Result<Self, MessageError> {
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (code, flags, size) = (word(0), word(4), word(8));
        let request = FrontendReq::try_from(code).map_err(|()| MessageError::UnknownRequest(code))?;
        let need_reply = VhostUserHeaderFlag::NEED_REPLY.bits();
        if flags & !need_reply != VERSION {
            return Err(MessageError::BadFlags(flags));
        }
        if size as usize > MAX_BODY {
            return Err(MessageError::TooLong(size));
        }
        Ok(Self { request, wants_ack: flags & need_reply != 0, size: size as usize })
    }

    /// Builds the header of a reply whose body has `size` bytes.
    pub fn reply(request: FrontendReq, size: usize) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&u32::from(request).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(VERSION | VhostUserHeaderFlag::REPLY.bits()).to_ne_bytes());
        bytes[8..].copy_from_slice(&(size as u32).to_ne_bytes());
        bytes
    }
}

/// A request, with its descriptors.
///
/// Queue indices are as the front end sent them, not yet checked against the device.
#[derive(Debug)]
pub enum Request {
    /// Asks for the virtio features that the back end offers.
    GetFeatures,
    /// Sets the virtio features that the driver accepted.
    SetFeatures(u64),
    /// Asks for the protocol features that the back end offers.
    GetProtocolFeatures,
    /// Sets the protocol features that the front end accepted.
    SetProtocolFeatures(u64),
    /// Begins the session.
    SetOwner,
    /// Ends the session and resets the device.
    ResetOwner,
    /// Replaces guest memory as a whole.
    SetMemTable(Vec<(MemoryRecord, ForeignFd)>),
    /// Asks how many memory regions the back end accepts.
    GetMaxMemSlots,
    /// Adds one memory region.
    AddMemReg(MemoryRecord, ForeignFd),
    /// Removes one memory region.
    RemMemReg(MemoryRecord),
    /// Sets the size of a queue.
    SetVringNum {
        /// Queue index.
        queue: u32,
        /// Number of entries.
        size: u16,
    },
    /// Sets the addresses of a ring, in the front end's address space.
    SetVringAddr {
        /// Queue index.
        queue: u32,
        /// Descriptor table.
        desc: u64,
        /// Driver area.
        avail: u64,
        /// Device area.
        used: u64,
    },
    /// Sets the position at which a queue starts.
    SetVringBase {
        /// Queue index.
        queue: u32,
        /// Position in the format of [`super::base`].
        base: u32,
    },
    /// Stops a queue and asks for its position.
    GetVringBase {
        /// Queue index.
        queue: u32,
    },
    /// Sets the descriptor that the guest signals. Required, because rings are not polled for ever.
    SetVringKick {
        /// Queue index.
        queue: u32,
        /// Event descriptor.
        fd: ForeignFd,
    },
    /// Sets the descriptor that interrupts the guest; without one, the guest polls.
    SetVringCall {
        /// Queue index.
        queue: u32,
        /// Event descriptor.
        fd: Option<ForeignFd>,
    },
    /// Sets the descriptor that tells the front end about a broken ring.
    SetVringErr {
        /// Queue index.
        queue: u32,
        /// Event descriptor.
        fd: Option<ForeignFd>,
    },
    /// Enables or disables a queue.
    SetVringEnable {
        /// Queue index.
        queue: u32,
        /// `true` to enable the queue.
        on: bool,
    },
    /// Asks for the largest number of queues.
    GetQueueNum,
    /// Sets the driver's device status.
    SetStatus(u8),
    /// Asks for the device status.
    GetStatus,
    /// Reads a part of the configuration space, which may lie outside it.
    GetConfig(ConfigPart),
    /// Reports that the driver wrote into the configuration space.
    SetConfig,
}

/// A part of the configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigPart {
    /// Offset of the first byte.
    pub offset: u32,
    /// Number of bytes, at most [`MAX_CONFIG`](super::wire::MAX_CONFIG).
    pub size: u32,
    /// Access flags, returned unchanged.
    pub flags: u32,
}

impl ConfigPart {
    /// Builds the body of the reply. An empty body means an error: the part is not within `space`.
    pub fn of(self, space: &[u8]) -> Vec<u8> {
        let (offset, size) = (self.offset as usize, self.size as usize);
        let Some(part) = space.get(offset..offset.saturating_add(size)) else { return Vec::new() };
        let mut body = [self.offset, self.size, self.flags].map(u32::to_ne_bytes).concat();
        body.extend(part);
        body
    }
}
