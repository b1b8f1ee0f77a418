//! `taut vmci stats`: connections and bytes of VMCI sockets over a period.

use taut_api::path;
use taut_api::statistics::{Period, SocketStatistics};

use crate::client::Client;
use crate::output::{self, Format, Outcome};

pub(super) fn run(period: Period, client: &Client, format: Format) -> Outcome {
    let all: Vec<SocketStatistics> = client.get(&format!("{}?period={period}", path::SOCKET_STATISTICS))?;
    output::print(format, &all, |all| table(all));
    Ok(())
}

fn table(vms: &[SocketStatistics]) -> String {
    let rows: Vec<_> = vms.iter().map(row).collect();
    output::table(
        [
            "VM", "SECONDS", "CONNS", "BY RINGS", "OPENED/s", "MbTX/s", "MbRX/s", "PKTTX/s", "PKTRX/s",
            "STALLS",
        ],
        &rows,
    )
}

fn row(vm: &SocketStatistics) -> [String; 10] {
    let number = |value: f64| format!("{value:.1}");
    let known = |value: Option<f64>| value.map_or("-".to_owned(), number);
    [
        vm.vm.clone(),
        ((vm.covered_ms + 500) / 1000).to_string(),
        known(vm.connections),
        known(vm.attached),
        number(vm.opened_per_s),
        format!("{:.2}", vm.tx_bits_per_s / 1e6),
        format!("{:.2}", vm.rx_bits_per_s / 1e6),
        number(vm.tx_packets_per_s),
        number(vm.rx_packets_per_s),
        vm.counted.stalls.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::counters::VmciCounters;

    use super::*;

    #[test]
    fn a_table_has_connections_and_bytes() {
        let db = SocketStatistics {
            vm: "db".to_owned(),
            covered_ms: 300_400,
            to_ms: 0,
            connections: Some(2.5),
            attached: None,
            opened_per_s: 0.25,
            rx_bits_per_s: 8_000_000.0,
            tx_bits_per_s: 12_345_678.0,
            rx_packets_per_s: 700.0,
            tx_packets_per_s: 800.0,
            counted: VmciCounters { stalls: 3, ..VmciCounters::default() },
        };
        insta::assert_snapshot!(table(&[db]), @r"
        VM  SECONDS  CONNS  BY RINGS  OPENED/s  MbTX/s  MbRX/s  PKTTX/s  PKTRX/s  STALLS
        db      300    2.5         -       0.2   12.35    8.00    800.0    700.0       3
        ");
    }
}
