//! Announcements of IP addresses that a guest has stated, or that its document names, after its
//! uplink has lost the link.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::time::Duration;

use taut_tests::{Cable, Netns, Taut, ip};

/// A station outside.
const OUTSIDE: [u8; 6] = [2, 0, 0, 0, 0, 0x99];
/// The tag of the guest's VLAN, and the type of IPv6 behind it.
const TAGGED_IPV6: [u8; 6] = [0x81, 0, 0, 10, 0x86, 0xdd];
const TAGGED_ARP: [u8; 6] = [0x81, 0, 0, 10, 8, 6];
/// Address from the guest's document, and another one that the guest gives itself.
const IP: [u8; 4] = [10, 78, 0, 2];
const STATED: [u8; 4] = [10, 78, 0, 77];
const GLOBAL: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 5);
/// Messages of Neighbour Discovery.
const ROUTER_SOLICITATION: u8 = 133;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Time in which everything is announced.
const ANNOUNCED: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(20);

/// Returns the type and the target of a message of Neighbour Discovery in the guest's VLAN.
fn message(frame: &[u8]) -> Option<(u8, Option<Ipv6Addr>)> {
    let rest = frame.get(12..)?.strip_prefix(&TAGGED_IPV6)?;
    let target = rest.get(48..64).and_then(|target| target.try_into().ok());
    (rest.get(6..8)? == [58, 255]).then_some((*rest.get(40)?, target.map(<[u8; 16]>::into)))
}

/// The unsolicited advertisement of a station that is no router, with its tag.
fn advertisement(mac: [u8; 6], ip: Ipv6Addr) -> Vec<u8> {
    let all = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let mut message = [&[ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0][..], &ip.octets(), &[2, 1], &mac].concat();
    let pseudo = [&ip.octets()[..], &all.octets(), &[0, 0, 0, 32, 0, 0, 0, 58], &message].concat();
    let words = pseudo.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header =
        [&[0x33, 0x33, 0, 0, 0, 1][..], &mac, &TAGGED_IPV6, &[0x60, 0, 0, 0, 0, 32, 58, 255]].concat();
    [&header[..], &ip.octets(), &all.octets(), &message].concat()
}

/// The gratuitous ARP of a station, with its tag.
fn gratuitous_arp(mac: [u8; 6], ip: [u8; 4]) -> Vec<u8> {
    let header = [&[0xff; 6][..], &mac, &TAGGED_ARP, &[0, 1, 8, 0, 6, 4, 0, 1]].concat();
    let mut frame = [&header[..], &mac, &ip, &[0; 6], &ip].concat();
    frame.resize(64, 0);
    frame
}

/// The Ethernet address and the link-local address of a namespace's card.
fn addresses(guest: &Netns) -> ([u8; 6], Ipv6Addr) {
    let text = guest.run("ip", ["-j", "addr", "show", "taut0"]).stdout;
    let shown: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let mac = shown[0]["address"].as_str().unwrap();
    let octets: Vec<u8> = mac.split(':').map(|octet| u8::from_str_radix(octet, 16).unwrap()).collect();
    let all = shown[0]["addr_info"].as_array().unwrap();
    let local = all.iter().find(|address| address["scope"] == "link").unwrap();
    (octets.try_into().unwrap(), local["local"].as_str().unwrap().parse().unwrap())
}

/// Returns the addresses of the sender and of the station in question, in an ARP packet of the
/// guest's VLAN.
fn arp(frame: &[u8]) -> Option<([u8; 4], [u8; 4])> {
    let packet = frame.get(12..)?.strip_prefix(&TAGGED_ARP)?;
    Some((packet.get(14..18)?.try_into().ok()?, packet.get(24..28)?.try_into().ok()?))
}

/// A team of two uplinks of which the first one is active, and a port group with the guest's VLAN.
fn team() -> (Taut, [Cable; 2]) {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "ten", "--vswitch", "sw", "--vlan", "10"]);
    let cables = [Cable::plug(), Cable::plug()];
    for cable in &cables {
        taut.ok(["uplink", "add", "sw", &cable.card]);
    }
    taut.ok(["vswitch", "set", "sw", "--active", &cables[0].card, "--standby", &cables[1].card]);
    (taut, cables)
}

/// Takes what a cable brings for a while, and returns the frames from an address without those of
/// its Linux.
fn announced(cable: &Cable, mac: [u8; 6]) -> BTreeSet<Vec<u8>> {
    let is_announced = |frame: &[u8]| {
        let is_of_linux = message(frame).is_some_and(|(kind, _)| kind != ADVERTISEMENT);
        let is_gratuitous = arp(frame).is_some_and(|(sender, target)| sender == target);
        frame[6..12] == mac && !is_of_linux && (message(frame).is_some() || is_gratuitous)
    };
    std::iter::from_fn(|| cable.receive_if(ANNOUNCED, is_announced)).collect()
}

#[test]
fn hosts_are_told_of_addresses_that_linux_has_used_and_that_nobody_else_has_taken() {
    let (taut, cables) = team();
    let guest = Netns::attach(&taut, "in", "ten", "10.78.0.2");
    let says = |kind: u8, target: Option<Ipv6Addr>| {
        let is_said = |frame: &[u8]| {
            message(frame).is_some_and(|(is, of)| is == kind && (target == of || target.is_none()))
        };
        assert!(cables[0].receive_if(LONGEST, is_said).is_some(), "the guest says {kind}");
    };
    // By this, Linux tells that it is no router.
    says(ROUTER_SOLICITATION, None);
    let (mac, local) = addresses(&guest);
    ip(&format!("-n {} addr add {GLOBAL}/64 dev taut0", guest.name));
    says(SOLICITATION, Some(GLOBAL));

    ip(&format!("link set {} carrier off", cables[0].card));
    let expected = [gratuitous_arp(mac, IP), advertisement(mac, local), advertisement(mac, GLOBAL)];
    assert_eq!(announced(&cables[1], mac), expected.clone().into());

    // A station outside takes over the global address.
    cables[1].send(&advertisement(OUTSIDE, GLOBAL));
    std::thread::sleep(Duration::from_millis(200));
    cables[0].drain();
    ip(&format!("link set {} carrier on", cables[0].card));
    assert_eq!(announced(&cables[0], mac), expected[..2].iter().cloned().collect());
}

#[test]
fn hosts_are_told_of_an_ipv4_address_that_a_guest_has_stated_by_arp_and_still_has() {
    let (taut, cables) = team();
    let guest = Netns::attach(&taut, "in", "ten", "10.78.0.2");
    ip(&format!("-n {} addr add 10.78.0.77/24 dev taut0", guest.name));
    // Its Linux asks for the station, from the new address. Nobody answers. It asks only once: a
    // further question would state the address again after another station has taken it over.
    let once = "echo 1 > /proc/sys/net/ipv4/neigh/taut0/mcast_solicit";
    assert!(guest.run("sh", ["-c", once]).status.success(), "Linux asks once");
    guest.run("ping", ["-c", "1", "-W", "1", "-I", "10.78.0.77", "10.78.0.99"]);
    let is_question = |frame: &[u8]| arp(frame) == Some((STATED, [10, 78, 0, 99]));
    let question = cables[0].receive_if(LONGEST, is_question).expect("the guest states the address");
    let mac: [u8; 6] = question[6..12].try_into().unwrap();

    let ipv4 = |frames: BTreeSet<Vec<u8>>| -> BTreeSet<_> {
        frames.into_iter().filter(|frame| arp(frame).is_some()).collect()
    };
    let [configured, stated] = [IP, STATED].map(|ip| gratuitous_arp(mac, ip));
    ip(&format!("link set {} carrier off", cables[0].card));
    assert_eq!(ipv4(announced(&cables[1], mac)), [configured.clone(), stated].into());

    // A station outside takes over both. The one from the document stays the guest's.
    for taken in [IP, STATED] {
        cables[1].send(&gratuitous_arp(OUTSIDE, taken));
    }
    std::thread::sleep(Duration::from_millis(200));
    cables[0].drain();
    ip(&format!("link set {} carrier on", cables[0].card));
    assert_eq!(ipv4(announced(&cables[0], mac)), [configured].into());
}
