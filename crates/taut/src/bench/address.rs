//! Finds the address by which one end point reaches another.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use taut_bench::agent::protocol::Interface;

/// Returns the first address of `receiver` in a network that `sender` shares, on interfaces that
/// are up.
pub(super) fn shared(sender: &[Interface], receiver: &[Interface]) -> Option<Ipv4Addr> {
    let of = |interfaces: &[Interface]| -> Vec<Ipv4Net> {
        interfaces.iter().filter(|interface| interface.carrier).flat_map(|i| i.ips.iter().copied()).collect()
    };
    let from = of(sender);
    of(receiver).into_iter().find(|to| from.iter().any(|from| same_network(*from, *to))).map(|to| to.addr())
}

/// Returns whether two different addresses see each other as neighbours.
fn same_network(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.addr() != b.addr() && a.contains(&b.addr()) && b.contains(&a.addr())
}

/// Lists every address with its interface, for messages.
pub(super) fn list(interfaces: &[Interface]) -> String {
    let each = interfaces.iter().map(|interface| {
        let ips: Vec<_> = interface.ips.iter().map(ToString::to_string).collect();
        let ips = if ips.is_empty() { "no address".to_owned() } else { ips.join(" ") };
        let link = if interface.carrier { "" } else { ", down" };
        format!("{} ({ips}{link})", interface.name)
    });
    let each: Vec<_> = each.collect();
    if each.is_empty() { "no interface".to_owned() } else { each.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, carrier: bool, ips: &[&str]) -> Interface {
        Interface {
            name: name.to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            carrier,
            carrier_changes: 1,
        }
    }

    #[test]
    fn the_address_is_in_a_network_of_both() {
        let a = [interface("eth0", true, &["192.168.1.5/24"]), interface("eth1", true, &["10.0.0.1/24"])];
        let b = [interface("eth0", true, &["172.16.0.1/16", "10.0.0.2/24"])];
        assert_eq!(shared(&a, &b), Some("10.0.0.2".parse().unwrap()));
        assert_eq!(shared(&b, &a), Some("10.0.0.1".parse().unwrap()));
    }

    #[test]
    fn no_address_is_shared_across_networks_with_oneself_or_over_a_link_that_is_down() {
        let a = [interface("eth0", true, &["10.0.0.1/24"])];
        assert_eq!(shared(&a, &[interface("eth0", true, &["10.0.1.2/24"])]), None);
        assert_eq!(shared(&a, &[interface("eth0", true, &["10.0.0.1/24"])]), None);
        assert_eq!(shared(&a, &[interface("eth0", false, &["10.0.0.2/24"])]), None);
        assert_eq!(shared(&a, &[interface("eth0", true, &["10.0.0.200/28"])]), None, "it sees no neighbour");
        assert_eq!(shared(&a, &[]), None);
        let everything = [interface("eth0", true, &["1.2.3.4/0"])];
        assert_eq!(
            shared(&everything, &[interface("eth0", true, &["9.9.9.9/0"])]),
            Some("9.9.9.9".parse().unwrap())
        );
    }

    #[test]
    fn interfaces_are_named_with_their_addresses() {
        let a = [interface("eth0", true, &["10.0.0.1/24"]), interface("eth1", false, &[])];
        assert_eq!(list(&a), "eth0 (10.0.0.1/24), eth1 (no address, down)");
        assert_eq!(list(&[]), "no interface");
    }
}
