//! Times at which the fabric asks ports which groups they have joined (general queries).

use std::collections::BTreeMap;

use taut_api::fabric::PortId;

/// Queries of a port that begins to receive, or whose uplink has changed (ESX: `Net.IGMPQueries`).
const SERIES: u8 = 2;
/// Time between these queries, in ms.
const SERIES_MS: u64 = 1000;
/// Time between two queries of a port whose memberships are followed, in ms (RFC 3376, section
/// 8.2).
const INTERVAL_MS: u64 = 125_000;
/// Time until a port that took no query is asked again, in ms.
const RETRY_MS: u64 = 1000;
/// Most ports that are asked at once.
const BURST: usize = 128;

/// The ports that are to be asked.
#[derive(Debug, Default)]
pub struct Questions {
    ports: BTreeMap<PortId, Schedule>,
}

#[derive(Debug, Clone, Copy)]
struct Schedule {
    /// Time of the next query.
    next: u64,
    /// Queries that are left of the series.
    left: u8,
}

impl Questions {
    /// Begins a series of queries. The port is asked regularly from then on, also where a router
    /// asks: a query that a router, or somebody in its name, sends in a way that hosts ignore must
    /// not cost a port its groups.
    pub fn begin(&mut self, port: PortId, now: u64) {
        self.ports.insert(port, Schedule { next: now, left: SERIES });
    }

    /// Begins another series if the port is asked at all.
    pub fn repeat(&mut self, port: PortId, now: u64) {
        if self.ports.contains_key(&port) {
            self.begin(port, now);
        }
    }

    /// Ends the questions of a port that receives no frames.
    pub fn end(&mut self, port: PortId) {
        self.ports.remove(&port);
    }

    /// Ends the questions of ports whose memberships are not followed any more.
    pub fn keep(&mut self, is_followed: impl Fn(PortId) -> bool) {
        self.ports.retain(|port, _| is_followed(*port));
    }

    /// Returns the ports that are to be asked now.
    pub fn due(&self, now: u64) -> Vec<PortId> {
        let mut due: Vec<_> = self
            .ports
            .iter()
            .filter(|(_, schedule)| schedule.next <= now)
            .map(|(port, schedule)| (schedule.next, *port))
            .collect();
        due.sort_unstable();
        due.into_iter().take(BURST).map(|(_, port)| port).collect()
    }

    /// Notes that a port was asked, or that it took no query. Returns true after the last query of
    /// a series.
    pub fn asked(&mut self, port: PortId, was_asked: bool, now: u64) -> bool {
        let Some(schedule) = self.ports.get_mut(&port) else { return false };
        if !was_asked {
            schedule.next = now.saturating_add(RETRY_MS);
            return false;
        }
        let was_series = schedule.left > 0;
        schedule.left = schedule.left.saturating_sub(1);
        let pause = if schedule.left > 0 { SERIES_MS } else { INTERVAL_MS };
        schedule.next = now.saturating_add(pause);
        was_series && schedule.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: PortId = PortId(3);

    /// Returns the times in seconds at which a port is asked, within ten minutes.
    fn times(questions: &mut Questions, takes: impl Fn(u64) -> bool) -> Vec<(u64, bool)> {
        let mut times = Vec::new();
        for now in (0..600_000).step_by(200) {
            for port in questions.due(now) {
                let took = takes(now);
                let ends = questions.asked(port, took, now);
                if took {
                    times.push((now / 1000, ends));
                }
            }
        }
        times
    }

    #[test]
    fn a_followed_port_is_asked_twice_and_then_every_125_s() {
        let mut questions = Questions::default();
        questions.begin(PORT, 0);
        let expected = [(0, false), (1, true), (126, false), (251, false), (376, false), (501, false)];
        assert_eq!(times(&mut questions, |_| true), expected);
    }

    #[test]
    fn a_port_that_takes_no_query_is_asked_until_it_does() {
        let mut questions = Questions::default();
        questions.begin(PORT, 0);
        assert_eq!(times(&mut questions, |now| now >= 400_000)[..2], [(400, false), (401, true)]);
    }

    #[test]
    fn after_a_failover_a_followed_port_is_asked_twice_and_no_other() {
        let mut questions = Questions::default();
        questions.repeat(PORT, 0);
        assert_eq!(times(&mut questions, |_| true), []);
        questions.begin(PORT, 0);
        assert!(!questions.asked(PORT, true, 0));
        assert!(questions.asked(PORT, true, 1000));
        questions.repeat(PORT, 5000);
        assert_eq!(times(&mut questions, |_| true)[..3], [(5, false), (6, true), (131, false)]);
    }

    #[test]
    fn questions_end_with_their_port_and_without_following() {
        let mut questions = Questions::default();
        questions.begin(PORT, 0);
        questions.keep(|port| port == PORT);
        assert_eq!(questions.due(0), [PORT]);
        questions.keep(|port| port != PORT);
        assert_eq!(questions.due(0), []);
        questions.begin(PORT, 0);
        questions.end(PORT);
        assert_eq!(questions.due(0), []);
    }

    #[test]
    fn ports_are_asked_in_bursts() {
        let mut questions = Questions::default();
        (0..1000).for_each(|port| questions.begin(PortId(port), 0));
        let mut asked = 0;
        while !questions.due(0).is_empty() {
            for port in questions.due(0) {
                questions.asked(port, true, 0);
                asked += 1;
            }
        }
        assert_eq!(asked, 1000);
    }
}
