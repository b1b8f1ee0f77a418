//! The device end of a ring, in whichever format was negotiated. The format is asked for once per burst, not per chain.

use std::sync::Arc;

use super::QueueConfig;
use super::chain::{Chain, Chains, Direction};
use super::packed::PackedRing;
use super::split::SplitRing;
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::GuestMemory;

#[derive(Debug)]
enum Format {
    Split(SplitRing),
    Packed(PackedRing),
}

/// The device end of a ring, and the chains that were fetched from it. They are returned in the order in which they
/// were fetched.
#[derive(Debug)]
pub(super) struct Ring {
    format: Format,
    pub(super) chains: Chains,
    /// Chains that are returned together are returned by one entry. Not in a receive queue: its driver needs the length
    /// of each.
    batches: bool,
    fault: Option<RingFault>,
}

/// Does the same for each format.
macro_rules! each {
    ($format:expr, $ring:ident => $action:expr) => {
        match $format {
            Format::Split($ring) => $action,
            Format::Packed($ring) => $action,
        }
    };
}

impl Ring {
    /// `capacity`: parts that are remembered without allocating.
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        config: &QueueConfig,
        direction: Direction,
        capacity: usize,
    ) -> Result<Self, QueueError> {
        if config.features & features::VERSION_1 == 0 {
            return Err(QueueError::Legacy);
        }
        let has = |bit| config.features & bit != 0;
        let format = if has(features::RING_PACKED) {
            Format::Packed(PackedRing::new(memory, config, direction)?)
        } else {
            Format::Split(SplitRing::new(memory, config)?)
        };
        let indirect = has(features::INDIRECT_DESC);
        Ok(Self {
            format,
            batches: has(features::IN_ORDER) && direction != Direction::Receive,
            chains: Chains::new(memory, direction, indirect, capacity),
            fault: None,
        })
    }

    /// Position of the first buffer that has not been returned.
    pub(super) fn position(&self) -> u16 {
        each!(&self.format, ring => ring.position())
    }

    /// The fault that stopped this ring.
    #[inline]
    pub(super) fn check(&self) -> Result<(), RingFault> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Remembers a fault: the ring is not used any more.
    #[cold]
    pub(super) fn broken(&mut self, fault: RingFault) -> RingFault {
        self.fault = Some(fault);
        fault
    }

    /// Fetches the chains that wait, as many as `out` has room for, and returns how many; fewer when there are more than
    /// `parts` parts. Chains in front of a faulty one are returned, the fault comes with the next call.
    #[inline]
    pub(super) fn fetch(&mut self, out: &mut [Chain], parts: usize) -> Result<usize, RingFault> {
        self.check()?;
        let fetched = each!(&mut self.format, ring => ring.fetch(&mut self.chains, out, parts));
        fetched.map_err(|fault| self.broken(fault))
    }

    /// Returns chains, in the order in which they were fetched, each with so many bytes written. The driver sees them after
    /// [`Self::publish`].
    #[inline]
    pub(super) fn push_used(
        &mut self,
        used: impl ExactSizeIterator<Item = (Chain, u32)> + DoubleEndedIterator,
    ) {
        if self.batches {
            return self.push_batch(used.map(|(chain, _)| chain));
        }
        each!(&mut self.format, ring => ring.push_used(used));
    }

    #[inline]
    fn push_batch(&mut self, mut used: impl ExactSizeIterator<Item = Chain> + DoubleEndedIterator) {
        let chains = used.len() as u16;
        let Some(last) = used.next_back() else { return };
        match &mut self.format {
            Format::Split(ring) => ring.push_batch(last, chains),
            Format::Packed(ring) => {
                let before: u16 = used.map(|chain| chain.descriptors).sum();
                ring.push_batch(last, before + last.descriptors);
            }
        }
    }

    /// Shows the driver all used entries.
    #[inline]
    pub(super) fn publish(&mut self) {
        each!(&mut self.format, ring => ring.publish());
    }

    /// Has the driver asked to be told of what was published since the last call?
    #[inline]
    pub(super) fn needs_interrupt(&mut self) -> bool {
        each!(&mut self.format, ring => ring.needs_interrupt())
    }

    pub(super) fn suspend_kicks(&mut self) {
        each!(&mut self.format, ring => ring.suspend_kicks());
    }

    pub(super) fn arm_kicks(&mut self) -> bool {
        each!(&mut self.format, ring => ring.arm_kicks())
    }
}
