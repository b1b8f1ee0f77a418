//! Network I/O control: how the traffic of a vSwitch divides its uplinks while these are busy (row
//! VN-5; ESX: *Network I/O Control*, version 3).

mod text;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use utoipa::ToSchema;

pub use text::{BadAllocation, BadNetworkShares, BadTrafficClass};

use crate::text::{deserialize_number_or_text, schema_of_text};
use crate::units::BitRate;

/// Network I/O control of a vSwitch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkIo {
    /// The rules are in force.
    pub enabled: bool,
    /// Classes of traffic that differ from their defaults: `high` shares for `virtualmachine`,
    /// `normal` ones for the others, no limit, no reservation.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = std::collections::HashMap<String, NetworkAllocation>)]
    pub classes: BTreeMap<TrafficClass, NetworkAllocation>,
}

impl NetworkIo {
    /// Returns whether it is off, and no class is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Class of traffic, with ESX's names. Ports have the class of their port group.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr,
)]
pub enum TrafficClass {
    /// `management`
    Management,
    /// `faulttolerance`
    FaultTolerance,
    /// `nfs`
    Nfs,
    /// `iscsi`
    Iscsi,
    /// `vsan`
    Vsan,
    /// `vmotion`
    Vmotion,
    /// `hbr`: replication of VMs.
    Replication,
    /// `vdp`: backup.
    Backup,
    /// `virtualmachine`
    #[default]
    VirtualMachine,
}

impl TrafficClass {
    /// All classes, in ESX's order.
    pub const ALL: [Self; 9] = [
        Self::Management,
        Self::FaultTolerance,
        Self::Nfs,
        Self::Iscsi,
        Self::Vsan,
        Self::Vmotion,
        Self::Replication,
        Self::Backup,
        Self::VirtualMachine,
    ];

    /// Returns ESX's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Management => "management",
            Self::FaultTolerance => "faulttolerance",
            Self::Nfs => "nfs",
            Self::Iscsi => "iscsi",
            Self::Vsan => "vsan",
            Self::Vmotion => "vmotion",
            Self::Replication => "hbr",
            Self::Backup => "vdp",
            Self::VirtualMachine => "virtualmachine",
        }
    }

    /// Returns whether the class is that of VMs.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns what the class has unless it is set.
    pub fn default_allocation(self) -> NetworkAllocation {
        let shares = if self.is_default() { NetworkShares::High } else { NetworkShares::Normal };
        NetworkAllocation { shares, ..NetworkAllocation::default() }
    }
}

/// Part of an uplink for a class of traffic, or for a card within its class (ESX:
/// `VirtualEthernetCardResourceAllocation`). It counts for each uplink by itself, in bits on the
/// wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkAllocation {
    /// Weight in dividing what reservations leave.
    #[serde(skip_serializing_if = "NetworkShares::is_default")]
    pub shares: NetworkShares,
    /// Rate at which it may send whatever others do. All reservations together are at most 75 % of
    /// the slowest uplink.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<BitRate>,
    /// Highest rate at which it may send, at least 1 kbit/s. A limit below the reservation wins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<BitRate>,
}

impl NetworkAllocation {
    /// Lowest limit and reservation.
    pub const LEAST: BitRate = BitRate(1000);

    /// Returns whether it has normal shares and nothing else.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// When a rate is too low, or the reservation is above the limit.
    pub fn check(&self) -> Result<(), BadAllocation> {
        for (name, rate) in [("limit", self.limit), ("reservation", self.reservation)] {
            if let Some(rate) = rate.filter(|rate| *rate < Self::LEAST) {
                return Err(BadAllocation::Low { name, rate });
            }
        }
        match (self.reservation, self.limit) {
            (Some(reservation), Some(limit)) if reservation > limit => {
                Err(BadAllocation::AboveLimit { reservation, limit })
            }
            _ => Ok(()),
        }
    }
}

/// Weight of a class or card: `low`, `normal`, `high` (25, 50, 100), or a number from 1 to 100.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, SerializeDisplay)]
pub enum NetworkShares {
    /// 25.
    Low,
    /// 50.
    #[default]
    Normal,
    /// 100.
    High,
    /// A number from 1 to 100.
    Custom(u8),
}

impl NetworkShares {
    /// Largest number of shares.
    pub const MOST: u8 = 100;

    /// Returns the number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Low => 25,
            Self::Normal => 50,
            Self::High => 100,
            Self::Custom(number) => number,
        }
    }

    /// Returns whether the shares are `normal`.
    pub fn is_default(&self) -> bool {
        *self == Self::Normal
    }
}

schema_of_text!(TrafficClass, NetworkShares);
deserialize_number_or_text!(NetworkShares);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_defaults_and_the_same_words_everywhere() {
        for class in TrafficClass::ALL {
            assert_eq!(class.as_str().parse(), Ok(class));
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
        let [vms, others] =
            [TrafficClass::VirtualMachine, TrafficClass::Nfs].map(TrafficClass::default_allocation);
        assert_eq!([vms.shares.number(), others.shares.number()], [100, 50]);
        let error = "storage".parse::<TrafficClass>().unwrap_err().to_string();
        assert!(error.ends_with("iscsi, vsan, vmotion, hbr, vdp or virtualmachine"), "{error}");
    }

    #[test]
    fn a_document_names_what_differs() {
        let json =
            r#"{"enabled":true,"classes":{"nfs":{"shares":"low","limit":"1Gbit"},"vmotion":{"shares":7}}}"#;
        let read: NetworkIo = serde_json::from_str(json).unwrap();
        assert_eq!(read.classes[&TrafficClass::Nfs].limit, Some(BitRate(1_000_000_000)));
        assert_eq!(read.classes[&TrafficClass::Vmotion].shares, NetworkShares::Custom(7));
        let written = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<NetworkIo>(&written).unwrap(), read);
        for wrong in [r#"{"classes":{"web":{}}}"#, r#"{"classes":{"nfs":{"share":1}}}"#] {
            assert!(serde_json::from_str::<NetworkIo>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ranges_are_checked_with_numbers() {
        let allocation = |text: &str| text.parse::<NetworkAllocation>().unwrap();
        assert_eq!(allocation("shares=high,limit=2Gbit,reservation=1Gbit").check(), Ok(()));
        let refusal = |text| allocation(text).check().unwrap_err().to_string();
        assert_eq!(refusal("limit=999"), "limit of 999bit/s is below the lowest rate of 1kbit/s");
        assert_eq!(
            refusal("limit=1Mbit,reservation=2Mbit"),
            "reservation of 2Mbit/s is above the limit of 1Mbit/s"
        );
    }
}
