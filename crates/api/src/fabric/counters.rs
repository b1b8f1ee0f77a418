//! Layout of the counters memfd: written by the fabric's workers, read by anybody, without a lock or a message.
//!
//! The file is an array of little-endian 64-bit words. Each port owns [`PORT_WORDS`] words at index `id × PORT_WORDS`;
//! behind the ports, each worker owns [`WORKER_WORDS`]; behind the workers are the connections of VMCI sockets, [`CONNECTION_WORDS`]
//! each, which only a fabric understands: they tell the next one what the last one knew. Every word has one writer and only ever grows
//! (except [`PortWord::RingPosition`] and [`PortWord::RxQueues`]); readers take differences. Readers may see one word newer than another.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::config::PortId;
use super::drop_reason::DropReason;
use crate::vmci::VmciCounters;

/// Ports that one fabric can have.
pub const MAX_PORTS: usize = 4096;
/// Workers that one fabric can have.
pub const MAX_WORKERS: usize = 64;
/// Words per port: 1 KiB, so that two ports never share a cache line.
pub const PORT_WORDS: usize = 128;
/// Words per worker.
pub const WORKER_WORDS: usize = 64;
/// Connections of VMCI sockets that one fabric can have.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Words per connection.
pub const CONNECTION_WORDS: usize = 8;
/// Index of the first connection's first word.
pub const CONNECTIONS: usize = MAX_PORTS * PORT_WORDS + MAX_WORKERS * WORKER_WORDS;
/// Size of the file in bytes. Pages that nobody has written take no memory.
pub const FILE_SIZE: u64 = ((CONNECTIONS + MAX_CONNECTIONS * CONNECTION_WORDS) * 8) as u64;

/// Word within a port's block. "Rx" and "Tx" are the guest's: `RxFrames` went to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum PortWord {
    /// Frames delivered to the guest.
    RxFrames = 0,
    /// Bytes delivered to the guest, from the Ethernet header on.
    RxBytes = 1,
    /// Frames taken from the guest (dropped ones included).
    TxFrames = 2,
    /// Bytes taken from the guest.
    TxBytes = 3,
    /// Interrupts sent to the guest.
    Interrupts = 4,
    /// Notifications received from the guest.
    Kicks = 5,
    /// Frames delivered that were broadcast or multicast.
    RxMulticast = 6,
    /// Times a sender had to wait for this port's full receive ring.
    RxWaits = 7,
    /// Frames for this port that LRO made of several segments.
    RxMergedFrames = 8,
    /// The segments in them.
    RxMergedSegments = 9,
    /// Receive queues that run now, a bit each: as many as the guest uses.
    RxQueues = 10,
    /// First of [`DropReason::ALL`], counted at the port that the frame came from.
    TxDrops = 32,
    /// First of [`DropReason::ALL`], counted at the port that the frame was for.
    RxDrops = 64,
    /// First of 16 ring positions (queue index order), for handing a packed ring over.
    RingPosition = 96,
}

/// Word within the block of a VMCI device: other words than [`PortWord`]'s at the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum SocketWord {
    /// Packets delivered to the guest.
    RxPackets = 0,
    /// Payload bytes delivered to the guest.
    RxBytes = 1,
    /// Packets taken from the guest (dropped ones included).
    TxPackets = 2,
    /// Payload bytes taken from the guest.
    TxBytes = 3,
    /// Interrupts sent to the guest.
    Interrupts = 4,
    /// Notifications received from the guest.
    Kicks = 5,
    /// Connections that are open now. Not a counter.
    Connections = 6,
    /// Connections opened, from either side.
    Opened = 7,
    /// Requests of the guest's answered by a reset: nobody there, or nobody that it may talk to.
    Refused = 8,
    /// Requests by or to the guest answered by a reset because of a limit.
    Limited = 9,
    /// Packets dropped because their source was not the guest's.
    Forged = 10,
    /// Packets dropped because they made no sense.
    Malformed = 11,
    /// Connections reset because one side broke the rules, or by a restart.
    Resets = 12,
    /// First of 20 words for the next fabric: which of the guest's packets have been taken and not returned.
    InFlight = 96,
    /// First of 4 words for the next fabric: the guest's transmit ring, if it stands still.
    Stopped = 116,
}

/// Word within a worker's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum WorkerWord {
    /// Times it went to sleep.
    Sleeps = 0,
    /// Rounds over its ports with at least one frame.
    Bursts = 1,
    /// Rounds over its ports that found nothing.
    EmptyRounds = 2,
    /// Nanoseconds asleep.
    SleepNs = 3,
    /// Nanoseconds in bursts with at least one frame.
    BusyNs = 4,
    /// Transmit queues that it gave to another worker because it had more to do.
    Given = 5,
}

/// Index of a port's first word.
pub const fn port_base(port: PortId) -> usize {
    port.0 as usize * PORT_WORDS
}

/// Index of a worker's first word.
pub const fn worker_base(worker: usize) -> usize {
    MAX_PORTS * PORT_WORDS + worker * WORKER_WORDS
}

/// A port's counters, read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortCounters {
    /// Frames delivered to the guest.
    pub rx_frames: u64,
    /// Bytes delivered to the guest.
    pub rx_bytes: u64,
    /// Frames taken from the guest.
    pub tx_frames: u64,
    /// Bytes taken from the guest.
    pub tx_bytes: u64,
    /// Interrupts sent to the guest.
    pub interrupts: u64,
    /// Notifications received from the guest.
    pub kicks: u64,
    /// Frames delivered that were broadcast or multicast.
    pub rx_multicast: u64,
    /// Times a sender had to wait for this port's full receive ring.
    pub rx_waits: u64,
    /// Frames for this port that were made of several TCP segments (LRO).
    #[serde(default)]
    pub rx_merged_frames: u64,
    /// The segments in them.
    #[serde(default)]
    pub rx_merged_segments: u64,
    /// Receive queues that run now: as many as the guest uses of its card's.
    #[serde(default)]
    pub rx_queues: u32,
    /// Frames from this port that were dropped, by reason; zeros left out.
    #[serde(default)]
    pub tx_drops: Vec<(DropReason, u64)>,
    /// Frames for this port that were dropped, by reason; zeros left out.
    #[serde(default)]
    pub rx_drops: Vec<(DropReason, u64)>,
}

impl PortCounters {
    /// Reads a port's block of [`PORT_WORDS`] words.
    pub fn from_words(words: &[u64; PORT_WORDS]) -> Self {
        let word = |w: PortWord| words[w as usize];
        let drops = |first: PortWord| {
            let count = |reason: DropReason| words[first as usize + reason as usize];
            DropReason::ALL.iter().map(|&r| (r, count(r))).filter(|&(_, n)| n != 0).collect()
        };
        Self {
            rx_frames: word(PortWord::RxFrames),
            rx_bytes: word(PortWord::RxBytes),
            tx_frames: word(PortWord::TxFrames),
            tx_bytes: word(PortWord::TxBytes),
            interrupts: word(PortWord::Interrupts),
            kicks: word(PortWord::Kicks),
            rx_multicast: word(PortWord::RxMulticast),
            rx_waits: word(PortWord::RxWaits),
            rx_merged_frames: word(PortWord::RxMergedFrames),
            rx_merged_segments: word(PortWord::RxMergedSegments),
            rx_queues: word(PortWord::RxQueues).count_ones(),
            tx_drops: drops(PortWord::TxDrops),
            rx_drops: drops(PortWord::RxDrops),
        }
    }
}

impl VmciCounters {
    /// Reads the block of a VMCI device.
    pub fn from_words(words: &[u64; PORT_WORDS]) -> Self {
        let word = |w: SocketWord| words[w as usize];
        Self {
            connections: word(SocketWord::Connections),
            opened: word(SocketWord::Opened),
            rx_bytes: word(SocketWord::RxBytes),
            tx_bytes: word(SocketWord::TxBytes),
            rx_packets: word(SocketWord::RxPackets),
            tx_packets: word(SocketWord::TxPackets),
            refused: word(SocketWord::Refused),
            limited: word(SocketWord::Limited),
            forged: word(SocketWord::Forged),
            malformed: word(SocketWord::Malformed),
            resets: word(SocketWord::Resets),
            interrupts: word(SocketWord::Interrupts),
            kicks: word(SocketWord::Kicks),
        }
    }
}

/// A worker's counters, read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerCounters {
    /// Times it went to sleep.
    pub sleeps: u64,
    /// Nanoseconds asleep.
    pub sleep_ns: u64,
    /// Nanoseconds in bursts with at least one frame.
    pub busy_ns: u64,
    /// Rounds over its ports with at least one frame.
    pub bursts: u64,
    /// Rounds that found nothing: what polling costs.
    pub empty_rounds: u64,
    /// Transmit queues that it gave to another worker because it had more to do.
    pub given: u64,
}

impl WorkerCounters {
    /// Reads a worker's block of [`WORKER_WORDS`] words.
    pub fn from_words(words: &[u64; WORKER_WORDS]) -> Self {
        let word = |w: WorkerWord| words[w as usize];
        Self {
            sleeps: word(WorkerWord::Sleeps),
            sleep_ns: word(WorkerWord::SleepNs),
            busy_ns: word(WorkerWord::BusyNs),
            bursts: word(WorkerWord::Bursts),
            empty_rounds: word(WorkerWord::EmptyRounds),
            given: word(WorkerWord::Given),
        }
    }
}

// So many counters lie between the first reason and what follows it.
const _: () = assert!(DropReason::ALL.len() <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_read_by_name() {
        let mut words = [0; PORT_WORDS];
        words[PortWord::RxFrames as usize] = 7;
        words[PortWord::TxDrops as usize + DropReason::Runt as usize] = 3;
        let read = PortCounters::from_words(&words);
        assert_eq!(read.rx_frames, 7);
        assert_eq!(read.tx_drops, [(DropReason::Runt, 3)]);
        assert!(read.rx_drops.is_empty());
        words[SocketWord::Forged as usize] = 5;
        let read = VmciCounters::from_words(&words);
        assert_eq!(
            (read.rx_packets, read.forged, read.opened),
            (7, 5, 0),
            "the same words by their other names"
        );
    }
}
