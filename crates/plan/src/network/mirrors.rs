//! Port mirroring: the ports that get copies of a port's frames.

use taut_api::fabric::config::{PortConfig, PortMirror};

use crate::facts::Desired;

/// Adds the mirroring sessions of all vSwitches to the ports whose frames are copied.
pub fn configure_mirrors(desired: &Desired, ports: &mut [PortConfig]) {
    for (name, vswitch) in &desired.vswitches {
        let Some(segment) = desired.numbers.segment(name) else { continue };
        for mirror in vswitch.mirrors.values() {
            let find = |owner: &String| {
                ports.iter().position(|port| port.segment == segment && port.owner == *owner)
            };
            let Some(to) = find(&mirror.destination).map(|at| ports[at].id) else { continue };
            let sources: Vec<usize> = mirror.sources.iter().filter_map(find).collect();
            for at in sources {
                ports[at].mirrors.push(PortMirror { to, directions: mirror.direction });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use taut_api::MacAddr;
    use taut_api::direction::Directions;
    use taut_api::fabric::PortId;
    use taut_api::fabric::config::{PortKind, SegmentId};
    use taut_api::network::VSwitchSpec;

    use super::*;

    #[test]
    fn ports_of_the_vswitch_that_exist_take_part() {
        let mirror = "from=netns/a,from=netns/gone,from=netns/far,to=netns/b,direction=rx".parse().unwrap();
        let mut prod = VSwitchSpec::default();
        prod.mirrors.insert("ids".parse().unwrap(), mirror);
        let mut desired = Desired::default();
        desired.vswitches.insert("prod".parse().unwrap(), prod);
        desired.numbers.segments.insert("prod".to_owned(), 3);
        let (here, elsewhere) = (SegmentId(3), SegmentId(4));
        let port = |id, owner: &str, segment| {
            let kind = PortKind::Tap { offloads: true };
            PortConfig::new(PortId(id), owner.to_owned(), kind, segment, MacAddr([2, 0, 0, 0, 0, id as u8]))
        };
        let mut ports = [port(4, "netns/a", here), port(5, "netns/b", here), port(6, "netns/far", elsewhere)];
        configure_mirrors(&desired, &mut ports);
        let expected = PortMirror { to: PortId(5), directions: Directions::Rx };
        assert_eq!(ports[0].mirrors, [expected]);
        assert!(ports[1].mirrors.is_empty() && ports[2].mirrors.is_empty());
        let mut without = [port(4, "netns/a", here)];
        configure_mirrors(&desired, &mut without);
        assert!(without[0].mirrors.is_empty(), "the destination is not there");
    }
}
