//! Statistics of a period: counts and rates of ports, and times of VMs.

mod host;
mod series;
mod sockets;
mod wait;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;
use crate::fabric::DropReason;
use crate::fabric::counters::PortCounters;
use crate::link::Link;
use crate::network_io::TrafficClass;

pub use host::HostStatistics;
pub use series::{Column, Series, SeriesPoint, Subject};
pub use sockets::SocketStatistics;
pub use wait::{Wait, limits};

/// A period in seconds: written `300`, `5m`, `1h` or `7d`. It ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period(u64);

/// Why a text is no period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a period: write a number of seconds, or a number with s, m, h or d, up to 366d")]
pub struct BadPeriod(String);

impl Period {
    /// The period of ESX's Network page: five minutes.
    pub const USUAL: Self = Self(300);
    /// The longest time for which samples can be kept: 366 days.
    pub const LONGEST: Self = Self(366 * 86_400);
    /// A minute.
    pub const MINUTE: Self = Self(60);
    /// A day.
    pub const DAY: Self = Self::days(1);

    /// Returns a period of some days, at most 366.
    pub const fn days(days: u64) -> Self {
        Self(days * 86_400)
    }

    /// Parses the period of a query. Without a text, the period is [`Period::USUAL`], five minutes.
    pub fn parse_or_usual(text: Option<&str>) -> Result<Self, BadPeriod> {
        text.map_or(Ok(Self::USUAL), str::parse)
    }

    /// Returns the period in milliseconds.
    pub const fn ms(self) -> u64 {
        self.0 * 1000
    }
}

impl Default for Period {
    fn default() -> Self {
        Self::USUAL
    }
}

impl FromStr for Period {
    type Err = BadPeriod;

    fn from_str(text: &str) -> Result<Self, BadPeriod> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let seconds = match unit {
            "" | "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => 0,
        };
        let period = number.parse().ok().and_then(|number: u64| number.checked_mul(seconds)).map(Self);
        period
            .filter(|period| (1..=Self::LONGEST.0).contains(&period.0))
            .ok_or_else(|| BadPeriod(text.to_owned()))
    }
}

impl fmt::Display for Period {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(86_400, "d"), (3600, "h"), (60, "m")];
        let unit = units.iter().find(|(seconds, _)| self.0.is_multiple_of(*seconds));
        let (seconds, unit) = unit.unwrap_or(&(1, "s"));
        write!(out, "{}{unit}", self.0 / seconds)
    }
}

/// `GET /v1/statistics/ports`: counts of one port within the period, and averages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortStatistics {
    /// Owner of the port, as in `GET /v1/ports`. It may be gone meanwhile.
    pub owner: String,
    /// Number of the port in the fabric, if it exists now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// vSwitch of the port, if it exists now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vswitch: Option<Name>,
    /// Port group of the port, if it exists now and has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portgroup: Option<Name>,
    /// Link of the port now, if it exists, or if it belongs to a card of a VM that is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<Link>,
    /// Reason that this link is not up, or leads nowhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Class of the port's traffic now, if its vSwitch has network I/O control. The sum of
    /// `wire_tx_bits_per_s` over the ports of a class is what the class has of all uplinks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub traffic_class: Option<TrafficClass>,
    /// Time that the averages cover, in ms: less than the period if the port is younger or nobody
    /// took samples at its begin, up to two samples more otherwise, and 0 if there are no two
    /// samples yet. Samples are a second, 20 s or 5 minutes apart, by the length of the period.
    pub covered_ms: u64,
    /// End of that time, in ms since the Unix epoch.
    pub to_ms: u64,
    /// Averages over that time.
    pub rates: PortRates,
    /// Counts of that time. Words that are no counters are absent: `rx_queues` is 0 and
    /// `address_refused` is false.
    pub counted: PortCounters,
}

/// Averages of a port's counters over a period. "rx" and "tx" are the guest's. An uplink receives
/// from the vSwitch what it sends outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PortRates {
    /// Frames delivered to the guest per second.
    pub rx_frames_per_s: f64,
    /// Bits delivered to the guest per second.
    pub rx_bits_per_s: f64,
    /// Broadcast and multicast frames delivered to the guest per second.
    pub rx_multicast_per_s: f64,
    /// Frames taken from the guest per second, dropped ones included.
    pub tx_frames_per_s: f64,
    /// Bits taken from the guest per second.
    pub tx_bits_per_s: f64,
    /// Part of the frames for the guest that were dropped, in percent (esxtop's `%DRPRX`).
    pub rx_drops_percent: f64,
    /// Part of the guest's frames that were dropped, in percent (esxtop's `%DRPTX`).
    pub tx_drops_percent: f64,
    /// Times per second that a sender waited for the full receive ring.
    pub rx_waits_per_s: f64,
    /// Interrupts sent to the guest per second.
    pub interrupts_per_s: f64,
    /// Notifications received from the guest per second.
    pub kicks_per_s: f64,
    /// Bits per second that the port has sent through uplinks, or that the uplink has sent, as they
    /// are on the wire: with preambles, checksums and gaps.
    #[serde(default)]
    pub wire_tx_bits_per_s: f64,
    /// Bits per second that the port has received from uplinks, or that the uplink has received, as
    /// they are on the wire.
    #[serde(default)]
    pub wire_rx_bits_per_s: f64,
}

/// `GET /v1/statistics/vms`: times of one VM within the period, whoever has started it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VmStatistics {
    /// Name of the VM: taut's own, or the one on QEMU's command line. A foreign VM without a name
    /// is called by its process number.
    pub name: String,
    /// True if another program has started the VM.
    pub foreign: bool,
    /// Its process, if it runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Time that the averages cover, in ms.
    pub covered_ms: u64,
    /// End of that time, in ms since the Unix epoch.
    pub to_ms: u64,
    /// Each vCPU, the first 120 of them; empty if the names of QEMU's threads do not tell them
    /// (`debug-threads=on`).
    pub vcpus: Vec<VcpuStatistics>,
    /// Time that all vCPUs ran, in percent of one pCPU (esxtop's `%RUN` of a group).
    pub run_percent: f64,
    /// Time that all vCPUs were ready to run and waited, in percent (`%RDY` of a group).
    pub ready_percent: f64,
    /// Time that the VM's other threads ran, in percent: emulation and I/O (`%SYS`).
    pub others_percent: f64,
    /// Time in which the CPU limits of the VM's control groups kept it from running, in percent,
    /// summed over all pCPUs on which it wanted to run (`%MLMTD`). For the kernel it is ready then,
    /// so `ready_percent` has this time, too. Limits of slices, which are for many programs, are
    /// left out. Absent if the host has no controller for CPU time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_percent: Option<f64>,
    /// Time that all vCPUs waited for pages of their memory from disk, in percent (`%SWPWT` of a
    /// group). Absent unless the kernel counts such delays (`kernel.task_delayacct=1`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paged_percent: Option<f64>,
    /// Memory of the host that the VM's process had on average, in bytes, huge pages included.
    /// Absent if nobody read it in the period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<f64>,
    /// Memory of the VM's process that was swapped out, on average, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swapped_bytes: Option<f64>,
    /// Bytes that the VM's process has read from disks per second, without those that the host's
    /// page cache had. Absent if the daemon may not read it. Disks over the network that QEMU
    /// itself connects to are not among them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_read_bytes_per_s: Option<f64>,
    /// Bytes that the VM's process has written to disks per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_written_bytes_per_s: Option<f64>,
}

/// Times of a vCPU within the period.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VcpuStatistics {
    /// Index of the vCPU.
    pub vcpu: u32,
    /// Time that it ran, in percent.
    pub run_percent: f64,
    /// Time that it was ready to run and waited, in percent (`%RDY`). On ESX's charts this is in ms
    /// of 20 s: 10 % are 2000 ms.
    pub ready_percent: f64,
}

impl PortRates {
    /// Returns the averages of counts within so many milliseconds.
    pub fn of(counted: &PortCounters, ms: u64) -> Self {
        let each = |count: u64| if ms == 0 { 0.0 } else { count as f64 * 1000.0 / ms as f64 };
        let sum = |drops: &[(DropReason, u64)]| drops.iter().map(|(_, count)| count).sum::<u64>();
        let percent =
            |part: u64, of: u64| if of == 0 { 0.0 } else { (part as f64 * 100.0 / of as f64).min(100.0) };
        let (rx_drops, tx_drops) = (sum(&counted.rx_drops), sum(&counted.tx_drops));
        Self {
            rx_frames_per_s: each(counted.rx_frames),
            rx_bits_per_s: each(counted.rx_bytes) * 8.0,
            rx_multicast_per_s: each(counted.rx_multicast),
            tx_frames_per_s: each(counted.tx_frames),
            tx_bits_per_s: each(counted.tx_bytes) * 8.0,
            rx_drops_percent: percent(rx_drops, counted.rx_frames + rx_drops),
            tx_drops_percent: percent(tx_drops, counted.tx_frames),
            rx_waits_per_s: each(counted.rx_waits),
            interrupts_per_s: each(counted.interrupts),
            kicks_per_s: each(counted.kicks),
            wire_tx_bits_per_s: each(counted.wire_tx_bytes) * 8.0,
            wire_rx_bits_per_s: each(counted.wire_rx_bytes) * 8.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        let read = |text: &str| text.parse::<Period>();
        for (text, seconds) in [("300", 300), ("45s", 45), ("5m", 300), ("1h", 3600), ("30d", 2_592_000)] {
            assert_eq!(read(text).unwrap().ms(), seconds * 1000);
        }
        for text in ["", "0", "m", "-1", "367d", "1w", "5 m", "99999999999999999999", "9999999999999999999d"]
        {
            assert!(read(text).is_err(), "{text}");
            assert!(Period::parse_or_usual(Some(text)).is_err(), "{text}");
        }
        assert_eq!(Period::parse_or_usual(None), Ok(Period::USUAL));
        assert_eq!(
            ["300", "90", "7200", "86400"].map(|text| read(text).unwrap().to_string()),
            ["5m", "90s", "2h", "1d"]
        );
    }

    #[test]
    fn rates_are_those_of_the_time_and_drops_those_of_the_frames() {
        let counted = PortCounters {
            rx_frames: 900,
            rx_bytes: 1_000_000,
            tx_frames: 50,
            rx_drops: vec![(DropReason::RingFull, 60), (DropReason::PortDown, 40)],
            tx_drops: vec![(DropReason::Runt, 5)],
            kicks: 3,
            ..PortCounters::default()
        };
        let rates = PortRates::of(&counted, 2000);
        assert_eq!((rates.rx_frames_per_s, rates.rx_bits_per_s), (450.0, 4_000_000.0));
        assert_eq!((rates.rx_drops_percent, rates.tx_drops_percent, rates.kicks_per_s), (10.0, 10.0, 1.5));
        assert_eq!(PortRates::of(&PortCounters::default(), 0), PortRates::default());
    }
}
