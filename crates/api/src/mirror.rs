//! Port mirroring: copies of the frames of some ports for another port (ESX: *Port mirroring*).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Name;
use crate::direction::Directions;

/// A mirroring session of a vSwitch: one port gets copies of the frames of others, whatever their
/// addresses and VLANs. A port of the session that does not exist, or is on another vSwitch, takes
/// no part until it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Mirror {
    /// Owners of the ports whose frames are copied, such as `vm/web1/nic0`; 1 to 64.
    pub sources: Vec<String>,
    /// Owner of the port that gets the copies. It is no uplink.
    pub destination: String,
    /// Frames that are copied: those that the sources send (`tx`), receive (`rx`), or `both`.
    #[serde(default, skip_serializing_if = "Directions::is_default")]
    pub direction: Directions,
}

/// Why a mirroring session cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMirror {
    /// There are no sources, or too many.
    #[error("{0} sources are not between 1 and {most}", most = Mirror::MOST_SOURCES)]
    Sources(usize),
    /// A text is no owner of a port.
    #[error(
        "`{0}` is no owner of a port: write vm/NAME/nic0, netns/NAME, external/NAME, netdev/NAME or uplink/NAME"
    )]
    Owner(String),
    /// A port is named twice.
    #[error("{0} is named twice")]
    Twice(String),
    /// Copies would leave the host.
    #[error("{0} is an uplink, which gets no copies")]
    Uplink(String),
    /// The text has another form.
    #[error(
        "`{0}` is no mirroring session: write from=PORT,to=PORT, with more from=PORT and with direction=tx or rx"
    )]
    Form(String),
}

impl Mirror {
    /// Largest number of sources.
    pub const MOST_SOURCES: usize = 64;

    /// Checks the session in itself.
    ///
    /// # Errors
    /// If it can never do what it says.
    pub fn check(&self) -> Result<(), BadMirror> {
        if !(1..=Self::MOST_SOURCES).contains(&self.sources.len()) {
            return Err(BadMirror::Sources(self.sources.len()));
        }
        let all: Vec<&String> = self.sources.iter().chain([&self.destination]).collect();
        for (at, owner) in all.iter().enumerate() {
            if !is_owner(owner) {
                return Err(BadMirror::Owner((*owner).clone()));
            }
            if all[..at].contains(owner) {
                return Err(BadMirror::Twice((*owner).clone()));
            }
        }
        if self.destination.starts_with("uplink/") {
            return Err(BadMirror::Uplink(self.destination.clone()));
        }
        Ok(())
    }
}

fn is_owner(text: &str) -> bool {
    let is_name = |name: &str| name.parse::<Name>().is_ok();
    match text.split('/').collect::<Vec<_>>()[..] {
        ["vm", name, card] => {
            is_name(name) && card.strip_prefix("nic").is_some_and(|number| number.parse::<u16>().is_ok())
        }
        ["netns" | "external" | "netdev" | "uplink", name] => is_name(name),
        _ => false,
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for source in &self.sources {
            write!(f, "from={source},")?;
        }
        write!(f, "to={}", self.destination)?;
        if self.direction.is_default() { Ok(()) } else { write!(f, ",direction={}", self.direction) }
    }
}

impl FromStr for Mirror {
    type Err = BadMirror;

    fn from_str(text: &str) -> Result<Self, BadMirror> {
        let bad = || BadMirror::Form(text.to_owned());
        let mut mirror =
            Self { sources: Vec::new(), destination: String::new(), direction: Directions::default() };
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(bad)?;
            match name.trim() {
                "from" => mirror.sources.push(value.to_owned()),
                "to" if mirror.destination.is_empty() => value.clone_into(&mut mirror.destination),
                "direction" => mirror.direction = value.parse().map_err(|_| bad())?,
                _ => return Err(bad()),
            }
        }
        if mirror.sources.is_empty() || mirror.destination.is_empty() {
            return Err(bad());
        }
        mirror.check()?;
        Ok(mirror)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_read_as_it_is_written() {
        for text in [
            "from=vm/web1/nic0,to=netns/ids",
            "from=uplink/eth1,from=external/gen,to=vm/ids/nic10,direction=rx",
            "from=netdev/vnet0,to=external/ids,direction=tx",
        ] {
            let mirror: Mirror = text.parse().unwrap();
            assert_eq!(mirror.to_string(), text);
            let json = serde_json::to_string(&mirror).unwrap();
            assert_eq!(serde_json::from_str::<Mirror>(&json).unwrap(), mirror);
        }
    }

    #[test]
    fn sessions_that_cannot_be_are_refused_with_the_reason() {
        let refusal = |text: &str| text.parse::<Mirror>().unwrap_err().to_string();
        for form in ["", "to=netns/a", "from=netns/a", "from=netns/a,to=netns/b,to=netns/c", "port=netns/a"] {
            assert!(refusal(form).contains("no mirroring session"), "{form}");
        }
        assert!(refusal("from=web1,to=netns/a").starts_with("`web1` is no owner of a port"));
        assert!(refusal("from=vm/web1/vmci,to=netns/a").starts_with("`vm/web1/vmci` is no owner"));
        assert_eq!(refusal("from=netns/a,to=netns/a"), "netns/a is named twice");
        assert_eq!(refusal("from=netns/a,to=uplink/eth1"), "uplink/eth1 is an uplink, which gets no copies");
        let many: Vec<_> = (0..65).map(|number| format!("from=netns/n{number},")).collect();
        assert_eq!(refusal(&(many.concat() + "to=netns/a")), "65 sources are not between 1 and 64");
    }
}
