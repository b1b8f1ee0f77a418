//! Probes by which uplinks find out that they lead nowhere although their links are up (row VN-3;
//! ESX: *Network failure detection*).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::Vlan;
use crate::text::schema_of_text;

/// Probe of the uplinks of a team whose links are up.
///
/// Written as `off`, `beacon`, the address of a gateway such as `10.0.0.1` or `fe80::1`, or address
/// and VLAN such as `10.0.0.1@20`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, DeserializeFromStr, SerializeDisplay)]
pub enum PathProbe {
    /// No probe: the state of the link decides.
    #[default]
    Off,
    /// Each uplink sends a beacon a second, and listens for those of the others (ESX:
    /// `check_beacon`). It takes three uplinks: of two that do not hear each other, nobody knows
    /// which one has no path.
    Beacon,
    /// Each uplink asks a gateway once a second, by ARP or by Neighbour Discovery.
    Gateway {
        /// Address of the gateway.
        ip: IpAddr,
        /// VLAN of the gateway; 0 for none.
        vlan: u16,
    },
}

impl fmt::Display for PathProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("off"),
            Self::Beacon => f.pad("beacon"),
            Self::Gateway { ip, vlan: 0 } => ip.fmt(f),
            Self::Gateway { ip, vlan } => write!(f, "{ip}@{vlan}"),
        }
    }
}

impl FromStr for PathProbe {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORMS: &str = "write off, beacon, or the IP address of a gateway, with its VLAN if it has one: \
                             10.0.0.1@20";
        match text {
            "off" => return Ok(Self::Off),
            "beacon" => return Ok(Self::Beacon),
            _ => {}
        }
        let (ip, vlan) = text.split_once('@').unwrap_or((text, "0"));
        let ip: IpAddr = ip.parse().map_err(|_| FORMS)?;
        let vlan: u16 = vlan.parse().map_err(|_| FORMS)?;
        if vlan > Vlan::MAX {
            return Err("a VLAN has a number from 1 to 4094");
        }
        let is_special = match ip {
            IpAddr::V4(ip) => ip.is_broadcast(),
            IpAddr::V6(ip) => ip.to_ipv4_mapped().is_some(),
        };
        if is_special || ip.is_unspecified() || ip.is_multicast() || ip.is_loopback() {
            return Err("no gateway can have this address");
        }
        Ok(Self::Gateway { ip, vlan })
    }
}

schema_of_text!(PathProbe);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_read_and_written() {
        for text in ["off", "beacon", "10.0.0.1", "10.0.0.1@20", "fe80::1", "2001:db8::1@4094"] {
            let probe: PathProbe = text.parse().unwrap();
            assert_eq!(probe.to_string(), text);
            assert_eq!(serde_json::to_value(probe).unwrap(), text);
        }
        assert_eq!("10.0.0.1@0".parse(), "10.0.0.1".parse::<PathProbe>());
    }

    #[test]
    fn what_cannot_be_a_gateway_is_refused() {
        for (text, why) in [
            ("", "write off"),
            ("fe80::1%eth0", "write off"),
            ("10.0.0.1@", "write off"),
            ("10.0.0.1@4095", "from 1 to 4094"),
            ("0.0.0.0", "no gateway"),
            ("224.0.0.1", "no gateway"),
            ("127.0.0.1", "no gateway"),
            ("255.255.255.255", "no gateway"),
            ("::", "no gateway"),
            ("::1", "no gateway"),
            ("ff02::2", "no gateway"),
            ("::ffff:10.0.0.1", "no gateway"),
            ("fe80::1@4095", "from 1 to 4094"),
        ] {
            let error = text.parse::<PathProbe>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
