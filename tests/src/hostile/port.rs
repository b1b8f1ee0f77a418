//! The ports under attack.

use std::path::{Path, PathBuf};

use crate::Taut;

/// Port group of the shaped port.
const SLOW: &str = "slow";
/// Rate of the shaped port, in both directions: a frame of full size every twelve seconds.
const SHAPE: &str = "average=1Kbit,peak=1Kbit,burst=2KiB";

/// A port under attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Port {
    /// A port as users attach it.
    Plain,
    /// A port that admits memory without seals.
    Trusted,
    /// A port that is slowly shaped in both directions.
    Shaped,
}

impl Port {
    /// All of them.
    pub(super) const ALL: [Self; 3] = [Self::Plain, Self::Trusted, Self::Shaped];

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "hostile",
            Self::Trusted => "trusted",
            Self::Shaped => "shaped",
        }
    }

    /// Its Ethernet address.
    pub(super) fn mac(self) -> [u8; 6] {
        let last = match self {
            Self::Plain => 0x66,
            Self::Trusted => 0x67,
            Self::Shaped => 0x68,
        };
        [2, 0x66, 0, 0, 0, last]
    }

    /// Path of its socket.
    pub(super) fn socket(self, taut: &Taut) -> PathBuf {
        socket(taut.dir(), self.name())
    }

    /// Creates the port group that not all ports share.
    pub(super) fn create_groups(taut: &Taut) {
        let shape = ["--to-switch", SHAPE, "--to-guest", SHAPE];
        taut.ok(["portgroup", "create", SLOW, "--vswitch", "sw"].into_iter().chain(shape));
    }

    /// Attaches it.
    pub(super) fn attach(self, taut: &Taut) {
        let (group, option) = match self {
            Self::Plain => ("lan", None),
            Self::Trusted => ("lan", Some("--trusted")),
            Self::Shaped => (SLOW, None),
        };
        attach(taut, self.name(), group, self.mac(), option);
    }
}

/// Attaches a port on whose socket taut listens.
pub(super) fn attach(taut: &Taut, name: &str, group: &str, mac: [u8; 6], option: Option<&str>) {
    let socket = socket(taut.dir(), name);
    let socket = socket.to_str().expect("a temporary path is text");
    let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
    let words = ["port", "attach", name, "--portgroup", group, "--mac", &mac, "--path", socket];
    taut.ok(words.into_iter().chain(["--listen", "--offloads"]).chain(option));
}

/// Returns the path of a port's socket.
pub(super) fn socket(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.sock"))
}
