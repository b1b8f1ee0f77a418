//! Rivals: programs of others that rows measure taut beside.

use std::fmt;
use std::path::PathBuf;

use crate::machine::Machine;
use crate::reason::{Measured, NotMeasured};

/// A rival, or a generator that was not written with taut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rival {
    /// TAP devices on a Linux bridge.
    LinuxBridge,
    /// Open vSwitch on DPDK.
    OvsDpdk,
    /// DPDK's vhost library, as `dpdk-testpmd` uses it.
    DpdkTestpmd,
    /// rust-vmm's vhost-device-vsock.
    VhostDeviceVsock,
    /// A generator whose source `NAME.c` is in the folder that `TAUT_RIVALS` names.
    Generator(&'static str),
}

impl Rival {
    /// Returns the rival's program, or a generator's source. Fails if it is not on this machine.
    pub fn find(self, machine: &mut dyn Machine) -> Measured<PathBuf> {
        let found = match self {
            Self::LinuxBridge => machine.program("ip"),
            Self::OvsDpdk => machine.program("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"),
            Self::DpdkTestpmd => machine.program("dpdk-testpmd"),
            Self::VhostDeviceVsock => {
                let named = machine.variable("TAUT_VHOST_DEVICE_VSOCK");
                machine.program(named.as_deref().unwrap_or("vhost-device-vsock"))
            }
            Self::Generator(name) => {
                let folder = machine.variable("TAUT_RIVALS");
                let folder = folder.ok_or_else(|| {
                    NotMeasured::because(format!("TAUT_RIVALS names no folder with {self}"))
                })?;
                machine.program(&format!("{folder}/{name}.c"))
            }
        };
        found.ok_or_else(|| NotMeasured::because(format!("{self} is not installed")))
    }
}

impl fmt::Display for Rival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinuxBridge => f.write_str("the Linux bridge"),
            Self::OvsDpdk => f.write_str("OVS-DPDK"),
            Self::DpdkTestpmd => f.write_str("dpdk-testpmd"),
            Self::VhostDeviceVsock => f.write_str("vhost-device-vsock"),
            Self::Generator(name) => write!(f, "{name}.c"),
        }
    }
}
