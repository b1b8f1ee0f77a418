//! Cells of the page. Cells that are compared follow each other, so that the machine's state
//! changes little in between.

use crate::lab::Lab;
use crate::lab::rig::{Cell, Flows, Generator, PortGroup, Switch};
use crate::rival::Rival;

const KINDS: [&str; 7] = [
    "one-way 64",
    "one-way 256",
    "one-way 1518",
    "both-ways 64",
    "traversal 64",
    "one-way 64 --packed",
    "traversal 64 --packed",
];
const FLOWS: [&str; 3] = [
    "one-way 64 --prepared 65536",
    "one-way 64 --prepared 65536 --flows 1024 --macs 100",
    "one-way 64 --prepared 65536 --flows 65536 --macs 100",
];
const OFFLOAD: &str = "one-way 65549 --entries 64 --memcpy";
const FOREIGN: [&str; 3] = ["one-way 64", "one-way 256", "one-way 1518"];
const BRIDGE: [&str; 2] = ["one-way 64", "one-way 1518"];

/// Returns the cells that can be measured with the rivals and generators that are there.
pub(super) fn cells(lab: &mut Lab) -> Vec<Cell> {
    let mut rivals = vec![Switch::taut()];
    if lab.rival(Rival::OvsDpdk).is_ok() {
        rivals.extend([Switch::OVS, Switch::Ovs(Flows::Fixed)]);
    }
    if lab.rival(Rival::DpdkTestpmd).is_ok() {
        rivals.push(Switch::Vhost);
    }
    let mut cells = Vec::new();
    let mut add =
        |switch: &Switch, generator, load| cells.push(Cell::new("", switch.clone(), generator, load));
    for load in KINDS {
        for switch in &rivals {
            add(switch, Generator::Taut, load);
        }
    }
    for load in FLOWS {
        add(&Switch::on(PortGroup::Learning), Generator::Taut, load);
        rivals.iter().filter(|rival| **rival == Switch::OVS).for_each(|ovs| add(ovs, Generator::Taut, load));
    }
    add(&Switch::on(PortGroup::Offload), Generator::Taut, OFFLOAD);
    // Generators that were not written with taut confirm the figures, where they are there.
    for generator in [Generator::Lgen, Generator::Vgen] {
        if lab.rival(Rival::Generator(generator.name())).is_err() {
            continue;
        }
        for load in FOREIGN {
            for switch in &rivals {
                add(switch, generator, load);
            }
        }
        if generator == Generator::Vgen {
            for load in BRIDGE {
                add(&Switch::Bridge, generator, load);
            }
        }
    }
    cells
}
