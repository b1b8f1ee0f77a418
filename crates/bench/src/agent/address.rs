//! Addresses of servers, for connecting and for listening.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Address of an end point, which also determines the transport. As text: `10.0.0.2`, `vsock:12`,
/// `vsock:any`, `ring:12`, `ring:any` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// TCP over IPv4.
    Ip(Ipv4Addr),
    /// Vsock (`AF_VSOCK`), by context ID. Servers listen on [`Address::ANY_CID`].
    Vsock(u32),
    /// Vsock whose end on this machine is attached to a queue pair (decision record 0041), by
    /// context ID. Servers listen on [`Address::ANY_CID`].
    Ring(u32),
    /// Vsock of a VM as programs of the host use it, through the Unix socket of the VM's VMCI
    /// device. A client sends `CONNECT port` there (spec row VC-2). A server listens on the same
    /// path with `_port` appended, where the VM's connections to the host arrive.
    Unix(PathBuf),
}

impl Address {
    /// Any context ID of the machine (`VMADDR_CID_ANY`).
    pub const ANY_CID: u32 = u32::MAX;
    /// Address on which vsock servers listen.
    pub const ANY_VSOCK: Self = Self::Vsock(Self::ANY_CID);

    /// The same address with the end on this machine attached to a queue pair, if it is of
    /// `AF_VSOCK`.
    #[must_use]
    pub fn attached(self) -> Self {
        match self {
            Self::Vsock(cid) => Self::Ring(cid),
            other => other,
        }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(ip: Ipv4Addr) -> Self {
        Self::Ip(ip)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || match text.split_once(':') {
            None => text.parse().ok().map(Self::Ip),
            Some(("vsock", "any")) => Some(Self::ANY_VSOCK),
            Some(("vsock", cid)) => cid.parse().ok().map(Self::Vsock),
            Some(("ring", "any")) => Some(Self::Ring(Self::ANY_CID)),
            Some(("ring", cid)) => cid.parse().ok().map(Self::Ring),
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(path.into())),
            Some(_) => None,
        };
        read().ok_or_else(|| {
            format!("`{text}` is no address: write it as 10.0.0.2, vsock:CID, vsock:any, ring:CID, ring:any or unix:PATH")
        })
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Vsock(Self::ANY_CID) => f.write_str("vsock:any"),
            Self::Vsock(cid) => write!(f, "vsock:{cid}"),
            Self::Ring(Self::ANY_CID) => f.write_str("ring:any"),
            Self::Ring(cid) => write!(f, "ring:{cid}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        for text in
            ["10.0.0.2", "vsock:2", "vsock:any", "ring:12", "ring:any", "unix:/run/taut/vms/db1/vmci.sock"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in
            ["", "db1", "10.0.0.2/24", "vsock:", "vsock:-1", "vsock:4294967296", "ring:", "unix:", "tcp:1"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
