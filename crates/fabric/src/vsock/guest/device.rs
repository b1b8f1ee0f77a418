//! A guest's device apart from its rings: configuration, peers, and use of its limits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use taut_api::fabric::config::SocketConfig;
use taut_api::fabric::counters::SocketWord;
use taut_api::vmci::Cid;

use super::closing_queues::ClosingQueues;
use super::counters::DeviceCounters;
use super::sender::RingPlace;
use crate::vsock::proto::{GuestIdx, Usage};

/// Clients on the host connect from ports from here on, clear of those that programs choose.
const FIRST_HOST_PORT: u32 = 1 << 30;
/// Shortest time between two reports of a guest's violations.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A device, without its rings.
#[derive(Debug)]
pub(crate) struct GuestDevice {
    pub(crate) config: SocketConfig,
    pub(crate) counters: DeviceCounters,
    /// The guests that this one may talk to. A guest that it may not talk to takes as long to be
    /// refused as an absent one.
    pub(crate) peers: HashMap<Cid, GuestIdx>,
    pub(crate) usage: Usage,
    /// Queues of threads that close the descriptors which programs on the host have sent.
    pub(crate) closing_queues: ClosingQueues,
    /// The stopped transmit ring that the connections belong to. A guest that starts another ring
    /// has started anew.
    pub(crate) stopped: Option<RingPlace>,
    /// Time of the last report of a violation.
    reported: Option<Instant>,
    /// Next port of the host that a client connects from.
    next_host_port: u32,
}

impl GuestDevice {
    pub(crate) fn new(config: SocketConfig, counters: DeviceCounters) -> Self {
        Self {
            closing_queues: ClosingQueues::new(config.id),
            config,
            counters,
            peers: HashMap::new(),
            usage: Usage::default(),
            stopped: None,
            reported: None,
            next_host_port: FIRST_HOST_PORT,
        }
    }

    /// Counts connections that were added or, with a negative number, removed. `own` ones count to
    /// the guest's limit.
    pub(crate) fn count_connections(&mut self, change: i32, own: bool) {
        if own {
            self.usage.own = self.usage.own.saturating_add_signed(change);
        }
        let connections = self.usage.connections.saturating_add_signed(change);
        self.usage.connections = connections;
        self.counters.set(SocketWord::Connections, connections.into());
    }

    /// Counts unanswered requests of the guest's that were added or removed.
    pub(crate) fn count_half_open(&mut self, change: i32) {
        self.usage.half_open = self.usage.half_open.saturating_add_signed(change);
    }

    /// Tells whether a violation is to be reported now, and notes that it is.
    pub(crate) fn may_report(&mut self, now: Instant) -> bool {
        let due = self.reported.is_none_or(|reported| now.duration_since(reported) >= REPORT_INTERVAL);
        if due {
            self.reported = Some(now);
        }
        due
    }

    /// Has the next client of this guest get this port of the host, if it is free.
    #[cfg(test)]
    pub(crate) fn skip_to_host_port(&mut self, port: u32) {
        self.next_host_port = port;
    }

    /// A port of the host for the next client of this guest.
    pub(crate) fn next_host_port(&mut self) -> u32 {
        let port = self.next_host_port;
        self.next_host_port = if port >= 2 * FIRST_HOST_PORT - 1 { FIRST_HOST_PORT } else { port + 1 };
        port
    }
}
