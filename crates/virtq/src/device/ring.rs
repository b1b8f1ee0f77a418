//! The device end of a ring in the negotiated format. The format is looked up once per burst, not
//! once per chain.

use std::sync::Arc;

use super::chain::{Chain, Chains, Fetch, QueueKind};
use super::packed::PackedRing;
use super::split::SplitRing;
use crate::fault::{QueueError, RingFault};
use crate::features;
use crate::memory::GuestMemory;
use crate::ring::{Format, QueueConfig, each};

/// The device end of a ring, and the chains that were fetched from it. Chains are returned in the
/// order in which they were fetched.
#[derive(Debug)]
pub(super) struct Ring {
    format: Format<SplitRing, PackedRing>,
    pub(super) chains: Chains,
    /// True if one used entry returns all chains that are returned together. Never in a receive
    /// queue: its driver needs the length of each chain.
    batches: bool,
    fault: Option<RingFault>,
}

impl Ring {
    /// Maps the ring. `capacity`: number of parts that are stored without allocating.
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        config: &QueueConfig,
        kind: QueueKind,
        capacity: usize,
    ) -> Result<Self, QueueError> {
        if config.features & features::VERSION_1 == 0 {
            return Err(QueueError::Legacy);
        }
        let has = |bit| config.features & bit != 0;
        let format = if has(features::RING_PACKED) {
            Format::Packed(PackedRing::new(memory, config, kind)?)
        } else {
            Format::Split(SplitRing::new(memory, config)?)
        };
        let indirect = has(features::INDIRECT_DESC);
        Ok(Self {
            format,
            batches: has(features::IN_ORDER) && kind != QueueKind::Receive,
            chains: Chains::new(memory, kind, indirect, capacity),
            fault: None,
        })
    }

    /// Position of the first chain that has not been returned.
    pub(super) fn position(&self) -> u16 {
        each!(&self.format, ring => ring.position())
    }

    /// Fails with the fault that stopped this ring, if there was one.
    #[inline]
    pub(super) fn check(&self) -> Result<(), RingFault> {
        self.fault.map_or(Ok(()), Err)
    }

    /// Stops the ring for good because of a fault, and returns the fault.
    #[cold]
    pub(super) fn stop(&mut self, fault: RingFault) -> RingFault {
        self.fault = Some(fault);
        fault
    }

    /// Fetches waiting chains and returns how many: as many as `out` has room for, or fewer when
    /// they have more than `parts` parts. A packed transmit ring may return fewer than wait.
    /// If a chain is faulty, the chains before it are returned; the next call returns the fault.
    #[inline]
    pub(super) fn fetch(&mut self, out: &mut [Chain], parts: usize) -> Result<usize, RingFault> {
        self.check()?;
        let fetched =
            each!(&mut self.format, ring => ring.fetch(Fetch { chains: &mut self.chains, out, parts }));
        fetched.map_err(|fault| self.stop(fault))
    }

    /// Returns chains in the order in which they were fetched, each with the number of bytes
    /// written. The driver sees them after [`Self::publish`].
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

    /// Returns chains by one used entry, that of the last chain.
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

    /// Makes all returned chains visible to the driver.
    #[inline]
    pub(super) fn publish(&mut self) {
        each!(&mut self.format, ring => ring.publish());
    }

    /// Tells whether the driver wants an interrupt for what was published since the last call.
    #[inline]
    pub(super) fn needs_interrupt(&mut self) -> bool {
        each!(&mut self.format, ring => ring.needs_interrupt())
    }

    /// Asks the driver not to kick.
    pub(super) fn suspend_kicks(&mut self) {
        each!(&mut self.format, ring => ring.suspend_kicks());
    }

    /// Asks the driver to kick at the next chain. Returns true if there is one already.
    pub(super) fn arm_kicks(&mut self) -> bool {
        each!(&mut self.format, ring => ring.arm_kicks())
    }
}
