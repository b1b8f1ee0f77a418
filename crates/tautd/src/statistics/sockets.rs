//! VMCI sockets of VMs: connections and bytes.

use taut_api::Name;
use taut_api::fabric::PortId;
use taut_api::fabric::counters::{PORT_WORDS, SocketWord, VmciCounters};
use taut_api::statistics::{Column, SocketStatistics};
use taut_history::{Point, Reading, Values};
use taut_plan::{Desired, Owner};

use super::counts::Counts;
use super::gauges::{Sums, average};

/// Begin of the keys of VMCI devices; the port's number and the VM follow.
const KEY: &str = "vmci/";
/// Counters of a device, by the number of their word.
const COUNTERS: [SocketWord; 15] = [
    SocketWord::RxPackets,
    SocketWord::RxBytes,
    SocketWord::TxPackets,
    SocketWord::TxBytes,
    SocketWord::Interrupts,
    SocketWord::Kicks,
    SocketWord::Opened,
    SocketWord::Refused,
    SocketWord::Limited,
    SocketWord::Forged,
    SocketWord::Malformed,
    SocketWord::Resets,
    SocketWord::Stalls,
    SocketWord::RingRxBytes,
    SocketWord::RingTxBytes,
];
/// Open connections over time, in thousandths × s.
const CONNECTIONS: u8 = 200;
/// Ends with rings over time, in thousandths × s.
const ATTACHED: u8 = 201;
/// Time in which both were read, in ms.
const TIME: u8 = 202;

/// Returns the key of a VM's VMCI device. With another port it has another one: the counters of
/// that number may still be those of its former owner.
pub(super) fn key(port: PortId, vm: &str) -> String {
    format!("{KEY}{}/{vm}", port.0)
}

/// Returns whether this is the key of a VMCI device.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with(KEY)
}

/// Returns the VMs with a VMCI device, and their ports.
pub(super) fn existing(desired: &Desired) -> Vec<(String, PortId)> {
    let port = |vm: &Name| Some((vm.to_string(), desired.numbers.port(&Owner::Vmci(vm.clone()))?));
    desired.vms.keys().filter_map(port).collect()
}

/// Returns a reading of a device's counters for the history.
pub(super) fn reading(words: &[u64; PORT_WORDS], sums: &mut Sums) -> Reading {
    let mut reading = Reading::new(COUNTERS.map(|word| (word as u8, words[word as usize])));
    for (number, word) in [(CONNECTIONS, SocketWord::Connections), (ATTACHED, SocketWord::Attached)] {
        sums.add(number, words[word as usize].saturating_mul(1000));
    }
    sums.add_time(TIME);
    reading.extend(sums.of([CONNECTIONS, ATTACHED, TIME]));
    reading
}

/// Returns the averages of a device within so many milliseconds.
fn averages(growth: &Values, ms: u64) -> SocketStatistics {
    let mut words = [0; PORT_WORDS];
    for word in COUNTERS {
        words[word as usize] = growth.get(word as u8);
    }
    let per_second = |word| growth.per_second(word as u8, ms);
    let of = |sum| average(growth, sum, TIME).map(|thousandths| thousandths / 1000.0);
    SocketStatistics {
        vm: String::new(),
        covered_ms: ms,
        to_ms: 0,
        connections: of(CONNECTIONS),
        attached: of(ATTACHED),
        opened_per_s: per_second(SocketWord::Opened),
        rx_bits_per_s: per_second(SocketWord::RxBytes) * 8.0,
        tx_bits_per_s: per_second(SocketWord::TxBytes) * 8.0,
        rx_packets_per_s: per_second(SocketWord::RxPackets),
        tx_packets_per_s: per_second(SocketWord::TxPackets),
        counted: VmciCounters::from_words(&words),
    }
}

/// Returns the averages of a VMCI device.
pub(super) fn statistics(Counts { name: vm, counted, to_ms, .. }: Counts) -> SocketStatistics {
    SocketStatistics { vm, to_ms, ..averages(&counted.values, counted.ms()) }
}

/// Meaning of [`values`].
pub(super) const COLUMNS: [Column; 5] =
    [Column::RxBitsPerS, Column::TxBitsPerS, Column::Connections, Column::Attached, Column::OpenedPerS];

/// Returns the values of a point in a device's series.
pub(super) fn values(point: &Point) -> Vec<Option<f64>> {
    let averages = averages(&point.values, point.ms);
    vec![
        Some(averages.rx_bits_per_s),
        Some(averages.tx_bits_per_s),
        averages.connections,
        averages.attached,
        Some(averages.opened_per_s),
    ]
}

#[cfg(test)]
mod tests {
    use taut_history::thinning::USUAL;
    use taut_history::{Clocks, History};

    use super::*;
    use crate::statistics::counts;
    use crate::statistics::gauges::Gauges;

    const CLOCKS: Clocks = Clocks { since_boot: 0, wall: 1_700_000_000_000 };

    #[test]
    fn connections_are_averages_and_bytes_are_rates() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::open(&folder.path().join("history.db"), USUAL, "a", CLOCKS).unwrap();
        let mut gauges = Gauges::default();
        let key = key(PortId(3), "db");
        for second in 1..=60 {
            let mut words = [0; PORT_WORDS];
            words[SocketWord::Connections as usize] = 2 + second % 2;
            words[SocketWord::Attached as usize] = 1;
            words[SocketWord::Opened as usize] = 5 * second;
            words[SocketWord::RxBytes as usize] = 1000 * second;
            words[SocketWord::RingRxBytes as usize] = 900 * second;
            words[SocketWord::InFlight as usize] = 7 * second;
            history.record(1000 * second, &key, "db", &reading(&words, gauges.begin(&key, 1000 * second)));
        }
        let now = Clocks { since_boot: 60_000, wall: CLOCKS.wall + 60_000 };
        let [db] = counts::all(&history, "30s", now, is_key).try_into().unwrap();
        let db = statistics(db);
        assert_eq!((db.vm.as_str(), db.covered_ms, db.to_ms), ("db", 30_000, now.wall));
        assert_eq!((db.connections, db.attached, db.opened_per_s), (Some(2.5), Some(1.0), 5.0));
        assert_eq!((db.rx_bits_per_s, db.tx_bits_per_s), (8000.0, 0.0));
        let counted =
            VmciCounters { opened: 150, rx_bytes: 30_000, ring_rx_bytes: 27_000, ..Default::default() };
        assert_eq!(db.counted, counted);
        let end = history.timeline().position(60_000);
        let series = history.series(&key, end - 30_000, end, 300).unwrap();
        let expected = [8000.0, 0.0, 2.0, 1.0, 5.0].map(Some);
        assert_eq!(values(series.points.last().unwrap()), expected);
    }
}
