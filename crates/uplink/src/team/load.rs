//! Choice of the port that leaves a busy uplink (ESX: `loadbalance_loadbased`).

use std::collections::{BTreeMap, VecDeque};

use super::set::{Set, Uplink};

/// Rules by which a port moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadRules {
    /// Time in s over which use is averaged, and between two moves (ESX: 30, from 10 to 100).
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

    /// Returns what both use together.
    fn and(self, other: Self) -> Self {
        Self {
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
        }
    }

    /// Returns the larger direction in millionths of a speed.
    fn part(self, speed: u64) -> u128 {
        u128::from(self.most()) * 1_000_000 / u128::from(speed.max(1))
    }
}

/// A port within one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSecond {
    /// Use of the outside.
    pub used: Usage,
    /// Uplink of the port.
    pub at: Uplink,
    /// Uplinks that the port may use instead.
    pub may_use: Set,
}

/// An uplink within one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UplinkSecond {
    /// Use by all ports together.
    pub used: Usage,
    /// Speed of the link in bit/s. An uplink of unknown speed is left out: it is neither busy nor
    /// free.
    pub speed: u64,
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

/// Use of a vSwitch's uplinks, and of each by ports that may move.
///
/// A period begins after the first second in which an uplink is busy. If the uplink was busy in the
/// mean of the whole period, the busiest port that fits elsewhere moves. So a port moves a period
/// after a lasting load began, however high the load is, and at most two periods after it. If
/// several uplinks are busy, the others wait for their turns.
#[derive(Debug)]
pub struct Loads<P> {
    rules: LoadRules,
    uplinks: BTreeMap<Uplink, Watched>,
    ports: BTreeMap<P, History>,
    /// Seconds since a port was moved, if the period after that is not over.
    calm_s: Option<usize>,
}

/// An uplink and the period that is under way.
#[derive(Debug, Default)]
struct Watched {
    history: History,
    /// Seconds of the period so far; `None` if no period is under way.
    seconds: Option<usize>,
}

/// Use in the seconds of a period, the last one at the end.
#[derive(Debug, Default)]
struct History(VecDeque<Usage>);

impl History {
    fn add(&mut self, used: Usage, period_s: usize) {
        self.0.push_back(used);
        while self.0.len() > period_s {
            self.0.pop_front();
        }
    }

    /// Returns the mean over the period. Seconds before the first one count as idle.
    fn mean(&self, period_s: usize) -> Usage {
        let sum = self.0.iter().fold(Usage::default(), |sum, used| sum.and(*used));
        let period = period_s.max(1) as u64;
        Usage { sent: sum.sent / period, received: sum.received / period }
    }
}

impl<P: Ord + Copy> Loads<P> {
    /// Returns loads of which nothing is known.
    pub fn new(rules: LoadRules) -> Self {
        Self { rules, uplinks: BTreeMap::new(), ports: BTreeMap::new(), calm_s: None }
    }

    /// Adds one more second. Returns the port to be moved.
    pub fn add_second(
        &mut self,
        ports: &BTreeMap<P, PortSecond>,
        uplinks: &BTreeMap<Uplink, UplinkSecond>,
    ) -> Option<Move<P>> {
        let period = self.rules.period_s;
        self.ports.retain(|port, _| ports.contains_key(port));
        for (port, second) in ports {
            self.ports.entry(*port).or_default().add(second.used, period);
        }
        self.uplinks.retain(|uplink, _| uplinks.contains_key(uplink));
        for (uplink, second) in uplinks {
            self.uplinks.entry(*uplink).or_default().history.add(second.used, period);
        }
        if let Some(calm) = self.calm_s {
            self.calm_s = (calm + 1 < period).then_some(calm + 1);
            return None;
        }
        let overdue = self.overdue(uplinks);
        let found = overdue.into_iter().find_map(|from| self.find(from, ports, uplinks));
        if found.is_some() {
            self.calm_s = Some(0);
            self.uplinks.values_mut().for_each(|watched| watched.seconds = None);
        }
        found
    }

    /// Counts the periods of busy uplinks. Returns those that were busy for a whole one, the
    /// busiest one first.
    fn overdue(&mut self, uplinks: &BTreeMap<Uplink, UplinkSecond>) -> Vec<Uplink> {
        let LoadRules { period_s, busy_percent } = self.rules;
        let busy = u128::from(busy_percent) * 10_000;
        let mut overdue = Vec::new();
        for (uplink, watched) in &mut self.uplinks {
            let UplinkSecond { used, speed } = uplinks[uplink];
            watched.seconds = match watched.seconds {
                None => (used.part(speed) > busy).then_some(0),
                Some(seconds) if seconds + 1 < period_s => Some(seconds + 1),
                Some(_) => {
                    let part = watched.history.mean(period_s).part(speed);
                    overdue.extend((part > busy).then_some((part, *uplink)));
                    None
                }
            };
        }
        overdue.sort_by_key(|(part, _)| std::cmp::Reverse(*part));
        overdue.into_iter().map(|(_, uplink)| uplink).collect()
    }

    /// Finds the busiest port of an uplink that is better placed at another one: at the one that is
    /// then the least used.
    fn find(
        &self,
        from: Uplink,
        ports: &BTreeMap<P, PortSecond>,
        uplinks: &BTreeMap<Uplink, UplinkSecond>,
    ) -> Option<Move<P>> {
        let period = self.rules.period_s;
        let mean = |uplink: Uplink| self.uplinks[&uplink].history.mean(period);
        let part = |uplink: Uplink, used: Usage| used.part(uplinks[&uplink].speed);
        let now = part(from, mean(from));
        let movable = ports.iter().filter(|(_, second)| second.at == from);
        let fitting = movable.filter_map(|(port, second)| {
            let used = self.ports[port].mean(period);
            let others = uplinks.keys().copied().filter(|to| *to != from && second.may_use.contains(*to));
            let (after, to) = others.map(|to| (part(to, mean(to).and(used)), to)).min()?;
            // A move that only exchanges the two uplinks does not help.
            (used.most() > 0 && after < now).then_some((used.most(), *port, to))
        });
        fitting.max_by_key(|(used, ..)| *used).map(|(_, port, to)| Move { port, from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MBIT: u64 = 1_000_000;
    const GBIT: u64 = 1000 * MBIT;

    fn uplink(number: u8) -> Uplink {
        Uplink::new(number).unwrap()
    }

    /// Ports on uplinks 0 and 1 of 1 Gbit/s.
    struct Bench {
        loads: Loads<u32>,
        ports: BTreeMap<u32, PortSecond>,
        /// Uplinks of known speed, with that in bit/s.
        known: Vec<(u8, u64)>,
        second: u32,
    }

    impl Bench {
        /// Ports by uplink, and what each sends and receives in Mbit/s.
        fn new(ports: &[(u8, u64, u64)]) -> Self {
            let port = |&(at, sent, received): &(u8, u64, u64)| PortSecond {
                used: Usage { sent: sent * MBIT, received: received * MBIT },
                at: uplink(at),
                may_use: (0..4).map(uplink).collect(),
            };
            let ports = (0..).zip(ports.iter().map(port)).collect();
            Self {
                loads: Loads::new(LoadRules::default()),
                ports,
                known: vec![(0, GBIT), (1, GBIT)],
                second: 0,
            }
        }

        /// Changes what a port sends, in Mbit/s.
        fn send(&mut self, port: u32, sent: u64) {
            self.ports.get_mut(&port).unwrap().used.sent = sent * MBIT;
        }

        /// Moves within the next seconds: second, port and uplink.
        fn run(&mut self, seconds: u32) -> Vec<(u32, u32, u8)> {
            let mut moves = Vec::new();
            for _ in 0..seconds {
                self.second += 1;
                let of = |(number, speed): &(u8, u64)| {
                    let there = self.ports.values().filter(|port| port.at == uplink(*number));
                    let used = there.fold(Usage::default(), |sum, port| sum.and(port.used));
                    (uplink(*number), UplinkSecond { used, speed: *speed })
                };
                let uplinks = self.known.iter().map(of).collect();
                if let Some(Move { port, from, to }) = self.loads.add_second(&self.ports, &uplinks) {
                    let moved = self.ports.get_mut(&port).unwrap();
                    assert_eq!(std::mem::replace(&mut moved.at, to), from);
                    moves.push((self.second, port, to.number()));
                }
            }
            moves
        }
    }

    #[test]
    fn the_busiest_port_leaves_a_busy_uplink_after_a_period() {
        let mut bench = Bench::new(&[(0, 500, 0), (0, 300, 0), (1, 100, 0)]);
        assert_eq!(bench.run(300), [(31, 0, 1)]);
    }

    #[test]
    fn a_period_begins_with_the_load_however_high_it_is() {
        for load in [760, 1000, 5000] {
            let mut bench = Bench::new(&[(0, 0, 0), (0, 10, 0), (1, 0, 0)]);
            assert_eq!(bench.run(47), []);
            bench.send(0, load);
            assert_eq!(bench.run(100), [(78, 0, 1)], "{load} Mbit/s");
        }
    }

    #[test]
    fn a_load_that_pauses_begins_again() {
        let mut bench = Bench::new(&[(0, 800, 0), (0, 10, 0), (1, 0, 0)]);
        assert_eq!(bench.run(10), []);
        bench.send(0, 0);
        assert_eq!(bench.run(15), []);
        bench.send(0, 800);
        // The first period ends at 31 s with a mean of half of that, and the next one begins.
        assert_eq!(bench.run(100), [(62, 0, 1)]);
    }

    #[test]
    fn receiving_counts_as_sending_does() {
        let mut bench = Bench::new(&[(0, 10, 400), (0, 10, 380), (1, 0, 0)]);
        assert_eq!(bench.run(100), [(31, 0, 1)]);
    }

    #[test]
    fn an_uplink_at_the_threshold_is_left_alone() {
        assert_eq!(Bench::new(&[(0, 750, 750), (0, 0, 0), (1, 0, 0)]).run(100), []);
    }

    #[test]
    fn a_port_moves_only_if_that_helps() {
        // One that alone is busy would be busy elsewhere as well.
        assert_eq!(Bench::new(&[(0, 900, 0), (1, 0, 0)]).run(100), []);
        // The busiest one is too much for the other uplink, the next one is not.
        let mut bench = Bench::new(&[(0, 600, 0), (0, 300, 0), (1, 400, 0)]);
        assert_eq!(bench.run(100), [(31, 1, 1)]);
    }

    #[test]
    fn a_port_stays_within_its_team() {
        let mut bench = Bench::new(&[(0, 500, 0), (0, 300, 0), (1, 100, 0)]);
        bench.ports.get_mut(&0).unwrap().may_use = [uplink(0)].into_iter().collect();
        assert_eq!(bench.run(100), [(31, 1, 1)]);
    }

    #[test]
    fn an_uplink_of_unknown_speed_is_left_out() {
        let mut bench = Bench::new(&[(0, 500, 0), (0, 300, 0), (1, 100, 0)]);
        bench.known = vec![(0, GBIT)];
        assert_eq!(bench.run(100), []);
        bench.known = vec![(1, GBIT)];
        assert_eq!(bench.run(100), []);
    }

    #[test]
    fn a_port_goes_where_it_fits_best() {
        let mut bench = Bench::new(&[(0, 5000, 0), (0, 4000, 0), (1, 0, 0), (2, 1000, 0)]);
        bench.known = vec![(0, 10 * GBIT), (1, GBIT), (2, 10 * GBIT)];
        assert_eq!(bench.run(100), [(31, 0, 2)], "the idle uplink is too slow");
    }

    #[test]
    fn an_uplink_whose_only_port_fits_nowhere_does_not_keep_others_waiting() {
        let mut bench = Bench::new(&[(0, 950, 0), (1, 500, 0), (1, 300, 0), (2, 0, 0)]);
        bench.known = vec![(0, GBIT), (1, GBIT), (2, GBIT)];
        bench.ports.get_mut(&0).unwrap().may_use = [uplink(0)].into_iter().collect();
        assert_eq!(bench.run(100), [(31, 1, 2)]);
    }

    #[test]
    fn moves_are_a_period_apart() {
        let mut bench = Bench::new(&[(0, 300, 0), (0, 300, 0), (0, 300, 0), (0, 90, 0), (1, 0, 0)]);
        assert_eq!(bench.run(60).len(), 1);
        bench.send(1, 800);
        bench.send(3, 700);
        let seconds: Vec<u32> = bench.run(200).into_iter().map(|(second, ..)| second).collect();
        assert!(seconds.iter().all(|second| *second >= 90), "{seconds:?}");
        assert!(seconds.windows(2).all(|two| two[1] - two[0] >= 30), "{seconds:?}");
    }

    #[test]
    fn ports_and_uplinks_that_go_are_forgotten() {
        let mut bench = Bench::new(&[(0, 500, 0), (0, 300, 0), (1, 100, 0)]);
        assert_eq!(bench.run(29), []);
        bench.ports.remove(&0);
        bench.known = vec![(1, GBIT)];
        assert_eq!(bench.run(10), []);
        bench.known = vec![(0, GBIT), (1, GBIT)];
        assert_eq!(bench.run(100), []);
        assert_eq!(bench.loads.ports.len(), 2);
    }
}
