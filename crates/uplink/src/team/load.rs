//! Choice of the port that leaves a busy uplink (ESX: `loadbalance_loadbased`).

use std::collections::{BTreeMap, VecDeque};

use super::set::Uplink;

/// When a port moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadRules {
    /// Time in s over which an uplink's use is averaged, and between two moves (ESX: 30, from 10 to
    /// 100).
    pub period_s: usize,
    /// Percent of an uplink's speed above which it is busy.
    pub busy_percent: u64,
}

impl Default for LoadRules {
    fn default() -> Self {
        Self { period_s: 30, busy_percent: 75 }
    }
}

/// Bits that a port or an uplink has sent and received within a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bits sent to the wire.
    pub sent: u64,
    /// Bits received from it.
    pub received: u64,
}

impl Usage {
    /// Returns the larger one.
    fn most(self) -> u64 {
        self.sent.max(self.received)
    }
}

/// A port to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move<P> {
    /// The port.
    pub port: P,
    /// Uplink of the port until now.
    pub from: Uplink,
    /// Uplink of the port from now on.
    pub to: Uplink,
}

/// Use of a team's uplinks by its ports.
#[derive(Debug)]
pub struct Loads<P> {
    rules: LoadRules,
    /// Seconds of the period, the last one at the end: what each port has used.
    seconds: VecDeque<BTreeMap<P, Usage>>,
    /// Seconds since a port was moved, or since the beginning.
    calm_s: usize,
}

impl<P: Ord + Copy> Loads<P> {
    /// Returns loads of which nothing is known.
    pub fn new(rules: LoadRules) -> Self {
        Self { rules, seconds: VecDeque::new(), calm_s: 0 }
    }

    /// Adds what each port has used within one more second. Returns the port to be moved.
    ///
    /// `uplink_of` tells the uplink of a port, and `speeds` has the speeds of the uplinks in use,
    /// in bit/s. A port's use counts for the uplink where it is now.
    pub fn second(
        &mut self,
        used: BTreeMap<P, Usage>,
        uplink_of: impl Fn(P) -> Option<Uplink>,
        speeds: &BTreeMap<Uplink, u64>,
    ) -> Option<Move<P>> {
        self.seconds.push_back(used);
        self.calm_s += 1;
        if self.seconds.len() > self.rules.period_s {
            self.seconds.pop_front();
        }
        if self.seconds.len() < self.rules.period_s || self.calm_s < self.rules.period_s {
            return None;
        }
        let found = self.find(uplink_of, speeds);
        if found.is_some() {
            self.calm_s = 0;
        }
        found
    }

    fn find(
        &self,
        uplink_of: impl Fn(P) -> Option<Uplink>,
        speeds: &BTreeMap<Uplink, u64>,
    ) -> Option<Move<P>> {
        let ports = self.means();
        let mut uplinks: BTreeMap<Uplink, Usage> = speeds.keys().map(|at| (*at, Usage::default())).collect();
        for (port, usage) in &ports {
            if let Some(of) = uplink_of(*port).and_then(|at| uplinks.get_mut(&at)) {
                of.sent += usage.sent;
                of.received += usage.received;
            }
        }
        let parts =
            |usage: Usage, speed: u64| u128::from(usage.most()) * 1_000_000 / u128::from(speed.max(1));
        let part = |at: Uplink| parts(uplinks[&at], speeds[&at]);
        let from = speeds.keys().copied().max_by_key(|at| part(*at))?;
        if part(from) <= u128::from(self.rules.busy_percent) * 10_000 {
            return None;
        }
        let to = speeds.keys().copied().filter(|at| *at != from).min_by_key(|at| part(*at))?;
        // The busiest port that does not only exchange the two uplinks.
        let fits = |usage: Usage| {
            let Usage { sent, received } = uplinks[&to];
            let after = Usage { sent: sent + usage.sent, received: received + usage.received };
            usage.most() > 0 && parts(after, speeds[&to]) < part(from)
        };
        let there = ports.iter().filter(|(port, _)| uplink_of(**port) == Some(from));
        let (port, _) = there.filter(|(_, usage)| fits(**usage)).max_by_key(|(_, usage)| usage.most())?;
        Some(Move { port: *port, from, to })
    }

    /// Mean use of each port over the period, in bit/s.
    fn means(&self) -> BTreeMap<P, Usage> {
        let mut sums: BTreeMap<P, Usage> = BTreeMap::new();
        for (port, usage) in self.seconds.iter().flatten() {
            let sum = sums.entry(*port).or_default();
            sum.sent = sum.sent.saturating_add(usage.sent);
            sum.received = sum.received.saturating_add(usage.received);
        }
        let seconds = self.seconds.len().max(1) as u64;
        for sum in sums.values_mut() {
            *sum = Usage { sent: sum.sent / seconds, received: sum.received / seconds };
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT: u64 = 1_000_000_000;

    fn uplink(number: u8) -> Uplink {
        Uplink::new(number).unwrap()
    }

    /// Ports on uplinks 0 and 1 of 1 Gbit/s, and what each uses in Mbit/s.
    struct Bench {
        loads: Loads<u32>,
        uplinks: BTreeMap<u32, Uplink>,
        used: BTreeMap<u32, Usage>,
    }

    impl Bench {
        fn new(ports: &[(u8, u64, u64)]) -> Self {
            let mut bench = Self {
                loads: Loads::new(LoadRules::default()),
                uplinks: BTreeMap::new(),
                used: BTreeMap::new(),
            };
            for (port, &(at, sent, received)) in (0..).zip(ports) {
                bench.uplinks.insert(port, uplink(at));
                bench.used.insert(port, Usage { sent: sent * 1_000_000, received: received * 1_000_000 });
            }
            bench
        }

        /// Moves of the next seconds: second, port and uplink.
        fn run(&mut self, seconds: u32) -> Vec<(u32, u32, u8)> {
            let speeds = [(uplink(0), GBIT), (uplink(1), GBIT)].into();
            let mut moves = Vec::new();
            for second in 1..=seconds {
                let uplinks = &self.uplinks;
                let found = self.loads.second(self.used.clone(), |port| uplinks.get(&port).copied(), &speeds);
                if let Some(Move { port, from, to }) = found {
                    assert_eq!(self.uplinks.insert(port, to), Some(from));
                    moves.push((second, port, to.number()));
                }
            }
            moves
        }
    }

    #[test]
    fn the_busiest_port_leaves_a_busy_uplink_after_the_period() {
        let mut bench = Bench::new(&[(0, 500, 0), (0, 300, 0), (1, 100, 0)]);
        assert_eq!(bench.run(300), [(30, 0, 1)]);
    }

    #[test]
    fn receiving_counts_as_sending_does() {
        let mut bench = Bench::new(&[(0, 10, 400), (0, 10, 380), (1, 0, 0)]);
        assert_eq!(bench.run(100), [(30, 0, 1)]);
    }

    #[test]
    fn an_uplink_at_the_threshold_is_left_alone() {
        assert_eq!(Bench::new(&[(0, 750, 750), (1, 0, 0)]).run(100), []);
    }

    #[test]
    fn a_port_moves_only_if_that_helps() {
        // One that alone is busy would be busy elsewhere as well.
        assert_eq!(Bench::new(&[(0, 900, 0), (1, 0, 0)]).run(100), []);
        // The busiest one is too much for the other uplink, the next one is not.
        let mut bench = Bench::new(&[(0, 600, 0), (0, 300, 0), (1, 400, 0)]);
        assert_eq!(bench.run(100), [(30, 1, 1)]);
    }

    #[test]
    fn moves_are_a_period_apart() {
        let mut bench = Bench::new(&[(0, 300, 0), (0, 300, 0), (0, 300, 0), (0, 90, 0), (1, 0, 0)]);
        let moves = bench.run(200);
        assert_eq!(moves.len(), 1, "{moves:?}");
        bench.used.insert(4, Usage { sent: 800_000_000, received: 0 });
        let later = bench.run(200);
        assert!(later.iter().all(|(second, ..)| *second > 20), "{later:?}");
    }

    #[test]
    fn a_load_that_began_lately_counts_with_the_quiet_time_before() {
        let mut bench = Bench::new(&[(0, 0, 0), (0, 10, 0), (1, 0, 0)]);
        assert_eq!(bench.run(100), []);
        bench.used.insert(0, Usage { sent: 800_000_000, received: 0 });
        let moves = bench.run(100);
        assert_eq!(moves.len(), 1);
        assert!((25..=30).contains(&moves[0].0), "{moves:?}");
    }
}
