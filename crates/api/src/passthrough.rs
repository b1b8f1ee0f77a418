//! Devices of the host that are passed through to VMs: the settings, and the facts found on the
//! host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::Name;
use crate::shaping::Shaping;
use crate::text::schema_of_text;

/// A PCI device or virtual function that is passed through to the VM: the table `[[passthrough]]`
/// of a VM file. Takes effect at the VM's next start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PassthroughSpec {
    /// Address on the host, such as `0000:3b:00.1`.
    pub address: PciAddress,
    /// Always refused, with the reason: no vSwitch sees the device's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portgroup: Option<Name>,
    /// Always refused, with the reason: taut cannot delay the device's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaping: Option<Shaping>,
}

/// Address of a PCI device: domain, bus, device and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

/// Why a text is not a PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a PCI address: write domain, bus, device and function as lspci -D does, such as 0000:3b:00.1"
)]
pub struct BadPciAddress(pub String);

impl FromStr for PciAddress {
    type Err = BadPciAddress;

    fn from_str(text: &str) -> Result<Self, BadPciAddress> {
        let parse = || {
            let (slot, function) = text.rsplit_once('.')?;
            let mut parts = slot.rsplit(':');
            let hex = |digits: &str, most: usize| {
                let fits =
                    (1..=most).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
                if fits { u16::from_str_radix(digits, 16).ok() } else { None }
            };
            let device = u8::try_from(hex(parts.next()?, 2)?).ok().filter(|device| *device < 32)?;
            let bus = u8::try_from(hex(parts.next()?, 2)?).ok()?;
            let domain = parts.next().map_or(Some(0), |digits| hex(digits, 4))?;
            let function = u8::try_from(hex(function, 1)?).ok().filter(|function| *function < 8)?;
            parts.next().is_none().then_some(Self { domain, bus, device, function })
        };
        parse().ok_or_else(|| BadPciAddress(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

/// A PCI device found on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PciDevice {
    /// Vendor and device ID, such as `8086:154c`.
    pub id: String,
    /// True if it is a bridge.
    pub bridge: bool,
    /// Kernel driver bound to it.
    pub driver: Option<String>,
    /// IOMMU group: the smallest set of devices that the IOMMU can isolate.
    pub group: Option<u32>,
    /// Other devices of the group.
    pub neighbours: Vec<Neighbour>,
    /// Uses by the host, as parts of a sentence.
    pub uses: Vec<String>,
    /// NUMA node.
    pub node: Option<u32>,
}

/// Another device of the same IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Address.
    pub address: String,
    /// True if it is a bridge, which stays with the host.
    pub bridge: bool,
    /// Kernel driver bound to it.
    pub driver: Option<String>,
}

/// The host's support for pass-through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PciHost {
    /// Number of IOMMU groups; 0 without an IOMMU.
    pub groups: usize,
    /// True if the driver vfio-pci is available.
    pub vfio: bool,
}

schema_of_text!(PciAddress);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_lspci_writes_them() {
        for (text, address) in [
            ("0000:3b:00.1", "0000:3b:00.1"),
            ("3b:00.1", "0000:3b:00.1"),
            ("10001:0:1f.7", ""),
            ("abcd:0:1F.7", "abcd:00:1f.7"),
            ("", ""),
            ("3b:00", ""),
            ("3b:20.0", ""),
            ("3b:00.8", ""),
            ("1:2:3b:00.1", ""),
            ("+b:00.1", ""),
            ("../00.1", ""),
        ] {
            let read = text.parse::<PciAddress>().map(|address| address.to_string());
            assert_eq!(read.unwrap_or_default(), address, "{text}");
        }
    }
}
