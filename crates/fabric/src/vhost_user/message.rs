//! Requests of a vhost-user front end: bytes are checked here once, and are values afterwards.
//!
//! A message is a 12-byte header (request, flags, size, each 32 bits in the host's byte order) and a body. Only what
//! this back end offers is understood; anything else is an error with a name, never a guess.

use std::os::fd::OwnedFd;

use taut_api::fabric::session::MemoryRecord;
use vhost::vhost_user::message::{FrontendReq, VhostUserHeaderFlag};

/// Bytes before the body.
pub const HEADER: usize = 12;
/// Most regions of guest memory in a session.
pub const MAX_REGIONS: usize = 32;
/// Longest body taken: a memory table of [`MAX_REGIONS`].
pub const MAX_BODY: usize = 8 + 32 * MAX_REGIONS;

/// Bytes of a configuration space's request and reply before its contents: offset, size and flags, each 32 bits.
pub const CONFIG_HEADER: usize = 12;
/// Most bytes of a configuration space in one message.
pub const MAX_CONFIG: usize = 256;

const VERSION: u32 = 1;
/// In the word of a kick, call or error request: no descriptor comes with it.
const NO_DESCRIPTOR: u64 = 1 << 8;
const QUEUE_MASK: u64 = 0xff;

/// What is wrong with a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Not a request of the protocol.
    #[error("request {0} is not one of vhost-user")]
    UnknownRequest(u32),
    /// A request that this back end did not offer.
    #[error("request {0:?} was not offered")]
    NotOffered(FrontendReq),
    /// The flags word is not that of a request of version 1.
    #[error("flags {0:#x} are not those of a version {VERSION} request")]
    BadFlags(u32),
    /// The body is longer than any request's.
    #[error("a body of {0} bytes was announced; at most {MAX_BODY} are taken")]
    TooLong(u32),
    /// The body is not as long as this request's is.
    #[error("the body of {request:?} has {got} bytes instead of {wanted}")]
    BadLength {
        /// The request.
        request: FrontendReq,
        /// Bytes received.
        got: usize,
        /// Bytes that it takes.
        wanted: usize,
    },
    /// The number of descriptors does not fit.
    #[error("{request:?} came with {got} descriptors instead of {wanted}")]
    BadDescriptors {
        /// The request.
        request: FrontendReq,
        /// Descriptors received.
        got: usize,
        /// Descriptors that it takes.
        wanted: usize,
    },
    /// A value is out of its range.
    #[error("{request:?}: {value} is out of range")]
    OutOfRange {
        /// The request.
        request: FrontendReq,
        /// The value.
        value: u64,
    },
}

/// A checked header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What is asked for.
    pub request: FrontendReq,
    /// The front end wants an acknowledgement (counts only with `REPLY_ACK`).
    pub wants_ack: bool,
    /// Length of the body in bytes, at most [`MAX_BODY`].
    pub size: usize,
}

impl Header {
    /// Checks a header.
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

    /// The header of the reply with a body of `size` bytes.
    pub fn reply(request: FrontendReq, size: usize) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&u32::from(request).to_ne_bytes());
        bytes[4..8].copy_from_slice(&(VERSION | VhostUserHeaderFlag::REPLY.bits()).to_ne_bytes());
        bytes[8..].copy_from_slice(&(size as u32).to_ne_bytes());
        bytes
    }
}

/// A request, with its descriptors.
#[derive(Debug)]
pub enum Request {
    /// Which virtio features does the back end have?
    GetFeatures,
    /// These were accepted.
    SetFeatures(u64),
    /// Which protocol features does the back end have?
    GetProtocolFeatures,
    /// These were accepted.
    SetProtocolFeatures(u64),
    /// The front end begins.
    SetOwner,
    /// The front end ends; the device is reset.
    ResetOwner,
    /// The whole of guest memory.
    SetMemTable(Vec<(MemoryRecord, OwnedFd)>),
    /// How many regions may there be?
    GetMaxMemSlots,
    /// One region more.
    AddMemReg(MemoryRecord, OwnedFd),
    /// One region less.
    RemMemReg(MemoryRecord),
    /// Number of entries.
    SetVringNum {
        /// Queue index.
        queue: usize,
        /// Entries.
        size: u16,
    },
    /// Where the ring is, in the front end's address space.
    SetVringAddr {
        /// Queue index.
        queue: usize,
        /// Descriptor table.
        desc: u64,
        /// Driver area.
        avail: u64,
        /// Device area.
        used: u64,
    },
    /// Position to start from.
    SetVringBase {
        /// Queue index.
        queue: usize,
        /// Position, as [`super::base`] reads it.
        base: u32,
    },
    /// Stop, and tell the position.
    GetVringBase {
        /// Queue index.
        queue: usize,
    },
    /// How the guest notifies. Rings are not polled for ever, so a descriptor is a must.
    SetVringKick {
        /// Queue index.
        queue: usize,
        /// Event descriptor.
        fd: OwnedFd,
    },
    /// How the guest is interrupted; never, without a descriptor.
    SetVringCall {
        /// Queue index.
        queue: usize,
        /// Event descriptor.
        fd: Option<OwnedFd>,
    },
    /// How the front end hears of a broken ring.
    SetVringErr {
        /// Queue index.
        queue: usize,
        /// Event descriptor.
        fd: Option<OwnedFd>,
    },
    /// Let frames pass, or not.
    SetVringEnable {
        /// Queue index.
        queue: usize,
        /// Pass?
        on: bool,
    },
    /// How many queues may there be?
    GetQueueNum,
    /// The driver's device status.
    SetStatus(u8),
    /// What is the device status?
    GetStatus,
    /// What is in this part of the configuration space? It need not be inside.
    GetConfig(ConfigPart),
    /// The driver wrote into the configuration space.
    SetConfig,
}

/// A part of the configuration space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigPart {
    /// Its first byte.
    pub offset: u32,
    /// Its bytes, at most [`MAX_CONFIG`].
    pub size: u32,
    /// What it is accessed for; given back as it is.
    pub flags: u32,
}

impl ConfigPart {
    /// The body of the reply; empty, which means an error, if not all of it is in the `space`.
    pub fn of(self, space: &[u8]) -> Vec<u8> {
        let (offset, size) = (self.offset as usize, self.size as usize);
        let Some(part) = space.get(offset..offset.saturating_add(size)) else { return Vec::new() };
        let mut body = [self.offset, self.size, self.flags].map(u32::to_ne_bytes).concat();
        body.extend(part);
        body
    }
}

impl Request {
    /// Checks the body and the descriptors of a request.
    pub fn parse(header: &Header, body: &[u8], fds: Vec<OwnedFd>) -> Result<Self, MessageError> {
        use FrontendReq as R;
        let mut parser = Parser { request: header.request, body, fds };
        let request = match header.request {
            R::GET_FEATURES => parser.empty().map(|()| Self::GetFeatures)?,
            R::SET_FEATURES => Self::SetFeatures(parser.word()?),
            R::GET_PROTOCOL_FEATURES => parser.empty().map(|()| Self::GetProtocolFeatures)?,
            R::SET_PROTOCOL_FEATURES => Self::SetProtocolFeatures(parser.word()?),
            R::SET_OWNER => parser.empty().map(|()| Self::SetOwner)?,
            R::RESET_OWNER => parser.empty().map(|()| Self::ResetOwner)?,
            R::SET_MEM_TABLE => Self::SetMemTable(parser.memory_table()?),
            R::GET_MAX_MEM_SLOTS => parser.empty().map(|()| Self::GetMaxMemSlots)?,
            R::ADD_MEM_REG => {
                let region = parser.single_region()?;
                let fd = parser.one_fd()?;
                Self::AddMemReg(region, fd)
            }
            R::REM_MEM_REG => {
                let region = parser.single_region()?;
                // Some front ends send the region's descriptor along; it is closed.
                parser.fds.truncate(0);
                Self::RemMemReg(region)
            }
            R::SET_VRING_NUM => {
                let (queue, size) = parser.state()?;
                Self::SetVringNum { queue, size }
            }
            R::SET_VRING_ADDR => parser.ring_addresses()?,
            R::SET_VRING_BASE => {
                let (queue, base) = parser.wide_state()?;
                Self::SetVringBase { queue, base }
            }
            R::GET_VRING_BASE => Self::GetVringBase { queue: parser.state()?.0 },
            R::SET_VRING_KICK => match parser.event()? {
                (queue, Some(fd)) => Self::SetVringKick { queue, fd },
                (_, None) => return Err(parser.descriptors(1)),
            },
            R::SET_VRING_CALL => {
                let (queue, fd) = parser.event()?;
                Self::SetVringCall { queue, fd }
            }
            R::SET_VRING_ERR => {
                let (queue, fd) = parser.event()?;
                Self::SetVringErr { queue, fd }
            }
            R::SET_VRING_ENABLE => match parser.state()? {
                (queue, on @ (0 | 1)) => Self::SetVringEnable { queue, on: on == 1 },
                (_, other) => return Err(parser.range(u64::from(other))),
            },
            R::GET_QUEUE_NUM => parser.empty().map(|()| Self::GetQueueNum)?,
            R::SET_STATUS => {
                let word = parser.word()?;
                Self::SetStatus(u8::try_from(word).map_err(|_| parser.range(word))?)
            }
            R::GET_STATUS => parser.empty().map(|()| Self::GetStatus)?,
            R::GET_CONFIG => Self::GetConfig(parser.config_part()?),
            R::SET_CONFIG => parser.config_part().map(|_| Self::SetConfig)?,
            other => return Err(MessageError::NotOffered(other)),
        };
        if parser.fds.is_empty() { Ok(request) } else { Err(parser.descriptors(0)) }
    }
}

/// The body and descriptors of one request, taken apart.
struct Parser<'a> {
    request: FrontendReq,
    body: &'a [u8],
    fds: Vec<OwnedFd>,
}

impl Parser<'_> {
    fn length(&self, wanted: usize) -> Result<(), MessageError> {
        let got = self.body.len();
        if got == wanted {
            Ok(())
        } else {
            Err(MessageError::BadLength { request: self.request, got, wanted })
        }
    }

    fn descriptors(&self, wanted: usize) -> MessageError {
        MessageError::BadDescriptors { request: self.request, got: self.fds.len(), wanted }
    }

    fn range(&self, value: u64) -> MessageError {
        MessageError::OutOfRange { request: self.request, value }
    }

    /// The 64-bit word at `at`; the caller checked the length.
    fn u64_at(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.body[at..at + 8]);
        u64::from_ne_bytes(word)
    }

    fn u32_at(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.body[at..at + 4]);
        u32::from_ne_bytes(word)
    }

    fn empty(&self) -> Result<(), MessageError> {
        self.length(0)
    }

    fn word(&self) -> Result<u64, MessageError> {
        self.length(8)?;
        Ok(self.u64_at(0))
    }

    /// A queue index and a 16-bit value.
    fn state(&self) -> Result<(usize, u16), MessageError> {
        let (queue, value) = self.wide_state()?;
        Ok((queue, u16::try_from(value).map_err(|_| self.range(u64::from(value)))?))
    }

    /// A queue index and a 32-bit value.
    fn wide_state(&self) -> Result<(usize, u32), MessageError> {
        self.length(8)?;
        Ok((self.u32_at(0) as usize, self.u32_at(4)))
    }

    fn one_fd(&mut self) -> Result<OwnedFd, MessageError> {
        match self.fds.len() {
            1 => Ok(self.fds.remove(0)),
            _ => Err(self.descriptors(1)),
        }
    }

    /// A queue index, with a descriptor unless the word says that there is none.
    fn event(&mut self) -> Result<(usize, Option<OwnedFd>), MessageError> {
        let word = self.word()?;
        if word & !(QUEUE_MASK | NO_DESCRIPTOR) != 0 {
            return Err(self.range(word));
        }
        let fd = if word & NO_DESCRIPTOR == 0 { Some(self.one_fd()?) } else { None };
        Ok(((word & QUEUE_MASK) as usize, fd))
    }

    fn ring_addresses(&self) -> Result<Request, MessageError> {
        self.length(40)?;
        Ok(Request::SetVringAddr {
            queue: self.u32_at(0) as usize,
            desc: self.u64_at(8),
            used: self.u64_at(16),
            avail: self.u64_at(24),
        })
    }

    /// A part of the configuration space: its contents, or room for them, follow.
    fn config_part(&self) -> Result<ConfigPart, MessageError> {
        if self.body.len() < CONFIG_HEADER {
            self.length(CONFIG_HEADER)?;
        }
        let part = ConfigPart { offset: self.u32_at(0), size: self.u32_at(4), flags: self.u32_at(8) };
        if part.size as usize > MAX_CONFIG {
            return Err(self.range(u64::from(part.size)));
        }
        self.length(CONFIG_HEADER + part.size as usize)?;
        Ok(part)
    }

    fn region_at(&self, at: usize) -> Result<MemoryRecord, MessageError> {
        let region = MemoryRecord {
            guest_addr: self.u64_at(at),
            size: self.u64_at(at + 8),
            user_addr: self.u64_at(at + 16),
            file_offset: self.u64_at(at + 24),
        };
        let ends = [region.guest_addr, region.user_addr, region.file_offset];
        if region.size == 0 || ends.iter().any(|start| start.checked_add(region.size).is_none()) {
            return Err(self.range(region.size));
        }
        Ok(region)
    }

    fn single_region(&self) -> Result<MemoryRecord, MessageError> {
        self.length(40)?;
        self.region_at(8)
    }

    fn memory_table(&mut self) -> Result<Vec<(MemoryRecord, OwnedFd)>, MessageError> {
        if self.body.len() < 8 {
            self.length(8)?;
        }
        let count = self.u32_at(0) as usize;
        if count == 0 || count > MAX_REGIONS {
            return Err(self.range(count as u64));
        }
        self.length(8 + 32 * count)?;
        if self.fds.len() != count {
            return Err(self.descriptors(count));
        }
        let regions: Result<Vec<_>, _> = (0..count).map(|i| self.region_at(8 + 32 * i)).collect();
        Ok(regions?.into_iter().zip(self.fds.drain(..)).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event() -> OwnedFd {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap()
    }

    fn parse(request: FrontendReq, body: &[u8], fds: usize) -> Result<Request, MessageError> {
        let header = Header { request, wants_ack: false, size: body.len() };
        Request::parse(&header, body, (0..fds).map(|_| event()).collect())
    }

    #[test]
    fn a_ring_address_is_read_in_the_order_of_the_protocol() {
        let mut body = vec![0; 40];
        body[0] = 1;
        for (at, value) in [(8, 0x1000_u64), (16, 0x2000), (24, 0x3000)] {
            body[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let Ok(Request::SetVringAddr { queue, desc, avail, used }) =
            parse(FrontendReq::SET_VRING_ADDR, &body, 0)
        else {
            panic!("not understood")
        };
        assert_eq!((queue, desc, used, avail), (1, 0x1000, 0x2000, 0x3000));
    }

    #[test]
    fn descriptors_must_fit_the_request() {
        let word = 0_u64.to_ne_bytes();
        assert!(parse(FrontendReq::SET_VRING_KICK, &word, 1).is_ok());
        for (request, fds, wanted) in [
            (FrontendReq::SET_VRING_KICK, 0, 1),
            (FrontendReq::SET_VRING_CALL, 2, 1),
            (FrontendReq::SET_FEATURES, 1, 0),
        ] {
            let error = parse(request, &word, fds).unwrap_err();
            assert_eq!(error, MessageError::BadDescriptors { request, got: fds, wanted });
        }
        let none = NO_DESCRIPTOR.to_ne_bytes();
        let call = parse(FrontendReq::SET_VRING_CALL, &none, 0);
        assert!(matches!(call, Ok(Request::SetVringCall { queue: 0, fd: None })));
        assert!(parse(FrontendReq::SET_VRING_KICK, &none, 0).is_err());
    }

    #[test]
    fn a_part_of_the_configuration_space_is_answered_whole_or_not_at_all() {
        let ask = |offset: u32, size: u32, room: usize| {
            let body = [[offset, size, 1].map(u32::to_ne_bytes).concat(), vec![0; room]].concat();
            parse(FrontendReq::GET_CONFIG, &body, 0)
        };
        let answer = |offset: u32, size: u32| match ask(offset, size, size as usize) {
            Ok(Request::GetConfig(part)) => part.of(&[3, 4, 5, 6, 7, 8, 9, 10]),
            other => panic!("{other:?}"),
        };
        let header = |offset: u32, size: u32| [offset, size, 1].map(u32::to_ne_bytes).concat();
        assert_eq!(answer(0, 8), [header(0, 8), vec![3, 4, 5, 6, 7, 8, 9, 10]].concat());
        assert_eq!(answer(6, 2), [header(6, 2), vec![9, 10]].concat());
        assert_eq!(answer(8, 0), header(8, 0));
        for (offset, size) in [(0, 9), (7, 2), (9, 0), (8, 1), (u32::MAX, 1), (u32::MAX, 256)] {
            assert!(answer(offset, size).is_empty(), "{size} bytes at {offset}");
        }
        let request = FrontendReq::GET_CONFIG;
        assert_eq!(ask(0, 257, 257).unwrap_err(), MessageError::OutOfRange { request, value: 257 });
        assert_eq!(ask(0, 8, 7).unwrap_err(), MessageError::BadLength { request, got: 19, wanted: 20 });
        assert_eq!(ask(0, 0, 1).unwrap_err(), MessageError::BadLength { request, got: 13, wanted: 12 });
        let short = parse(request, &[0; 11], 0).unwrap_err();
        assert_eq!(short, MessageError::BadLength { request, got: 11, wanted: 12 });
        assert!(matches!(parse(FrontendReq::SET_CONFIG, &[0; 12], 0), Ok(Request::SetConfig)));
    }

    #[test]
    fn a_memory_table_without_regions_is_refused() {
        let error = parse(FrontendReq::SET_MEM_TABLE, &[0; 8], 0).unwrap_err();
        assert_eq!(error, MessageError::OutOfRange { request: FrontendReq::SET_MEM_TABLE, value: 0 });
    }

    #[test]
    fn what_was_not_offered_is_named() {
        let error = parse(FrontendReq::SET_LOG_BASE, &[0; 16], 1).unwrap_err();
        assert_eq!(error, MessageError::NotOffered(FrontendReq::SET_LOG_BASE));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(
            header in prop::array::uniform12(any::<u8>()),
            code in 0_u32..50,
            flags in prop::sample::select(vec![1_u32, 9, 0, 5]),
            body in prop::collection::vec(any::<u8>(), 0..MAX_BODY),
            fds in 0_usize..4,
        ) {
            let _ = Header::parse(&header);
            let mut plausible = header;
            plausible[..4].copy_from_slice(&code.to_ne_bytes());
            plausible[4..8].copy_from_slice(&flags.to_ne_bytes());
            plausible[8..].copy_from_slice(&(body.len() as u32).to_ne_bytes());
            if let Ok(header) = Header::parse(&plausible) {
                prop_assert_eq!(header.size, body.len());
                let _ = Request::parse(&header, &body, (0..fds).map(|_| event()).collect());
            }
        }

        #[test]
        fn a_memory_table_holds_only_regions_that_do_not_wrap(
            count in 1_usize..6,
            words in prop::collection::vec(any::<u64>(), 24),
        ) {
            let mut body = vec![0; 8];
            body[0] = count as u8;
            body.extend(words.iter().take(4 * count).flat_map(|w| w.to_ne_bytes()));
            if let Ok(Request::SetMemTable(regions)) = parse(FrontendReq::SET_MEM_TABLE, &body, count) {
                for (region, _) in regions {
                    prop_assert!(region.size > 0);
                    prop_assert!(region.guest_addr.checked_add(region.size).is_some());
                    prop_assert!(region.user_addr.checked_add(region.size).is_some());
                }
            }
        }
    }
}
