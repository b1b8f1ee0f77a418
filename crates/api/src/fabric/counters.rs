//! Layout of the counters memfd, which the fabric's workers write and any process reads without a
//! lock or a message.
//!
//! The file is an array of little-endian 64-bit words. Each port owns [`PORT_WORDS`] words at index
//! `id × PORT_WORDS`. After the ports, each worker owns [`WORKER_WORDS`]. After the workers come
//! the connections of VMCI sockets, [`CONNECTION_WORDS`] each, from which a fabric continues where
//! the last one ended. [`connections`](super::connections) says what others may read of them.
//!
//! Every word has one writer and only grows, except [`PortWord::RingPosition`],
//! [`PortWord::RxQueues`], [`PortWord::AddressRefused`], [`SocketWord::Connections`],
//! [`SocketWord::Attached`] and the words of connections; readers take differences. A reader may
//! see one word newer than another.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::config::PortId;
use super::drop_reason::DropReason;

/// Maximum number of ports of a fabric.
pub const MAX_PORTS: usize = 4096;
/// Maximum number of workers of a fabric.
pub const MAX_WORKERS: usize = 64;
/// Words per port: 1 KiB, so that two ports never share a cache line.
pub const PORT_WORDS: usize = 128;
/// Words per worker.
pub const WORKER_WORDS: usize = 64;
/// Maximum number of VMCI connections of a fabric.
pub const MAX_CONNECTIONS: usize = 65_536;
/// Words per connection.
pub const CONNECTION_WORDS: usize = 8;
/// Index of the first connection's first word.
pub const CONNECTIONS: usize = MAX_PORTS * PORT_WORDS + MAX_WORKERS * WORKER_WORDS;
/// Size of the file in bytes. Pages that were never written take no memory.
pub const FILE_SIZE: u64 = ((CONNECTIONS + MAX_CONNECTIONS * CONNECTION_WORDS) * 8) as u64;

/// Index of a port's first word.
pub const fn port_base(port: PortId) -> usize {
    port.0 as usize * PORT_WORDS
}

/// Index of a worker's first word.
pub const fn worker_base(worker: usize) -> usize {
    MAX_PORTS * PORT_WORDS + worker * WORKER_WORDS
}

/// Defines one kind of block from one list: the words' positions, and the counters read from them.
///
/// Entries of `words` are positions only; fields of `computed` are read by an expression.
macro_rules! block {
    (
        $(#[$word_doc:meta])* words $Word:ident;
        $(#[$read_doc:meta])* counters $Read:ident($size:ident);
        { $($(#[$doc:meta])* $field:ident: $variant:ident = $at:literal,)* }
        words { $($(#[$extra_doc:meta])* $extra:ident = $extra_at:literal,)* }
        computed |$block:ident| { $($(#[$computed_doc:meta])* $computed:ident: $ty:ty = $value:expr,)* }
    ) => {
        $(#[$word_doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub enum $Word {
            $($(#[$doc])* $variant = $at,)*
            $($(#[$extra_doc])* $extra = $extra_at,)*
        }

        $(#[$read_doc])*
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
        pub struct $Read {
            $($(#[$doc])* #[serde(default)] pub $field: u64,)*
            $($(#[$computed_doc])* #[serde(default)] pub $computed: $ty,)*
        }

        impl $Read {
            /// Reads the words of one block.
            pub fn from_words(words: &[u64; $size]) -> Self {
                let $block = words;
                Self {
                    $($field: $block[$Word::$variant as usize],)*
                    $($computed: $value,)*
                }
            }
        }
    };
}

block! {
    /// Word within a port's block. "Rx" and "Tx" are the guest's: `RxFrames` went to the guest.
    words PortWord;
    /// Counters of a port.
    counters PortCounters(PORT_WORDS);
    {
        /// Frames delivered to the guest.
        rx_frames: RxFrames = 0,
        /// Bytes delivered to the guest, from the Ethernet header on.
        rx_bytes: RxBytes = 1,
        /// Frames taken from the guest, dropped ones included.
        tx_frames: TxFrames = 2,
        /// Bytes taken from the guest.
        tx_bytes: TxBytes = 3,
        /// Interrupts sent to the guest.
        interrupts: Interrupts = 4,
        /// Notifications received from the guest.
        kicks: Kicks = 5,
        /// Broadcast and multicast frames delivered.
        rx_multicast: RxMulticast = 6,
        /// Times a sender waited for this port's full receive ring.
        rx_waits: RxWaits = 7,
        /// Frames for this port that LRO merged from several TCP segments.
        rx_merged_frames: RxMergedFrames = 8,
        /// TCP segments in merged frames.
        rx_merged_segments: RxMergedSegments = 9,
        /// Bytes that the port has sent through uplinks, or that the uplink has sent, as they are
        /// on the wire: with preambles, checksums and gaps.
        wire_tx_bytes: WireTxBytes = 11,
        /// Bytes that the port has received from uplinks, or that the uplink has received, as they
        /// are on the wire. Group frames count at each port that they were for.
        wire_rx_bytes: WireRxBytes = 12,
    }
    words {
        /// Bit set of the receive queues that run now.
        RxQueues = 10,
        /// 1 if the port does not have the address that its guest's driver has set, although its
        /// policy accepts changes: another port has it, or no card can have it.
        AddressRefused = 14,
        /// First of [`DropReason::ALL`], counted at the port that the frame came from.
        TxDrops = 32,
        /// First of [`DropReason::ALL`], counted at the port that the frame was for.
        RxDrops = 64,
        /// First of 16 ring positions in queue index order, for handing a packed ring over.
        RingPosition = 96,
    }
    computed |words| {
        /// Number of receive queues that run now: those that the guest uses.
        rx_queues: u32 = words[PortWord::RxQueues as usize].count_ones(),
        /// True if the port keeps its configured address although its policy accepts the one that
        /// its guest's driver has set: another port has that one, or no card can have it.
        address_refused: bool = words[PortWord::AddressRefused as usize] != 0,
        /// Dropped frames from this port, by reason; reasons without a drop are absent.
        tx_drops: Vec<(DropReason, u64)> = drops(words, PortWord::TxDrops),
        /// Dropped frames for this port, by reason; reasons without a drop are absent.
        rx_drops: Vec<(DropReason, u64)> = drops(words, PortWord::RxDrops),
    }
}

impl PortWord {
    /// Returns whether a word is a counter: it only grows, until the port has another owner.
    pub const fn is_counter(word: usize) -> bool {
        let counts = word <= Self::WireRxBytes as usize && word != Self::RxQueues as usize;
        counts || (word >= Self::TxDrops as usize && word < Self::RingPosition as usize)
    }
}

block! {
    /// Word within the block of a VMCI device, which has other counters than [`PortWord`].
    words SocketWord;
    /// Counters of a VM's VMCI device since its port exists.
    counters VmciCounters(PORT_WORDS);
    {
        /// Connections that are open now, half-open ones included. Not a counter.
        connections: Connections = 6,
        /// Connections opened, from either side.
        opened: Opened = 7,
        /// Ends of connections at the guest that exchange their bytes by rings now. Not a counter.
        attached: Attached = 14,
        /// Payload bytes delivered to the guest.
        rx_bytes: RxBytes = 1,
        /// Payload bytes taken from the guest.
        tx_bytes: TxBytes = 3,
        /// Payload bytes delivered to the guest by rings; part of `rx_bytes`.
        ring_rx_bytes: RingRxBytes = 15,
        /// Payload bytes taken from the guest by rings; part of `tx_bytes`.
        ring_tx_bytes: RingTxBytes = 16,
        /// Packets delivered to the guest.
        rx_packets: RxPackets = 0,
        /// Packets taken from the guest, dropped ones included.
        tx_packets: TxPackets = 2,
        /// Requests of the guest answered by a reset: no listener, or no permission to talk to it.
        refused: Refused = 8,
        /// Requests of the guest, or of programs on the host to it, refused because of a limit.
        /// Programs that did not name their port in time count as well.
        limited: Limited = 9,
        /// Packets dropped because their source address was not the guest's.
        forged: Forged = 10,
        /// Malformed packets dropped.
        malformed: Malformed = 11,
        /// Connections reset by a protocol error or a restart.
        resets: Resets = 12,
        /// Times that the guest took nothing for a second, though something waited for it.
        stalls: Stalls = 13,
        /// Interrupts sent to the guest.
        interrupts: Interrupts = 4,
        /// Notifications received from the guest.
        kicks: Kicks = 5,
    }
    words {
        /// First of 20 words for the next fabric: the guest's packets that were taken and not
        /// returned.
        InFlight = 96,
        /// First of 4 words for the next fabric: the guest's transmit ring, if it stands still.
        Stopped = 116,
    }
    computed |words| {
    }
}

block! {
    /// Word within a worker's block.
    words WorkerWord;
    /// Counters of a worker.
    counters WorkerCounters(WORKER_WORDS);
    {
        /// Times the worker went to sleep.
        sleeps: Sleeps = 0,
        /// Nanoseconds asleep.
        sleep_ns: SleepNs = 3,
        /// Nanoseconds in bursts with at least one frame.
        busy_ns: BusyNs = 4,
        /// Rounds over the worker's ports with at least one frame.
        bursts: Bursts = 1,
        /// Rounds without a frame: the cost of polling.
        empty_rounds: EmptyRounds = 2,
        /// Transmit queues given to another worker, which had less to do.
        given: Given = 5,
    }
    words {
    }
    computed |words| {
    }
}

fn drops(words: &[u64; PORT_WORDS], first: PortWord) -> Vec<(DropReason, u64)> {
    let count = |reason: DropReason| words[first as usize + reason as usize];
    DropReason::ALL.iter().map(|&reason| (reason, count(reason))).filter(|(_, n)| *n != 0).collect()
}

// Drop reasons fit between two groups of words.
const _: () = {
    let mut index = 0;
    while index < DropReason::ALL.len() {
        assert!((DropReason::ALL[index] as usize) < 32);
        index += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_only_grow_and_other_words_are_none() {
        let counters = [PortWord::RxFrames, PortWord::WireRxBytes, PortWord::TxDrops, PortWord::RxDrops];
        assert!(counters.iter().all(|word| PortWord::is_counter(*word as usize)));
        let others = [PortWord::RxQueues, PortWord::AddressRefused, PortWord::RingPosition];
        assert!(!others.iter().any(|word| PortWord::is_counter(*word as usize)));
        assert!(!PortWord::is_counter(PORT_WORDS - 1));
    }

    #[test]
    fn a_block_is_read_by_name() {
        let mut words = [0; PORT_WORDS];
        words[PortWord::RxFrames as usize] = 7;
        words[PortWord::TxDrops as usize + DropReason::Runt as usize] = 3;
        let read = PortCounters::from_words(&words);
        assert_eq!(read.rx_frames, 7);
        assert_eq!(read.tx_drops, [(DropReason::Runt, 3)]);
        // A counter stays where other versions of the fabric have it.
        words[PortWord::RxDrops as usize + 12] = 9;
        assert!(read.rx_drops.is_empty());
        assert_eq!(PortCounters::from_words(&words).rx_drops, [(DropReason::ShaperFull, 9)]);
        words[SocketWord::Forged as usize] = 5;
        let read = VmciCounters::from_words(&words);
        assert_eq!(
            (read.rx_packets, read.forged, read.opened),
            (7, 5, 0),
            "the same words by their other names"
        );
    }
}
