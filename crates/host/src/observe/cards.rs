//! Network cards as the kernel and their drivers describe them (row VN-6).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use taut_api::link::Link;
use taut_api::pnic::{LinkMode, Offload, ParameterGroup, PnicFacts};
use taut_api::{MacAddr, Name};

use crate::kernel::cards::virtual_functions;
use crate::kernel::netlink::ethtool::link::LinkSettings;
use crate::kernel::netlink::ethtool::{features, link};
use crate::kernel::netlink::{Ethtool, Links};
use crate::kernel::tree::Tree;

/// Folder of all interfaces, below the root.
const FOLDER: &str = "sys/class/net";

/// Returns the names of the interfaces that have a device: physical cards, and those that a VM is
/// given in their place.
pub fn physical() -> Vec<Name> {
    let tree = Tree(Path::new("/"));
    let names = tree.names(FOLDER).into_iter().filter_map(|name| name.parse::<Name>().ok());
    names.filter(|name| tree.0.join(FOLDER).join(name.as_str()).join("device").exists()).collect()
}

/// Returns what is known of an interface; none if there is none of this name. What its driver does
/// not tell is left out, and so is what cannot be read now.
pub fn facts(name: &Name) -> io::Result<Option<PnicFacts>> {
    Ok(look(name)?.map(|(facts, _)| facts))
}

/// Returns the same, but an error if anything of it cannot be read now.
pub fn complete_facts(name: &Name) -> io::Result<Option<PnicFacts>> {
    let Some((facts, told)) = look(name)? else { return Ok(None) };
    told.map(|()| Some(facts))
}

/// Returns what is known of an interface, and whether its driver told everything.
fn look(name: &Name) -> io::Result<Option<(PnicFacts, io::Result<()>)>> {
    let Some(interface) = Links::open()?.interface(name.as_str())? else { return Ok(None) };
    if interface.name != name.as_str() {
        // An alternative name.
        return Ok(None);
    }
    let tree = Tree(Path::new("/"));
    let device = std::fs::read_link(tree.0.join(FOLDER).join(name.as_str()).join("device/driver"));
    let driver = device.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let mut facts = PnicFacts {
        driver: driver.or(interface.kind),
        mac: interface.mac.map(MacAddr),
        mtu: interface.mtu,
        link: if interface.has_carrier { Link::Up } else { Link::Down },
        statistics: statistics(tree, name),
        ..PnicFacts::default()
    };
    let told = ask_driver(interface.index, &mut facts);
    let functions = virtual_functions::parameters(tree.0, name.as_str());
    let told = told.and(functions.map(|found| facts.parameters.extend(found)));
    facts.virtual_functions = virtual_functions::addresses(tree.0, name.as_str());
    Ok(Some((facts, told)))
}

/// Adds what the driver of an interface tells. Returns the first error, after everything else was
/// asked for.
fn ask_driver(index: u32, facts: &mut PnicFacts) -> io::Result<()> {
    // Kernels before 5.6, and some sandboxes, lack the family.
    let mut ethtool = Ethtool::open()?;
    let mut told = Ok(());
    match ethtool.link(index) {
        Ok(Some(found)) => note_link(&found, facts),
        Ok(None) => {}
        Err(error) => told = Err(error),
    }
    for group in ParameterGroup::ALL {
        match ethtool.parameters(index, group) {
            Ok(found) => facts.parameters.extend(found),
            Err(error) => told = told.and(Err(error)),
        }
    }
    match ethtool.features(index) {
        Ok(found) => {
            let state = |offload| Some((offload, features::offload(&found, offload)?));
            facts.offloads = Offload::ALL.into_iter().filter_map(state).collect();
        }
        Err(error) => told = told.and(Err(error)),
    }
    told
}

fn note_link(found: &LinkSettings, facts: &mut PnicFacts) {
    facts.autoneg = Some(found.autoneg);
    let is_up = facts.link == Link::Up;
    facts.speed_mbit = found.speed_mbit.filter(|_| is_up);
    facts.duplex = found.duplex.filter(|_| is_up);
    facts.modes = found.modes.keys().filter_map(|name| link::mode(name)).collect();
    facts.modes.sort_unstable();
    facts.modes.dedup_by_key(|mode: &mut LinkMode| (mode.speed_mbit, mode.duplex));
}

/// Reads the kernel's counters of an interface.
fn statistics(tree: Tree<'_>, name: &Name) -> BTreeMap<String, u64> {
    let folder = format!("{FOLDER}/{name}/statistics");
    let counters = tree.names(&folder).into_iter();
    counters
        .filter_map(|counter| Some((counter.clone(), tree.number(&format!("{folder}/{counter}"))?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_s_loopback_is_an_interface_and_no_card() {
        let name: Name = "lo".parse().unwrap();
        let facts = facts(&name).unwrap().unwrap();
        assert_eq!((facts.mac, facts.statistics.contains_key("rx_bytes")), (None, true));
        assert!(!physical().contains(&name));
        assert_eq!(super::facts(&"taut-absent".parse().unwrap()).unwrap(), None);
    }
}
