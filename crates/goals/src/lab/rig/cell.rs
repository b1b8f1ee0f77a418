//! Cells: a switch, a generator and a load.

use std::fmt;
use std::path::PathBuf;

/// A cell of a comparison.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Name in the comparison.
    pub name: &'static str,
    /// What is measured.
    pub switch: Switch,
    /// What loads it.
    pub generator: Generator,
    /// Mode, size and options of `taut bench switch`: `one-way 64 --packed`.
    pub load: &'static str,
}

impl Cell {
    /// Makes a cell.
    pub fn new(name: &'static str, switch: Switch, generator: Generator, load: &'static str) -> Self {
        Self { name, switch, generator, load }
    }

    /// Mode, size and the other options of the load.
    pub(super) fn words(&self) -> (&'static str, &'static str, Vec<String>) {
        let mut words = self.load.split_whitespace();
        let (mode, size) = (words.next().unwrap_or("one-way"), words.next().unwrap_or("64"));
        (mode, size, words.map(str::to_owned).collect())
    }

    /// Switch, generator and load, as results name the cell.
    pub fn label(&self) -> String {
        format!("{} {} {}", self.switch, self.generator.name(), self.load)
    }

    /// Returns true if the load asks for packed rings.
    pub(super) fn is_packed(&self) -> bool {
        self.words().2.iter().any(|word| word == "--packed")
    }

    /// Returns true if the load measures the time of a traversal.
    pub(super) fn is_traversal(&self) -> bool {
        self.words().0 == "traversal"
    }
}

/// A switch under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Switch {
    /// taut's fabric of a build, with its pair of ports on this port group.
    Taut(Build, PortGroup),
    /// OVS-DPDK, which forwards by these flows.
    Ovs(Flows),
    /// DPDK's vhost library without a switch: forwards blindly from one port to the other. It is
    /// the lower bound of any implementation that copies twice.
    Vhost,
    /// A Linux bridge with two TAP devices. vgen drives it through DPDK's TAP driver, with a system
    /// call a frame in which the bridge does its work, on CPU 1. It shows what is usual.
    Bridge,
}

impl Switch {
    /// taut as it is installed.
    pub fn taut() -> Self {
        Self::Taut(Build::This, PortGroup::Plain)
    }

    /// taut with its ports on this port group.
    pub fn on(portgroup: PortGroup) -> Self {
        Self::Taut(Build::This, portgroup)
    }

    /// The fabric of another build, whose programs are in this folder.
    pub fn of_build(name: &'static str, programs: PathBuf) -> Self {
        Self::Taut(Build::Other(name, programs), PortGroup::Plain)
    }

    /// OVS-DPDK as a learning switch.
    pub const OVS: Self = Self::Ovs(Flows::Normal);

    /// Seconds in which the switch settles on paths that it has learnt.
    pub(super) const fn settle(&self) -> &'static str {
        match self {
            // A learned address replaces flooding only when OVS next revalidates its flows.
            Self::Ovs(Flows::Normal) => "1.5",
            _ => "0.3",
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taut(Build::This, PortGroup::Plain) => f.write_str("taut"),
            Self::Taut(Build::This, portgroup) => write!(f, "taut_{}", portgroup.name()),
            Self::Taut(Build::Other(name, _), _) => f.write_str(name),
            Self::Ovs(Flows::Normal) => f.write_str("ovs_normal"),
            Self::Ovs(Flows::Fixed) => f.write_str("ovs_fixed"),
            Self::Vhost => f.write_str("vhost"),
            Self::Bridge => f.write_str("bridge"),
        }
    }
}

/// A build of taut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Build {
    /// The one that this run measures.
    This,
    /// Another one, by its name and the folder of its programs.
    Other(&'static str, PathBuf),
}

impl Build {
    /// Name of its folder in the rig.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::This => "taut",
            Self::Other(name, _) => name,
        }
    }
}

/// A port group of the switch under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortGroup {
    /// As `taut portgroup create` makes it.
    Plain,
    /// It learns addresses behind its ports.
    Learning,
    /// Its ports take frames that are to be segmented.
    Offload,
    /// An access VLAN; promiscuous mode, MAC changes and forged transmits are rejected.
    Guarded,
    /// No VLAN; MAC changes and forged transmits are accepted. Promiscuous mode is rejected:
    /// accepting it would copy every frame.
    Open,
}

impl PortGroup {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Learning => "learning",
            Self::Offload => "offload",
            Self::Guarded => "guarded",
            Self::Open => "open",
        }
    }

    /// Options of `taut portgroup create`.
    pub(super) const fn options(self) -> &'static str {
        match self {
            Self::Plain | Self::Offload => "",
            Self::Learning => "--forged-transmits --mac-learning",
            Self::Guarded => "--vlan 10",
            Self::Open => "--mac-changes --forged-transmits",
        }
    }

    /// Options of `taut port attach`.
    pub(super) const fn port_options(self) -> &'static str {
        match self {
            Self::Offload => "--offloads",
            _ => "",
        }
    }
}

/// Flows of OVS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flows {
    /// The action NORMAL: a learning switch.
    Normal,
    /// Two fixed flows between the ports.
    Fixed,
}

/// A load generator. All have rings of 256 entries and bursts of 32 frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generator {
    /// `taut bench switch` of the build that this run measures.
    Taut,
    /// A light generator that was not written with taut.
    Lgen,
    /// DPDK's virtio-user, which ends at about 21 Mpps.
    Vgen,
}

impl Generator {
    /// Name of the program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Taut => "taut",
            Self::Lgen => "lgen",
            Self::Vgen => "vgen",
        }
    }
}
