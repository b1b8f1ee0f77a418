//! A guest's region, and which of its channels are in use.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use taut_queue_pair::layout::RegionLenError;
use taut_queue_pair::memory::RegionError;
use taut_queue_pair::{Channel, Geometry, Memory, Region, Word};
use thiserror::Error;

use super::channel::AttachedEnd;
use crate::vsock::proto::ChannelIdx;

/// Identity of a file in memory: its device and its inode.
type FileId = (u64, u64);

/// The part of a file that is a guest's region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionPlace {
    /// Offset of the region in the file, in bytes.
    pub offset: u64,
    /// Length of the region, in bytes.
    pub len: u64,
    /// Length of a ring that the region was made with, in bytes; `None` if that was not said.
    pub ring_len: Option<u32>,
}

/// A guest's region.
///
/// The geometry follows from the place. The header in the memory is not read: the guest can write
/// to it.
#[derive(Debug)]
pub(crate) struct GuestRegion {
    region: Region,
    file: FileId,
    place: RegionPlace,
    /// The attached ends, by the numbers of their channels.
    ends: Vec<Option<AttachedEnd>>,
    /// Channels that are not in use. The one that was freed first is used first.
    free: VecDeque<ChannelIdx>,
    /// Number of the newest use of a channel.
    newest: u64,
    /// The channel from which on the next end is patrolled.
    next_patrolled: usize,
}

/// Reason why memory cannot be a guest's region.
#[derive(Debug, Error)]
pub enum RegionRefused {
    /// The length of the region is not possible.
    #[error(transparent)]
    Length(#[from] RegionLenError),
    /// The length of the rings is not possible.
    #[error("a region of {len} bytes for queue pairs cannot have rings of {ring_len} bytes")]
    Rings {
        /// Length of the region.
        len: u64,
        /// Length of a ring.
        ring_len: u32,
    },
    /// The file could become shorter. An access to the rest would raise SIGBUS.
    #[error("the file of the queue pairs can shrink; it needs the seal F_SEAL_SHRINK")]
    Unsealed,
    /// The file ends before the region does.
    #[error("the queue pairs need a file of {needed} bytes, it has {actual}")]
    FileTooShort {
        /// Offset plus length of the region.
        needed: u64,
        /// Length of the file.
        actual: u64,
    },
    /// The kernel refused to tell about the file, or to map it.
    #[error("cannot map the queue pairs")]
    Map(#[from] io::Error),
    /// The memory has no room for its channels.
    #[error(transparent)]
    Region(#[from] RegionError),
}

impl GuestRegion {
    /// Maps a region of a file. The file may not be able to shrink.
    pub(crate) fn map(file: &OwnedFd, place: RegionPlace) -> Result<Self, RegionRefused> {
        let RegionPlace { offset, len, ring_len } = place;
        // A length that is not possible has an error of its own.
        Geometry::of(len)?;
        let geometry = Geometry::made_with(len, ring_len);
        let ring_len = ring_len.unwrap_or_default();
        let geometry = geometry.ok_or(RegionRefused::Rings { len, ring_len })?;
        let id = Self::file_id(file)?;
        let sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed {
            return Err(RegionRefused::Unsealed);
        }
        let actual = fstat(file).map_err(io::Error::from)?.st_size.cast_unsigned();
        let needed = offset.saturating_add(len);
        if actual < needed {
            return Err(RegionRefused::FileTooShort { needed, actual });
        }
        let memory = Memory::map(file.as_fd(), offset, len as usize).map_err(io::Error::from)?;
        let region = Region::new(Arc::new(memory), geometry)?;
        let channels: Vec<_> = (0..geometry.channels()).map(ChannelIdx).collect();
        let ends = channels.iter().map(|_| None).collect();
        let free = VecDeque::new();
        let mut this = Self { region, file: id, place, ends, free, newest: 0, next_patrolled: 0 };
        // A program that has not noticed yet that an earlier fabric is gone may write into its
        // former channel.
        let (used, unused): (Vec<_>, Vec<_>) = channels.into_iter().partition(|&it| this.was_used(it));
        this.free = unused.into_iter().chain(used).collect();
        Ok(this)
    }

    fn file_id(file: &OwnedFd) -> io::Result<FileId> {
        let status = fstat(file)?;
        Ok((status.st_dev, status.st_ino))
    }

    /// Tells whether the region is this part of this file.
    pub(crate) fn is(&self, file: &OwnedFd, place: RegionPlace) -> bool {
        self.place == place && Self::file_id(file).is_ok_and(|id| id == self.file)
    }

    /// The channel with a number, for an end that is attached or is to be.
    fn channel(&self, channel: ChannelIdx) -> Option<Channel> {
        self.region.channel(channel.0)
    }

    /// Tells whether a channel has been used since its memory was made.
    fn was_used(&self, channel: ChannelIdx) -> bool {
        let channel = self.channel(channel);
        channel.is_some_and(|channel| Word::ALL.into_iter().any(|word| channel.load(word) != 0))
    }

    /// Uses a free channel for an end that `attach` makes; `None` if there is no free one.
    pub(crate) fn attach(&mut self, attach: impl FnOnce(&Channel, u64) -> AttachedEnd) -> Option<ChannelIdx> {
        let index = self.free.pop_front()?;
        let channel = self.channel(index)?;
        self.newest += 1;
        self.ends[index.0 as usize] = Some(attach(&channel, self.newest));
        Some(index)
    }

    /// Goes on with an end that another fabric has attached to a channel. Returns `false` if the
    /// channel does not exist, is in use, or if `attach` refuses its contents.
    pub(crate) fn attach_again(
        &mut self,
        index: ChannelIdx,
        attach: impl FnOnce(&Channel, u64) -> Option<AttachedEnd>,
    ) -> bool {
        let Some(place) = self.free.iter().position(|&free| free == index) else { return false };
        let Some(channel) = self.channel(index) else { return false };
        self.newest += 1;
        let Some(end) = attach(&channel, self.newest) else { return false };
        self.free.remove(place);
        self.ends[index.0 as usize] = Some(end);
        true
    }

    /// Number of the newest use of a channel.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// Has the uses of channels be numbered from the one after `number` on.
    pub(crate) fn number_after(&mut self, number: u64) {
        self.newest = number;
    }

    /// Ends the use of a channel.
    pub(crate) fn free(&mut self, channel: ChannelIdx) {
        if let Some(end) = self.ends.get_mut(channel.0 as usize)
            && end.take().is_some()
        {
            self.free.push_back(channel);
        }
    }

    /// The end that is attached to a channel.
    pub(crate) fn end(&self, channel: ChannelIdx) -> Option<&AttachedEnd> {
        self.ends.get(channel.0 as usize)?.as_ref()
    }

    /// The end that is attached to a channel.
    pub(crate) fn end_mut(&mut self, channel: ChannelIdx) -> Option<&mut AttachedEnd> {
        self.ends.get_mut(channel.0 as usize)?.as_mut()
    }

    /// Number of ends that are attached.
    pub(crate) fn attached(&self) -> usize {
        self.ends.len() - self.free.len()
    }

    /// All ends that are attached.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (ChannelIdx, &AttachedEnd)> {
        (0..).map(ChannelIdx).zip(&self.ends).filter_map(|(channel, end)| Some((channel, end.as_ref()?)))
    }

    /// Takes the next end in turn to be patrolled; `None` if there is none, or if it was patrolled
    /// less than a `period` before `now`. The others were patrolled later.
    pub(crate) fn next_to_patrol(&mut self, period: Duration, now: Instant) -> Option<ChannelIdx> {
        let (before, behind) = self.ends.split_at_mut(self.next_patrolled);
        let behind = (self.next_patrolled..).zip(behind);
        let (index, end) =
            behind.chain((0..).zip(before)).find_map(|(index, end)| Some((index, end.as_mut()?)))?;
        if end.patrolled_at.is_some_and(|at| now.saturating_duration_since(at) < period) {
            return None;
        }
        end.patrolled_at = Some(now);
        self.next_patrolled = index + 1;
        Some(ChannelIdx(index as u32))
    }

    /// Checks that each channel is either in use or free.
    #[cfg(any(test, feature = "rig"))]
    pub(crate) fn check(&self) {
        for (channel, end) in (0..).map(ChannelIdx).zip(&self.ends) {
            let free = self.free.iter().filter(|&&free| free == channel).count();
            assert_eq!(free, usize::from(end.is_none()), "{channel:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn a_region_is_a_part_of_a_file() {
        const MIB: u64 = 1 << 20;
        let file = || {
            let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&file, 16 * MIB).unwrap();
            fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
            file
        };
        let (one, other) = (file(), file());
        let place = |offset, len| RegionPlace { offset, len, ring_len: None };
        let region = GuestRegion::map(&one, place(2 * MIB, 4 * MIB)).unwrap();
        let (same, duplicate) = (place(2 * MIB, 4 * MIB), one.try_clone().unwrap());
        assert!(region.is(&one, same) && region.is(&duplicate, same) && !region.is(&other, same));
        assert!(!region.is(&one, place(2 * MIB, 8 * MIB)) && !region.is(&one, place(4 * MIB, 4 * MIB)));
    }

    #[test]
    fn channels_of_an_earlier_fabric_are_used_last() {
        let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4 << 20).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let map =
            || GuestRegion::map(&file, RegionPlace { offset: 0, len: 4 << 20, ring_len: None }).unwrap();
        let earlier = map();
        for (channel, word) in [(0, Word::OutHead), (1, Word::InBytesWait), (5, Word::InEnd)] {
            earlier.channel(ChannelIdx(channel)).unwrap().store(word, 2);
        }
        let free: Vec<_> = map().free.into_iter().map(|channel| channel.0).collect();
        assert_eq!((free.len(), &free[..4], &free[28..]), (31, &[2, 3, 4, 6][..], &[0, 1, 5][..]));
    }

    #[test]
    fn a_region_has_the_rings_that_it_was_made_with() {
        let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 64 << 20).unwrap();
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let map = |ring_len| GuestRegion::map(&file, RegionPlace { offset: 0, len: 64 << 20, ring_len });
        for (ring_len, channels) in [(None, 127), (Some(256 << 10), 127), (Some(1 << 20), 31)] {
            assert_eq!(map(ring_len).unwrap().free.len(), channels, "{ring_len:?}");
        }
        let refused = map(Some(3 << 18)).unwrap_err().to_string();
        assert!(refused.contains("67108864 bytes") && refused.contains("786432 bytes"), "{refused}");
    }
}
