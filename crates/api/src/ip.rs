//! IPv4 addresses with a prefix length, as documents and the command line write them.

use std::borrow::Cow;

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

/// Reads an optional field of a document.
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Ipv4Net>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?;
    text.map(|text| parse_ipv4_net(&text).map_err(D::Error::custom)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_host_bits() {
        assert_eq!(parse_ipv4_net("10.0.0.1/24").unwrap().to_string(), "10.0.0.1/24");
        for bad in ["", "10.0.0.1", "10.0.0.1/0", "10.0.0.1/33", "10.0.0/24", "::1/64"] {
            assert!(parse_ipv4_net(bad).is_err(), "{bad}");
        }
    }
}
