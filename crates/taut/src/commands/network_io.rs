//! Options for network I/O control of a vSwitch.

use std::str::FromStr;

use clap::Args;
use taut_api::network_io::{NetworkAllocation, NetworkIo, TrafficClass};
use taut_api::word::SwitchArg as _;

/// Options for network I/O control. Absent options keep their values; a switch without a value
/// means on.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct NetworkIoArgs {
    /// Divide busy uplinks between classes of traffic, and between the ports of a class (ESX:
    /// Network I/O Control). With off, the settings of classes stay for the next time
    #[arg(long, on_or_off())]
    network_io: Option<bool>,
    /// Part of each uplink for a class of traffic: its name and shares=SHARES, reservation=RATE,
    /// limit=RATE, such as nfs:shares=low,limit=1Gbit, or nfs:default. It replaces the former one;
    /// what is left out has its default. Turns network I/O control on, unless that is given. May be
    /// repeated. Classes are management, faulttolerance, nfs, iscsi, vsan, vmotion, hbr, vdp and
    /// virtualmachine
    #[arg(long, value_name = "CLASS:ALLOCATION")]
    traffic: Vec<ClassAllocation>,
}

/// Part of each uplink for a class; `None` for the default of the class.
#[derive(Debug, Clone, Copy)]
struct ClassAllocation(TrafficClass, Option<NetworkAllocation>);

impl FromStr for ClassAllocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (class, allocation) = text
            .split_once(':')
            .ok_or("write CLASS:ALLOCATION, such as nfs:shares=low,limit=1Gbit, or nfs:default")?;
        let class: TrafficClass = class.parse().map_err(|error| format!("{error}"))?;
        if allocation == "default" {
            return Ok(Self(class, None));
        }
        let mut read: NetworkAllocation = allocation.parse().map_err(|error| format!("{error}"))?;
        if !allocation.contains("shares") {
            read.shares = class.default_allocation().shares;
        }
        Ok(Self(class, Some(read)))
    }
}

impl NetworkIoArgs {
    /// Changes what is given.
    pub(crate) fn change(&self, NetworkIo { enabled, classes }: &mut NetworkIo) {
        *enabled = self.network_io.unwrap_or(*enabled || !self.traffic.is_empty());
        for ClassAllocation(class, allocation) in &self.traffic {
            match allocation.filter(|allocation| *allocation != class.default_allocation()) {
                Some(allocation) => _ = classes.insert(*class, allocation),
                None => _ = classes.remove(class),
            }
        }
    }
}

/// Renders network I/O control in one line.
pub(crate) fn line(NetworkIo { enabled, classes }: &NetworkIo) -> String {
    let state = if *enabled { "on" } else { "off" };
    let each = classes.iter().map(|(class, allocation)| format!(", {class}:{allocation}"));
    format!("{state}{}", each.collect::<String>())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: NetworkIoArgs,
    }

    fn change(network_io: &mut NetworkIo, words: &str) -> String {
        let line = Line::try_parse_from(["taut"].into_iter().chain(words.split_whitespace())).unwrap();
        line.args.change(network_io);
        super::line(network_io)
    }

    #[test]
    fn each_option_can_be_taken_back() {
        let mut now = NetworkIo::default();
        assert_eq!(change(&mut now, ""), "off");
        assert_eq!(change(&mut now, "--network-io"), "on");
        assert_eq!(
            change(
                &mut now,
                "--traffic nfs:shares=low,limit=1Gbit --traffic virtualmachine:reservation=5Mbit"
            ),
            "on, nfs:shares=low,limit=1Gbit, virtualmachine:shares=high,reservation=5Mbit"
        );
        assert_eq!(
            change(&mut now, "--traffic nfs:default --traffic virtualmachine:limit=2Mbit"),
            "on, virtualmachine:shares=high,limit=2Mbit"
        );
        assert_eq!(change(&mut now, "--network-io off"), "off, virtualmachine:shares=high,limit=2Mbit");
        assert_eq!(change(&mut now, "--traffic virtualmachine:default"), "on");
        assert_eq!(change(&mut now, "--network-io off --traffic vsan:shares=70"), "off, vsan:shares=70");
        for wrong in ["nfs", "web:shares=low", "nfs:shares=0", "nfs:"] {
            assert!(Line::try_parse_from(["taut", "--traffic", wrong]).is_err(), "{wrong}");
        }
    }
}
