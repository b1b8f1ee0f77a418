//! `taut net`.

use std::collections::BTreeMap;

use clap::Subcommand;
use taut_api::fabric::DropReason;
use taut_api::link::LinkReason;
use taut_api::network_io::TrafficClass;
use taut_api::statistics::{Period, PortStatistics};
use taut_api::{ApiError, Name, path};

use crate::client::Client;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show averages of ports over a period, with esxtop's columns; TX is what a guest sends
    Stats {
        /// Ports by number, owner (vm/web1/nic0) or first part of it (vm/web1); all by default
        ports: Vec<String>,
        /// The period before now: a number of seconds, or a number with s, m, h or d, up to 366d
        #[arg(long, default_value_t)]
        period: Period,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Stats { ports, period } => {
            let path = format!("{}?period={period}", path::PORT_STATISTICS);
            let all: Vec<PortStatistics> = client.get(&path)?;
            let wanted = choose(all, &ports, period)?;
            output::print(out.format, &wanted, |wanted| table(wanted));
        }
    }
    Ok(())
}

/// Returns the ports that are asked for.
fn choose(
    all: Vec<PortStatistics>,
    wanted: &[String],
    period: Period,
) -> Result<Vec<PortStatistics>, ApiError> {
    let is = |port: &PortStatistics, text: &str| {
        let rest = port.owner.strip_prefix(text);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            || port.port.is_some_and(|number| number.to_string() == text)
    };
    if let Some(missing) = wanted.iter().find(|text| !all.iter().any(|port| is(port, text))) {
        return Err(ApiError::new(
            taut_api::error::ErrorKind::NotFound,
            format!("there is no port `{missing}`, and none has samples of the last {period}"),
            "`taut port list` shows those that exist",
        ));
    }
    let is_wanted = |port: &PortStatistics| wanted.is_empty() || wanted.iter().any(|text| is(port, text));
    Ok(all.into_iter().filter(is_wanted).collect())
}

fn table(ports: &[PortStatistics]) -> String {
    let rows: Vec<_> = ports.iter().map(row).collect();
    output::table(
        [
            "PORT", "OWNER", "SECONDS", "PKTTX/s", "MbTX/s", "PSZTX", "PKTRX/s", "MbRX/s", "PSZRX", "%DRPTX",
            "%DRPRX", "KICKS/s", "INTR/s", "DROPS",
        ],
        &rows,
    ) + &reasons(ports)
        + &classes(ports)
}

/// Returns why links are not up, each reason with its section of the guide.
fn reasons(ports: &[PortStatistics]) -> String {
    let reason = |port: &PortStatistics| {
        let (link, reason) = (port.link?, port.reason.as_ref()?);
        Some(format!("{}: {reason} ({})\n", port.owner, LinkReason::of(link, reason).guide()))
    };
    ports.iter().filter_map(reason).collect()
}

/// Returns what the classes of network I/O control have of the uplinks; nothing without classes.
fn classes(ports: &[PortStatistics]) -> String {
    let mut sums = BTreeMap::new();
    for port in ports {
        if let (Some(vswitch), Some(class)) = (&port.vswitch, port.traffic_class) {
            let (tx, rx) = sums.entry((vswitch, class)).or_insert((0.0, 0.0));
            *tx += port.rates.wire_tx_bits_per_s;
            *rx += port.rates.wire_rx_bits_per_s;
        }
    }
    if sums.is_empty() {
        return String::new();
    }
    let row = |((vswitch, class), (tx, rx)): ((&Name, TrafficClass), (f64, f64))| {
        [vswitch.to_string(), class.as_str().to_owned(), number(tx / 1e6), number(rx / 1e6)]
    };
    let rows: Vec<_> = sums.into_iter().map(row).collect();
    "\n".to_owned() + &output::table(["VSWITCH", "CLASS", "WIRE MbTX/s", "WIRE MbRX/s"], &rows)
}

fn row(port: &PortStatistics) -> [String; 14] {
    let (rates, counted) = (&port.rates, &port.counted);
    let size =
        |bytes: u64, frames: u64| bytes.checked_div(frames).map_or("-".to_owned(), |size| size.to_string());
    [
        match (port.port, port.link) {
            (Some(number), _) => number.to_string(),
            (None, Some(_)) => "off".to_owned(),
            (None, None) => "gone".to_owned(),
        },
        port.owner.clone(),
        ((port.covered_ms + 500) / 1000).to_string(),
        number(rates.tx_frames_per_s),
        number(rates.tx_bits_per_s / 1e6),
        size(counted.tx_bytes, counted.tx_frames),
        number(rates.rx_frames_per_s),
        number(rates.rx_bits_per_s / 1e6),
        size(counted.rx_bytes, counted.rx_frames),
        number(rates.tx_drops_percent),
        number(rates.rx_drops_percent),
        number(rates.kicks_per_s),
        number(rates.interrupts_per_s),
        most_frequent(&counted.rx_drops, &counted.tx_drops),
    ]
}

/// Returns a number with three digits or more.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.01 => "<0.01".to_owned(),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// Returns the most frequent reason for drops.
fn most_frequent(rx: &[(DropReason, u64)], tx: &[(DropReason, u64)]) -> String {
    let of = |direction, drops: &[(DropReason, u64)]| {
        drops.iter().map(|(reason, count)| (*count, direction, *reason)).max_by_key(|(count, ..)| *count)
    };
    let most = of("rx", rx).into_iter().chain(of("tx", tx)).max_by_key(|(count, ..)| *count);
    most.map_or(String::new(), |(count, direction, reason)| {
        format!("{direction} {count} {}", reason.as_str())
    })
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::counters::PortCounters;
    use taut_api::link::Link;
    use taut_api::statistics::PortRates;

    use super::*;

    fn port(number: Option<u32>, owner: &str, counted: PortCounters) -> PortStatistics {
        PortStatistics {
            owner: owner.to_owned(),
            port: number,
            vswitch: None,
            portgroup: None,
            link: None,
            reason: None,
            traffic_class: None,
            covered_ms: 300_000,
            to_ms: 1_300_000,
            rates: PortRates::of(&counted, 300_000),
            counted,
        }
    }

    #[test]
    fn a_table_has_esxtops_columns() {
        let busy = PortCounters {
            tx_frames: 3_000_000,
            tx_bytes: 4_500_000_000,
            rx_frames: 1_500_000,
            rx_bytes: 96_000_000,
            rx_drops: vec![(DropReason::RingFull, 30_000), (DropReason::PortDown, 1)],
            tx_drops: vec![(DropReason::ForgedTransmit, 30)],
            kicks: 900,
            interrupts: 12_000,
            ..PortCounters::default()
        };
        let ports = [port(Some(7), "vm/web1/nic0", busy), port(None, "vm/old/nic0", PortCounters::default())];
        insta::assert_snapshot!(table(&ports), @r"
        PORT  OWNER         SECONDS  PKTTX/s  MbTX/s  PSZTX  PKTRX/s  MbRX/s  PSZRX  %DRPTX  %DRPRX  KICKS/s  INTR/s  DROPS
        7     vm/web1/nic0      300    10000     120   1500     5000    2.56     64  <0.01     1.96     3.00    40.0  rx 30000 no free receive buffer
        gone  vm/old/nic0       300        0       0      -        0       0      -  0            0        0       0
        ");
    }

    #[test]
    fn a_card_of_a_vm_that_is_off_is_told_from_one_that_is_gone() {
        let counted = PortCounters::default();
        let gone = port(None, "vm/old/nic0", counted.clone());
        let reason = Some("the VM is off: taut vm start web1".to_owned());
        let off = PortStatistics { link: Some(Link::Down), reason, ..port(None, "vm/web1/nic0", counted) };
        insta::assert_snapshot!(table(&[gone, off]), @r"
        PORT  OWNER         SECONDS  PKTTX/s  MbTX/s  PSZTX  PKTRX/s  MbRX/s  PSZRX  %DRPTX  %DRPRX  KICKS/s  INTR/s  DROPS
        gone  vm/old/nic0       300        0       0      -        0       0      -       0       0        0       0
        off   vm/web1/nic0      300        0       0      -        0       0      -       0       0        0       0
        vm/web1/nic0: the VM is off: taut vm start web1 (docs/guide/reasons.md#link-powered-off)
        ");
    }

    #[test]
    fn classes_have_what_their_ports_have_of_the_uplinks() {
        let of = |class, bytes| PortStatistics {
            vswitch: Some("out".parse().unwrap()),
            traffic_class: Some(class),
            ..port(Some(1), "vm/a/nic0", PortCounters { wire_tx_bytes: bytes, ..PortCounters::default() })
        };
        let vm = TrafficClass::VirtualMachine;
        let ports = [of(vm, 37_500_000), of(TrafficClass::Nfs, 3_750_000), of(vm, 75_000_000)];
        insta::assert_snapshot!(classes(&ports).trim_start(), @r"
        VSWITCH  CLASS           WIRE MbTX/s  WIRE MbRX/s
        out      nfs                    0.10            0
        out      virtualmachine         3.00            0
        ");
        assert_eq!(classes(&[port(Some(1), "vm/a/nic0", PortCounters::default())]), "");
    }

    #[test]
    fn ports_are_chosen_by_number_owner_or_machine() {
        let all = || {
            ["vm/web1/nic0", "vm/web1/nic1", "vm/web10/nic0", "netns/gen"]
                .into_iter()
                .zip(1..)
                .map(|(owner, number)| port(Some(number), owner, PortCounters::default()))
                .collect::<Vec<_>>()
        };
        let chosen = |wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|text| (*text).to_owned()).collect();
            choose(all(), &wanted, Period::USUAL)
                .map(|ports| ports.iter().filter_map(|port| port.port).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[]).unwrap(), [1, 2, 3, 4]);
        assert_eq!(chosen(&["vm/web1"]).unwrap(), [1, 2]);
        assert_eq!(chosen(&["4", "vm/web10/nic0"]).unwrap(), [3, 4]);
        let error = chosen(&["9"]).unwrap_err();
        assert_eq!(error.message, "there is no port `9`, and none has samples of the last 5m");
    }
}
