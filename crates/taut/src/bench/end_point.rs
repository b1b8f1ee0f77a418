//! End points as the command line names them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use taut_api::Name;

/// An end point of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EndPoint {
    /// A VM or microguest: `NAME` or `vm/NAME`.
    Vm(Name),
    /// A network namespace: `netns/NAME`.
    Netns(String),
    /// The host's own network: `host`.
    Host,
    /// A running agent on a Unix socket: `agent:PATH`.
    Agent(PathBuf),
}

impl FromStr for EndPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("agent:") {
            return if path.is_empty() {
                Err("agent: is followed by the path of a Unix socket".to_owned())
            } else {
                Ok(Self::Agent(path.into()))
            };
        }
        match text.split_once('/') {
            None if text == "host" => Ok(Self::Host),
            None => text.parse().map(Self::Vm).map_err(|error| error.to_string()),
            Some(("vm", name)) => name.parse().map(Self::Vm).map_err(|error| error.to_string()),
            Some(("netns", name))
                if !name.is_empty() && !name.contains('/') && name != "." && name != ".." =>
            {
                Ok(Self::Netns(name.to_owned()))
            }
            Some(_) => Err("write it as NAME, vm/NAME, netns/NAMESPACE, host or agent:SOCKET".to_owned()),
        }
    }
}

impl fmt::Display for EndPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vm(name) => name.fmt(f),
            Self::Netns(name) => write!(f, "netns/{name}"),
            Self::Host => f.write_str("host"),
            Self::Agent(path) => write!(f, "agent:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_points_are_read_and_written() {
        for text in ["db1", "host", "netns/probe", "agent:/run/x/a.sock"] {
            assert_eq!(text.parse::<EndPoint>().unwrap().to_string(), text);
        }
        assert_eq!("vm/db1".parse::<EndPoint>(), "db1".parse());
        assert_eq!("vm/host".parse::<EndPoint>().unwrap(), EndPoint::Vm("host".parse().unwrap()));
    }

    #[test]
    fn invalid_end_points_are_refused() {
        for text in ["", "agent:", "netns/", "netns/a/b", "netns/..", "tap/x", "vm/", "a b"] {
            assert!(text.parse::<EndPoint>().is_err(), "{text}");
        }
    }
}
