//! Ports that leave a busy uplink, by the bytes that ports and uplinks have on the wire.

use std::collections::BTreeMap;

use taut_api::fabric::config::PortId;
use taut_uplink::team::{LoadRules, Loads, Move, PortSecond, Set, Uplink, UplinkSecond, Usage};

use super::WireBytes;

const SECOND_NS: u64 = 1_000_000_000;

/// Place of a port that may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Uplink of the port.
    pub(super) at: Uplink,
    /// Uplinks that its team uses.
    pub(super) may_use: Set,
}

/// Use of a vSwitch's uplinks, and of each by ports that may move.
#[derive(Debug)]
pub(super) struct Balance {
    loads: Loads<PortId>,
    /// WireBytes at the end of the last second.
    before: BTreeMap<PortId, WireBytes>,
    /// End of the last second; `None` before the first one.
    last: Option<u64>,
}

impl Default for Balance {
    fn default() -> Self {
        Self { loads: Loads::new(LoadRules::default()), before: BTreeMap::new(), last: None }
    }
}

impl Balance {
    /// Returns whether a second is over.
    pub(super) fn is_due(&self, now: u64) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= SECOND_NS)
    }

    /// Looks at the traffic if a second is over. Returns the port to be moved.
    ///
    /// `ports` has those that may move. `uplinks` has the number and the speed in bit/s of each
    /// uplink whose speed is known.
    pub(super) fn look(
        &mut self,
        ports: &BTreeMap<PortId, Place>,
        uplinks: &BTreeMap<PortId, (Uplink, u64)>,
        used: impl Fn(PortId) -> WireBytes,
        now: u64,
    ) -> Option<Move<PortId>> {
        if !self.is_due(now) {
            return None;
        }
        let passed = self.last.replace(now).map(|last| now.saturating_sub(last));
        let bytes: BTreeMap<PortId, WireBytes> =
            ports.keys().chain(uplinks.keys()).map(|port| (*port, used(*port))).collect();
        let before = std::mem::replace(&mut self.before, bytes);
        let passed = passed?;
        let usage = |port: &PortId| {
            let now = self.before[port];
            // Traffic that began within this second is counted from the next one on.
            let before = before.get(port).copied().unwrap_or(now);
            Usage {
                sent: rate(now.sent, before.sent, passed),
                received: rate(now.received, before.received, passed),
            }
        };
        let ports = ports.iter().map(|(port, place)| {
            let Place { at, may_use } = *place;
            (*port, PortSecond { used: usage(port), at, may_use })
        });
        let uplinks = uplinks
            .iter()
            .map(|(port, (uplink, speed))| (*uplink, UplinkSecond { used: usage(port), speed: *speed }));
        self.loads.add_second(&ports.collect(), &uplinks.collect())
    }
}

/// Returns the rate in bit/s of a counter within `passed` ns.
fn rate(now: u64, before: u64, passed: u64) -> u64 {
    // Counters begin again when the number of a port goes to another owner.
    let bits = u128::from(now.checked_sub(before).unwrap_or(now)) * 8;
    (bits * u128::from(SECOND_NS) / u128::from(passed.max(1))).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ports on uplink 0 of 10 Mbit/s send 5 and 4 Mbit/s; uplink 1 is idle.
    fn move_after(looks_per_second: u64) -> Option<(u64, Move<PortId>)> {
        let [first, second] = [0, 1].map(|number| Uplink::new(number).unwrap());
        let place = Place { at: first, may_use: [first, second].into_iter().collect() };
        let ports = [(PortId(10), place), (PortId(11), place)].into();
        let uplinks = [(PortId(0), (first, 10_000_000)), (PortId(1), (second, 10_000_000))].into();
        let mut balance = Balance::default();
        (0..100 * looks_per_second).find_map(|look| {
            let now = 5 + look * SECOND_NS / looks_per_second;
            let used = |port: PortId| {
                let bits: u64 = [9_000_000, 0, 5_000_000, 4_000_000][usize::from(port.0) % 8];
                let sent = u128::from(bits / 8) * u128::from(now) / u128::from(SECOND_NS);
                WireBytes { sent: sent as u64, received: 0 }
            };
            Some((now / SECOND_NS, balance.look(&ports, &uplinks, used, now)?))
        })
    }

    #[test]
    fn a_port_moves_30_s_after_the_first_second_however_often_one_looks() {
        for looks in [1, 40] {
            let (second, found) = move_after(looks).unwrap();
            assert_eq!(
                (second, found.port, found.to.number()),
                (31, PortId(10), 1),
                "{looks} looks a second"
            );
        }
    }

    #[test]
    fn a_late_look_does_not_make_a_port_busy() {
        assert_eq!(rate(1_000_000, 0, SECOND_NS), 8_000_000);
        assert_eq!(rate(3_000_000, 0, 3 * SECOND_NS), 8_000_000);
        assert_eq!(rate(5, 1_000_000, SECOND_NS), 40, "the counter has begun again");
    }
}
