//! IPv4 addresses with a prefix length, as documents and the command line write them, and gateways.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Deserializer, de::Error};

/// Why a text is not an IPv4 address with a prefix length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an IPv4 address with a prefix length: write it as 10.0.0.1/24")]
pub struct BadIpv4Net(pub String);

/// Reads an address with a prefix length of 1 to 32. Host bits are kept: `10.0.0.1/24` is the
/// address of an interface in its network.
///
/// # Errors
/// [`BadIpv4Net`] if the text is anything else.
pub fn parse_ipv4_net(text: &str) -> Result<Ipv4Net, BadIpv4Net> {
    let net = text.parse().ok().filter(|net: &Ipv4Net| net.prefix_len() > 0);
    net.ok_or_else(|| BadIpv4Net(text.to_owned()))
}

/// Why an address cannot be the gateway of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadGateway {
    /// The interface has no address.
    #[error("the gateway {0} belongs to an interface without an address")]
    WithoutAddress(Ipv4Addr),
    /// The gateway is outside the interface's network, or not a machine's address in it, or the
    /// interface's own.
    #[error("the gateway {0} is no other machine in the network of {1}")]
    Elsewhere(Ipv4Addr, Ipv4Net),
}

impl BadGateway {
    /// Advice for the user.
    pub const HINT: &str =
        "name a router in the network of `ip`, such as 10.0.0.254 for 10.0.0.1/24, or leave `gateway` out";
}

/// Checks the gateway of an interface with the address `ip`.
///
/// # Errors
/// [`BadGateway`] if the gateway is not another machine in the interface's network.
pub fn check_gateway(ip: Option<Ipv4Net>, gateway: Option<Ipv4Addr>) -> Result<(), BadGateway> {
    let Some(gateway) = gateway else { return Ok(()) };
    let ip = ip.ok_or(BadGateway::WithoutAddress(gateway))?;
    // Networks of one or two addresses have neither a network's nor a broadcast address.
    let is_special = ip.prefix_len() < 31 && [ip.network(), ip.broadcast()].contains(&gateway);
    if ip.contains(&gateway) && gateway != ip.addr() && !is_special {
        return Ok(());
    }
    Err(BadGateway::Elsewhere(gateway, ip))
}

/// Reads an optional field of a document.
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ipv4Net>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?;
    text.map(|text| parse_ipv4_net(&text).map_err(D::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_hour_a_gateway_is_another_machine_in_the_network() {
        let check = |ip: &str, gateway: &str| {
            let ip = Some(ip).filter(|ip| !ip.is_empty()).map(|ip| ip.parse().unwrap());
            check_gateway(ip, Some(gateway.parse().unwrap()))
        };
        assert_eq!(check_gateway(None, None), Ok(()));
        assert_eq!(check("10.0.0.1/24", "10.0.0.254"), Ok(()));
        assert_eq!(check("10.0.0.0/31", "10.0.0.1"), Ok(()));
        for bad in ["10.0.0.1", "10.0.1.1", "10.0.0.0", "10.0.0.255"] {
            let error = check("10.0.0.1/24", bad).unwrap_err().to_string();
            assert_eq!(error, format!("the gateway {bad} is no other machine in the network of 10.0.0.1/24"));
        }
        assert_eq!(check("", "10.0.0.1"), Err(BadGateway::WithoutAddress(Ipv4Addr::new(10, 0, 0, 1))));
    }

    #[test]
    fn addresses_keep_their_host_bits() {
        assert_eq!(parse_ipv4_net("10.0.0.1/24").unwrap().to_string(), "10.0.0.1/24");
        for bad in ["", "10.0.0.1", "10.0.0.1/0", "10.0.0.1/33", "10.0.0/24", "::1/64"] {
            assert!(parse_ipv4_net(bad).is_err(), "{bad}");
        }
    }
}
