//! Events for what the fabric refused and dropped, from its counters.
//!
//! The first incident of a kind on a port is reported by the next round. After that, the port's
//! incidents of that kind are summed up and reported once a minute at most, so a guest cannot flood
//! the log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use taut_api::event::Level;
use taut_api::fabric::DropReason;
use taut_api::fabric::counters::{PortCounters, VmciCounters};
use taut_api::word::counted;
use taut_plan::Owner;

use super::Reconciler;

/// Time between two readings of the counters.
const READ_EVERY: Duration = Duration::from_secs(1);
/// Least time between two events of one kind on one port.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// A kind of incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Incident {
    /// A frame with a source address that is not the port's own.
    ForgedAddress,
    /// A connection request to a VMCI socket that nobody may or does answer.
    RefusedConnection,
    /// A connection request beyond a limit.
    LimitedConnection,
}

impl Incident {
    const fn kind(self) -> &'static str {
        match self {
            Self::ForgedAddress => "port.forged-address",
            Self::RefusedConnection => "vmci.refused",
            Self::LimitedConnection => "vmci.limited",
        }
    }

    /// Describes so many incidents.
    fn message(self, count: u64) -> String {
        let requests = counted(count, "connection request");
        match self {
            Self::ForgedAddress => format!(
                "dropped {} from a source address that is not the port's own; the port group rejects \
                 forged transmits",
                counted(count, "frame")
            ),
            Self::RefusedConnection => format!(
                "refused {requests} of the guest: no socket listens there, or the two have no VMCI \
                 domain in common"
            ),
            Self::LimitedConnection => format!(
                "refused {requests} by or to the guest: a limit of its connections was reached \
                 (--vmci-connections, --vmci-half-open)"
            ),
        }
    }
}

/// One counter, as far as it was reported.
#[derive(Debug)]
struct Known {
    /// Value up to which incidents were reported.
    reported: u64,
    /// Time of the last event.
    at: Option<Instant>,
}

/// Reported incidents, by port.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    known: BTreeMap<(String, Incident), Known>,
    /// Owners whose ports were there at this daemon's first reading.
    earlier: Option<BTreeSet<String>>,
    next_reading: Option<Instant>,
}

impl Incidents {
    /// Returns whether the counters are to be read now.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next_reading.is_none_or(|at| at <= now);
        if due {
            self.next_reading = Some(now + READ_EVERY);
        }
        due
    }

    /// Remembers all owners at the first call: what their ports have counted is not new. Later
    /// calls change nothing.
    fn note_earlier(&mut self, owners: impl Iterator<Item = String>) {
        self.earlier.get_or_insert_with(|| owners.collect());
    }

    /// Returns whether the port was there at the first reading, or has been read since.
    fn knows(&self, owner: &str) -> bool {
        self.earlier.as_ref().is_some_and(|owners| owners.contains(owner))
            || self.known.contains_key(&(owner.to_owned(), Incident::ForgedAddress))
            || self.known.contains_key(&(owner.to_owned(), Incident::RefusedConnection))
    }

    /// Takes a counter's value. Returns the number of incidents to report now. What was counted
    /// before this daemon started is not reported.
    fn note(&mut self, owner: &str, incident: Incident, value: u64, now: Instant) -> Option<u64> {
        let is_earlier = self.earlier.as_ref().is_some_and(|owners| owners.contains(owner));
        let first = Known { reported: if is_earlier { value } else { 0 }, at: None };
        let known = self.known.entry((owner.to_owned(), incident)).or_insert(first);
        // The counters of a port start from zero when its number gets another owner.
        known.reported = known.reported.min(value);
        let count = value - known.reported;
        if count == 0 || known.at.is_some_and(|at| now < at + REPORT_EVERY) {
            return None;
        }
        *known = Known { reported: value, at: Some(now) };
        Some(count)
    }

    /// Forgets ports that are gone.
    fn keep(&mut self, exists: impl Fn(&str) -> bool) {
        self.known.retain(|(owner, _), _| exists(owner));
        if let Some(earlier) = &mut self.earlier {
            earlier.retain(|owner| exists(owner));
        }
    }
}

fn of_port(counters: &PortCounters) -> Vec<(Incident, u64)> {
    let forged = counters.tx_drops.iter().find(|(reason, _)| *reason == DropReason::ForgedTransmit);
    vec![(Incident::ForgedAddress, forged.map_or(0, |(_, count)| *count))]
}

fn of_vmci(counters: &VmciCounters) -> Vec<(Incident, u64)> {
    vec![(Incident::RefusedConnection, counters.refused), (Incident::LimitedConnection, counters.limited)]
}

impl Reconciler {
    /// Raises events for incidents since the last reading.
    pub(super) fn report_incidents(&mut self) {
        let now = Instant::now();
        if !self.incidents.is_due(now) {
            return;
        }
        let state = self.store.state();
        let desired = &state.desired;
        let owners: Vec<Owner> = desired.ports().map(|(owner, ..)| owner).chain(desired.sockets()).collect();
        self.incidents.note_earlier(owners.iter().map(Owner::to_string));
        for owner in owners {
            let Some(port) = desired.numbers.port(&owner) else { continue };
            // Until the fabric serves a new port, its number may have its last owner's counters.
            let name = owner.to_string();
            if !self.incidents.knows(&name) && !self.board.lock().observed.attached(port) {
                continue;
            }
            let read = match owner {
                Owner::Vmci(_) => self.counters.vmci(port).map(|counters| of_vmci(&counters)),
                _ => self.counters.port(port).map(|counters| of_port(&counters)),
            };
            // A failure to read shows where users ask for the counters.
            let Ok(counts) = read else { continue };
            for (incident, value) in counts {
                if let Some(count) = self.incidents.note(&name, incident, value, now) {
                    self.store.event(Level::Warning, &name, incident.kind(), &incident.message(count));
                }
            }
        }
        self.incidents.keep(|owner| desired.numbers.ports.contains_key(owner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incidents_are_reported_at_once_and_then_once_a_minute() {
        let mut incidents = Incidents::default();
        incidents.note_earlier(["vm/a/vmci".to_owned()].into_iter());
        let start = Instant::now();
        let mut note = |value, seconds| {
            incidents.note(
                "vm/a/vmci",
                Incident::RefusedConnection,
                value,
                start + Duration::from_secs(seconds),
            )
        };
        assert_eq!(note(7, 0), None, "counted before this daemon");
        assert_eq!(note(8, 1), Some(1));
        assert_eq!(note(100, 2), None);
        assert_eq!(note(1000, 59), None);
        assert_eq!(note(1000, 61), Some(992), "the sum of a minute");
        assert_eq!(note(1000, 200), None);
        assert_eq!(note(0, 201), None, "another owner");
        assert_eq!(note(2, 202), Some(2));
    }

    #[test]
    fn first_hour_the_first_incident_of_a_new_port_is_reported() {
        let mut incidents = Incidents::default();
        let now = Instant::now();
        incidents.note_earlier(["vm/a/vmci".to_owned()].into_iter());
        incidents.note_earlier(["vm/b/vmci".to_owned()].into_iter());
        assert_eq!(incidents.note("vm/a/vmci", Incident::RefusedConnection, 1, now), None);
        assert!(incidents.knows("vm/a/vmci") && !incidents.knows("vm/b/vmci"));
        assert_eq!(incidents.note("vm/b/vmci", Incident::RefusedConnection, 1, now), Some(1));
        assert!(incidents.knows("vm/b/vmci"));
        // The same name again is another port.
        incidents.keep(|owner| owner != "vm/a/vmci");
        assert_eq!(incidents.note("vm/a/vmci", Incident::RefusedConnection, 1, now), Some(1));
    }

    #[test]
    fn ports_are_counted_apart_and_forgotten() {
        let mut incidents = Incidents::default();
        let now = Instant::now();
        for owner in ["vm/a/nic0", "vm/b/nic0"] {
            assert_eq!(incidents.note(owner, Incident::ForgedAddress, 0, now), None);
            assert_eq!(incidents.note(owner, Incident::ForgedAddress, 3, now), Some(3), "{owner}");
        }
        incidents.keep(|owner| owner == "vm/a/nic0");
        assert_eq!(incidents.known.len(), 1);
        assert!(incidents.is_due(now) && !incidents.is_due(now));
    }

    #[test]
    fn counters_are_read_by_their_meaning() {
        let drops = vec![(DropReason::Runt, 9), (DropReason::ForgedTransmit, 4)];
        let port = PortCounters { tx_drops: drops, ..PortCounters::default() };
        assert_eq!(of_port(&port), [(Incident::ForgedAddress, 4)]);
        let vmci = VmciCounters { refused: 2, limited: 3, ..VmciCounters::default() };
        assert_eq!(of_vmci(&vmci), [(Incident::RefusedConnection, 2), (Incident::LimitedConnection, 3)]);
        let message = Incident::ForgedAddress.message(1);
        assert!(message.starts_with("dropped 1 frame from a source address"), "{message}");
    }
}
