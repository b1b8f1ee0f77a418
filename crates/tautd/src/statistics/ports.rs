//! Ports: their keys in the history, the counters that are sampled, and counts of a period.

use taut_api::fabric::counters::{PORT_WORDS, PortCounters, PortWord};
use taut_api::fabric::{DropReason, PortId};
use taut_api::statistics::{Column, PortRates};
use taut_history::{Point, Reading, Values};
use taut_plan::{Desired, Owner};

use super::CountedPort;
use super::counts::Counts;
use crate::board::Seen;
use crate::status;

/// Begin of the keys of ports; number and owner follow.
const KEY: &str = "port/";

/// Returns the key of an owner's port. With another number the owner has another port: the counters
/// of that number may still be those of its former owner.
pub(super) fn key(port: PortId, owner: &str) -> String {
    format!("{KEY}{}/{owner}", port.0)
}

/// Returns whether this is the key of a port.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(KEY)
}

/// Returns the number of the port with this key.
fn number(key: &str) -> Option<u32> {
    key.strip_prefix(KEY)?.split('/').next()?.parse().ok()
}

/// Returns the ports that exist: owners and numbers.
pub(super) fn existing(desired: &Desired, seen: &Seen) -> Vec<(String, PortId)> {
    let owners = desired.ports().map(|(owner, ..)| owner);
    let owners = owners.filter(|owner| status::port_exists(desired, seen, owner));
    let uplinks = desired.uplinks.keys().map(|name| Owner::Uplink(name.clone()));
    let numbered = |owner: Owner| Some((owner.to_string(), desired.numbers.port(&owner)?));
    owners.chain(uplinks).filter_map(numbered).collect()
}

/// Returns a reading of a port's counters for the history: each by the number of its word.
pub(super) fn reading(words: &[u64; PORT_WORDS]) -> Reading {
    let counters = (0_u8..).zip(words);
    Reading::new(
        counters.filter(|(word, _)| PortWord::is_counter(usize::from(*word))).map(|(word, &n)| (word, n)),
    )
}

/// Returns the sum of a port's counters. While a port has one owner no counter goes back, so an
/// unchanged sum means unchanged counters.
pub(super) fn sum(words: &[u64; PORT_WORDS]) -> u64 {
    const IS_COUNTER: [bool; PORT_WORDS] = {
        let mut is_counter = [false; PORT_WORDS];
        let mut word = 0;
        while word < PORT_WORDS {
            is_counter[word] = PortWord::is_counter(word);
            word += 1;
        }
        is_counter
    };
    let counters = words.iter().zip(IS_COUNTER).filter(|(_, is_counter)| *is_counter);
    counters.fold(0, |sum, (word, _)| sum.wrapping_add(*word))
}

/// Returns counters as the API has them.
fn counters(read: &Values) -> PortCounters {
    let mut words = [0; PORT_WORDS];
    for (word, value) in read.iter() {
        if let Some(place) = words.get_mut(usize::from(word)) {
            *place = value;
        }
    }
    PortCounters::from_words(&words)
}

/// Meaning of [`values`].
pub(super) const COLUMNS: [Column; 8] = [
    Column::RxBitsPerS,
    Column::TxBitsPerS,
    Column::RxFramesPerS,
    Column::TxFramesPerS,
    Column::RxDropsPerS,
    Column::TxDropsPerS,
    Column::WireTxBitsPerS,
    Column::WireRxBitsPerS,
];

/// Returns the values of a point in a port's series.
pub(super) fn values(point: &Point) -> Vec<Option<f64>> {
    let counters = counters(&point.values);
    let rates = PortRates::of(&counters, point.ms);
    let drops = |first: PortWord| {
        let first = first as u8;
        let words = first..first + DropReason::ALL.len() as u8;
        words.map(|word| point.values.per_second(word, point.ms)).sum::<f64>()
    };
    let values = [
        rates.rx_bits_per_s,
        rates.tx_bits_per_s,
        rates.rx_frames_per_s,
        rates.tx_frames_per_s,
        drops(PortWord::RxDrops),
        drops(PortWord::TxDrops),
        rates.wire_tx_bits_per_s,
        rates.wire_rx_bits_per_s,
    ];
    values.map(Some).to_vec()
}

impl CountedPort {
    /// Returns the counts of a port; nothing if its key has no number.
    pub(super) fn of(Counts { key, name: owner, counted, to_ms }: Counts) -> Option<Self> {
        let port = number(&key)?;
        Some(Self { port, owner, covered_ms: counted.ms(), to_ms, counters: counters(&counted.values) })
    }
}
