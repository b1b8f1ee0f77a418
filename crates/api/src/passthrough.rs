//! Devices of the host handed to VMs (SPEC LS-8): what a VM file says, and what is found on the host.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

use crate::Name;
use crate::shaping::Shaping;
use crate::text::schema_of_text;

/// A PCI device, or a virtual function of one, handed to the VM: the table `[[passthrough]]` of a VM file. From its next start on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PassthroughSpec {
    /// Its address on the host, such as `0000:3b:00.1`.
    pub address: PciAddress,
    /// Refused, with the reason: no vSwitch sees the device's frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portgroup: Option<Name>,
    /// Refused, with the reason: nobody can hold its frames back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shaping: Option<Shaping>,
}

/// Where a PCI device is: domain, bus, device and function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct PciAddress {
    domain: u16,
    bus: u8,
    device: u8,
    function: u8,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no PCI address: write domain, bus, device and function as lspci -D does, such as 0000:3b:00.1"
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

/// A PCI device as it is found on the host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PciDevice {
    /// Vendor and device, `8086:154c`.
    pub id: String,
    /// Is it a bridge?
    pub bridge: bool,
    /// The kernel's driver that has it.
    pub driver: Option<String>,
    /// The smallest set of devices that the IOMMU can keep apart from others.
    pub group: Option<u32>,
    /// The others of its group.
    pub neighbours: Vec<Neighbour>,
    /// What the host does with it, as parts of a sentence.
    pub uses: Vec<String>,
    /// The NUMA node that it is on.
    pub node: Option<u32>,
}

/// Another device of the same IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Where it is.
    pub address: String,
    /// Is it a bridge? Those stay with the host.
    pub bridge: bool,
    /// The kernel's driver that has it.
    pub driver: Option<String>,
}

/// What the host has for handing devices over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PciHost {
    /// Groups of devices that an IOMMU keeps apart; none without one.
    pub groups: usize,
    /// Is there the driver that hands devices over (vfio-pci)?
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
