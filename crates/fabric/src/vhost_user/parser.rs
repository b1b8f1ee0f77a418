//! The parser of requests: bytes are checked here once and are values afterwards.

use taut_api::fabric::ForeignFd;
use taut_api::fabric::session::MemoryRecord;
use vhost::vhost_user::message::FrontendReq;

use super::error::MessageError;
use super::message::{ConfigPart, Header, Request};
use super::wire::{CONFIG_HEADER, MAX_CONFIG, MAX_REGIONS};

/// The queue index in the word of a kick, call or error request.
const QUEUE_MASK: u64 = 0xff;
/// The bit in that word which says that no descriptor accompanies the request.
const NO_DESCRIPTOR: u64 = 1 << 8;

impl Request {
    /// Checks and reads the body and the descriptors of a request.
    pub fn parse(header: &Header, body: &[u8], fds: Vec<ForeignFd>) -> Result<Self, MessageError> {
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
                // Some front ends send the region's descriptor, which is closed here.
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

/// The body and descriptors of one request.
struct Parser<'a> {
    request: FrontendReq,
    body: &'a [u8],
    fds: Vec<ForeignFd>,
}

impl Parser<'_> {
    /// Checks that the body has `wanted` bytes.
    fn length(&self, wanted: usize) -> Result<(), MessageError> {
        let got = self.body.len();
        if got == wanted {
            Ok(())
        } else {
            Err(MessageError::BadLength { request: self.request, got, wanted })
        }
    }

    /// The error for a wrong number of descriptors.
    fn descriptors(&self, wanted: usize) -> MessageError {
        MessageError::BadDescriptors { request: self.request, got: self.fds.len(), wanted }
    }

    /// The error for a value out of range.
    fn range(&self, value: u64) -> MessageError {
        MessageError::OutOfRange { request: self.request, value }
    }

    /// The 64-bit word at `at`. The caller has checked the length.
    fn u64_at(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.body[at..at + 8]);
        u64::from_ne_bytes(word)
    }

    /// The 32-bit word at `at`. The caller has checked the length.
    fn u32_at(&self, at: usize) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.body[at..at + 4]);
        u32::from_ne_bytes(word)
    }

    /// Checks that the body is empty.
    fn empty(&self) -> Result<(), MessageError> {
        self.length(0)
    }

    /// Reads a body of one 64-bit word.
    fn word(&self) -> Result<u64, MessageError> {
        self.length(8)?;
        Ok(self.u64_at(0))
    }

    /// Reads a queue index and a 16-bit value.
    fn state(&self) -> Result<(u32, u16), MessageError> {
        let (queue, value) = self.wide_state()?;
        Ok((queue, u16::try_from(value).map_err(|_| self.range(u64::from(value)))?))
    }

    /// Reads a queue index and a 32-bit value.
    fn wide_state(&self) -> Result<(u32, u32), MessageError> {
        self.length(8)?;
        Ok((self.u32_at(0), self.u32_at(4)))
    }

    /// Takes the only descriptor.
    fn one_fd(&mut self) -> Result<ForeignFd, MessageError> {
        match self.fds.len() {
            1 => Ok(self.fds.remove(0)),
            _ => Err(self.descriptors(1)),
        }
    }

    /// Reads a queue index, and takes a descriptor unless the word says that there is none.
    fn event(&mut self) -> Result<(u32, Option<ForeignFd>), MessageError> {
        let word = self.word()?;
        if word & !(QUEUE_MASK | NO_DESCRIPTOR) != 0 {
            return Err(self.range(word));
        }
        let fd = if word & NO_DESCRIPTOR == 0 { Some(self.one_fd()?) } else { None };
        Ok(((word & QUEUE_MASK) as u32, fd))
    }

    /// Reads the addresses of a ring.
    fn ring_addresses(&self) -> Result<Request, MessageError> {
        self.length(40)?;
        Ok(Request::SetVringAddr {
            queue: self.u32_at(0),
            desc: self.u64_at(8),
            used: self.u64_at(16),
            avail: self.u64_at(24),
        })
    }

    /// Reads a part of the configuration space, which its contents or room for them follow.
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

    /// Reads a memory region at `at` and checks that it does not wrap around.
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

    /// Reads a body of one memory region.
    fn single_region(&self) -> Result<MemoryRecord, MessageError> {
        self.length(40)?;
        self.region_at(8)
    }

    /// Reads a memory table and takes its descriptors.
    fn memory_table(&mut self) -> Result<Vec<(MemoryRecord, ForeignFd)>, MessageError> {
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
#[path = "parser_tests.rs"]
mod tests;
