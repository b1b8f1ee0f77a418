//! Network cards: which there are, and their settings.

#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod virtual_functions;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use taut_api::pnic::{ParameterGroup, PnicParameter};

use super::netlink::ethtool::features::Features;
use super::netlink::ethtool::link::LinkSettings;
pub(crate) use super::netlink::ethtool::parameters::Parameters;
use super::netlink::{Ethtool, Interface, Links};

/// Facts of an interface that the kernel knows without its driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Presence {
    /// Number of the interface, which it has for its life.
    pub(crate) index: u32,
    /// True if the interface is set up.
    pub(crate) is_up: bool,
    /// True if there is a carrier.
    pub(crate) has_carrier: bool,
}

/// Access to the network cards of a host, by the numbers of their interfaces. [`SystemCards`] asks
/// the kernel; tests have cards of their own.
pub(crate) trait Cards: fmt::Debug {
    /// Returns the interface that has this name; none if there is none. An alternative name finds
    /// nothing.
    fn presence(&mut self, name: &str) -> io::Result<Option<Presence>>;

    /// Returns the present name of the interface with this number.
    fn name(&mut self, index: u32) -> io::Result<Option<String>>;

    /// Reads speed, duplex mode and autonegotiation; none if the driver has no such settings.
    fn link(&mut self, index: u32) -> io::Result<Option<LinkSettings>>;

    /// Changes these. What is none or empty stays as it is.
    fn set_link(&mut self, index: u32, link: &LinkSettings) -> io::Result<()>;

    /// Reads those parameters of a group that the card has.
    fn parameters(&mut self, index: u32, group: ParameterGroup) -> io::Result<Parameters>;

    /// Changes parameters of a group, all or none.
    fn set_parameters(
        &mut self,
        index: u32,
        group: ParameterGroup,
        values: &BTreeMap<PnicParameter, u32>,
    ) -> io::Result<()>;

    /// Reads the features.
    fn features(&mut self, index: u32) -> io::Result<Features>;

    /// Asks for features to be on or off.
    fn set_features(&mut self, index: u32, wanted: &BTreeMap<String, bool>) -> io::Result<()>;
}

/// The cards of the running host, in the network namespace of the thread that uses this first.
pub(crate) struct SystemCards {
    root: PathBuf,
    sockets: Option<(Links, Ethtool)>,
}

impl SystemCards {
    /// Returns the cards of the host whose file system starts at `root`. Only `/` has any: the
    /// kernel of another tree does not run.
    pub(crate) fn of(root: &Path) -> Self {
        Self { root: root.to_owned(), sockets: None }
    }

    fn sockets(&mut self) -> io::Result<&mut (Links, Ethtool)> {
        if self.root != Path::new("/") {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!("the cards of {} are not those of the running kernel", self.root.display()),
            ));
        }
        match &mut self.sockets {
            Some(sockets) => Ok(sockets),
            none => Ok(none.insert((Links::open()?, Ethtool::open()?))),
        }
    }

    fn links(&mut self) -> io::Result<&mut Links> {
        self.sockets().map(|(links, _)| links)
    }

    fn ethtool(&mut self) -> io::Result<&mut Ethtool> {
        self.sockets().map(|(_, ethtool)| ethtool)
    }

    /// Returns the name that the interface with this number must have.
    fn present_name(&mut self, index: u32) -> io::Result<String> {
        self.name(index)?.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl fmt::Debug for SystemCards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemCards").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Cards for SystemCards {
    fn presence(&mut self, name: &str) -> io::Result<Option<Presence>> {
        let found = self.links()?.interface(name)?.filter(|interface| interface.name == name);
        Ok(found.map(|Interface { index, is_up, has_carrier, .. }| Presence { index, is_up, has_carrier }))
    }

    fn name(&mut self, index: u32) -> io::Result<Option<String>> {
        Ok(self.links()?.interface_by_index(index)?.map(|interface| interface.name))
    }

    fn link(&mut self, index: u32) -> io::Result<Option<LinkSettings>> {
        self.ethtool()?.link(index)
    }

    fn set_link(&mut self, index: u32, link: &LinkSettings) -> io::Result<()> {
        self.ethtool()?.set_link(index, link)
    }

    fn parameters(&mut self, index: u32, group: ParameterGroup) -> io::Result<Parameters> {
        match group {
            ParameterGroup::VirtualFunctions => {
                let name = self.present_name(index)?;
                virtual_functions::parameters(&self.root, &name)
            }
            _ => self.ethtool()?.parameters(index, group),
        }
    }

    fn set_parameters(
        &mut self,
        index: u32,
        group: ParameterGroup,
        values: &BTreeMap<PnicParameter, u32>,
    ) -> io::Result<()> {
        match group {
            ParameterGroup::VirtualFunctions => {
                let name = self.present_name(index)?;
                values.values().try_for_each(|number| virtual_functions::set(&self.root, &name, *number))
            }
            _ => self.ethtool()?.set_parameters(index, group, values),
        }
    }

    fn features(&mut self, index: u32) -> io::Result<Features> {
        self.ethtool()?.features(index)
    }

    fn set_features(&mut self, index: u32, wanted: &BTreeMap<String, bool>) -> io::Result<()> {
        self.ethtool()?.set_features(index, wanted)
    }
}
