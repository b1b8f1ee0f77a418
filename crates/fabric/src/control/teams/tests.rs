//! Tests of teams with links, traffic and a clock of their own.

use std::cell::RefCell;
use std::net::IpAddr;

use taut_api::fabric::config::{PortConfig, TeamConfig};
use taut_api::teaming::TeamPolicy;
use taut_api::{MacAddr, PathProbe};
use taut_uplink::team::{Statement, Uplink, address_key};

use super::*;

/// Ports 0 and 1 are uplinks; ports 10 to 13 use the team with this number.
struct Rig {
    teams: Teams,
    config: FabricConfig,
    seen: Seen,
    start: Instant,
}

/// View of the teams that a test sets.
#[derive(Default)]
struct Seen {
    links: [Option<bool>; 2],
    /// Numbers of the starts of ports; 1 for those that are not listed.
    starts: BTreeMap<PortId, Option<u32>>,
    proofs: RefCell<BTreeMap<PortId, BTreeSet<Proof>>>,
    used: BTreeMap<PortId, WireBytes>,
}

impl Sight for Seen {
    fn has_link(&self, uplink: PortId) -> Option<bool> {
        self.links[usize::from(uplink.0)]
    }

    fn first_start(&self, port: PortId) -> Option<u32> {
        self.starts.get(&port).copied().unwrap_or(Some(1))
    }

    fn proofs(&self, uplink: PortId) -> BTreeSet<Proof> {
        self.proofs.borrow_mut().remove(&uplink).unwrap_or_default()
    }

    fn used(&self, port: PortId) -> WireBytes {
        self.used.get(&port).copied().unwrap_or_default()
    }
}

fn port(id: u16, kind: PortKind, team: Option<u16>) -> PortConfig {
    PortConfig {
        team,
        ..PortConfig::new(
            PortId(id),
            String::new(),
            kind,
            SegmentId(1),
            MacAddr([2, 0, 0, 0, 1, id as u8 / 2]),
        )
    }
}

fn team(policy: TeamPolicy, active: &[u16], standby: &[u16]) -> TeamConfig {
    let ports = |ids: &[u16]| ids.iter().map(|id| PortId(*id)).collect();
    TeamConfig {
        segment: SegmentId(1),
        policy,
        active: ports(active),
        standby: ports(standby),
        failback: true,
        notify_switches: true,
        probe: PathProbe::Off,
    }
}

impl Rig {
    fn new(team: TeamConfig) -> Self {
        let uplinks = [0, 1].map(|id| port(id, PortKind::Uplink, None));
        let ports = (10..14).map(|id| port(id, PortKind::Stream, Some(0)));
        let ports = uplinks.into_iter().chain(ports).collect();
        let config = FabricConfig { ports, teams: vec![team], ..FabricConfig::default() };
        let seen = Seen { links: [Some(true); 2], ..Seen::default() };
        let mut rig = Self { teams: Teams::default(), config, seen, start: Instant::now() };
        rig.configure(0);
        rig
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    fn configure(&mut self, ms: u64) {
        let now = self.at(ms);
        self.teams.configure(&self.config, |_| true, now);
    }

    fn look(&mut self, ms: u64) -> bool {
        let now = self.at(ms);
        self.teams.look(&self.seen, now)
    }

    /// Uplink of each port, as the switch gets it.
    fn uplinks(&self) -> Vec<Option<u8>> {
        let outside = &self.teams.outsides()[&SegmentId(1)];
        outside.ways.values().map(|way| way.path.uplink().map(Uplink::number)).collect()
    }

    fn announced(&mut self, ms: u64) -> Vec<(u16, u16)> {
        let now = self.at(ms);
        let all = self.teams.announce(now).into_iter();
        all.filter(|all| all.subject == Subject::Port).map(|all| (all.port.0, all.uplink.0)).collect()
    }

    /// Has a port state an address in VLAN 7.
    fn state(&self, port: Option<u16>, ip: &str, is_router: Option<bool>) {
        let ip = Some(ip.parse().unwrap());
        let heard = self.teams.outsides()[&SegmentId(1)].heard.clone();
        heard.hear(port.map(PortId), 7, &Statement { mac: [2; 6], ip, is_router });
    }

    /// Addresses that are announced in the next bursts, from `ms` on.
    fn announced_ips(&mut self, ms: u64) -> Vec<(u16, u16, String)> {
        let mut announced = Vec::new();
        for ms in (ms..).step_by(10).take(10) {
            let now = self.at(ms);
            for Announcement { port, uplink, subject } in self.teams.announce(now) {
                if let Subject::Ip { vlan, ip, stated_from, is_router } = subject {
                    let from = if stated_from.is_some() { "stated" } else { "configured" };
                    announced.push((port.0, uplink.0, format!("{ip}@{vlan} {from} {is_router:?}")));
                }
            }
        }
        announced
    }
}

#[test]
fn ports_change_their_uplink_with_the_links_and_are_announced() {
    let mut rig = Rig::new(team(TeamPolicy::PortId, &[0, 1], &[]));
    assert_eq!(rig.uplinks(), [0, 1, 0, 1].map(Some));
    assert!(!rig.look(1));
    assert_eq!(rig.announced(1), [(10, 0), (11, 1), (12, 0), (13, 1)], "they begin to receive");
    rig.seen.links[0] = Some(false);
    assert!(rig.look(30));
    assert_eq!(rig.uplinks(), [1; 4].map(Some));
    assert_eq!(rig.announced(30), [(10, 1), (12, 1)]);
    rig.seen.links[0] = None;
    assert!(!rig.look(60), "what is not known changes nothing");
    rig.seen.links[1] = Some(false);
    assert!(rig.look(90));
    assert_eq!(rig.uplinks(), [None; 4]);
}

#[test]
fn addresses_are_announced_at_the_next_uplink_behind_ports() {
    let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[1]));
    rig.config.ports[5].ip = Some([10, 0, 0, 13].into());
    rig.configure(0);
    rig.look(1);
    assert_eq!(rig.announced(1).len(), 4);
    let configured = (13, 0, "10.0.0.13@0 configured None".to_owned());
    assert_eq!(rig.announced_ips(11), std::slice::from_ref(&configured));
    rig.state(Some(10), "10.0.0.10", None);
    rig.state(Some(10), "fd00::10", Some(false));
    rig.state(Some(11), "fd00::11", None);
    rig.state(Some(12), "fd00::12", Some(true));
    rig.state(None, "fd00::11", None);
    rig.seen.links[0] = Some(false);
    rig.look(1000);
    assert_eq!(rig.announced(1000), [(10, 1), (11, 1), (12, 1), (13, 1)]);
    // Another station takes an address before its turn comes.
    rig.state(None, "10.0.0.10", None);
    let expected = [
        (10, "fd00::10@7 stated Some(false)"),
        (12, "fd00::12@7 stated Some(true)"),
        (13, "10.0.0.13@0 configured None"),
    ];
    let expected = expected.map(|(port, text)| (port, 1, text.to_owned()));
    assert_eq!(rig.announced_ips(1010), expected);
    // Without any uplink nobody hears who takes an address.
    rig.seen.links[1] = Some(false);
    rig.look(2000);
    rig.state(Some(12), "fd00::99", None);
    rig.seen.links[1] = Some(true);
    rig.look(3000);
    rig.look(3200);
    assert_eq!(rig.announced(3200).len(), 4);
    assert_eq!(rig.announced_ips(3210), [(13, 1, configured.2)]);
}

#[test]
fn a_port_that_has_gone_is_not_announced_with_its_addresses() {
    let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[1]));
    rig.look(1);
    rig.announced(1);
    rig.state(Some(13), "fd00::13", Some(false));
    rig.state(Some(12), "fd00::12", Some(false));
    let gone = rig.config.ports.pop().unwrap();
    rig.configure(10);
    rig.config.ports.push(gone);
    rig.configure(20);
    rig.seen.links[0] = Some(false);
    rig.look(1000);
    rig.announced(1000);
    assert_eq!(rig.announced_ips(1010), [(12, 1, "fd00::12@7 stated Some(false)".to_owned())]);
}

#[test]
fn a_guest_does_not_inherit_the_addresses_of_the_one_before_it() {
    let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[1]));
    rig.look(1);
    rig.announced(1);
    for (port, ip) in [(11, "fd00::11"), (12, "fd00::12"), (13, "fd00::13")] {
        rig.state(Some(port), ip, Some(false));
    }
    // Port 13 stops, and port 12 stops and starts between two looks.
    rig.seen.starts.extend([(PortId(12), Some(2)), (PortId(13), None)]);
    rig.look(1000);
    assert_eq!(rig.announced(1000), [(12, 0)]);
    rig.seen.starts.insert(PortId(13), Some(2));
    rig.look(1100);
    assert_eq!(rig.announced(1100), [(13, 0)]);
    rig.state(Some(13), "fd00::99", Some(false));
    rig.seen.links[0] = Some(false);
    rig.look(2000);
    assert_eq!(rig.announced(2000).len(), 4);
    let expected = [(11, "fd00::11"), (13, "fd00::99")];
    let expected = expected.map(|(port, ip)| (port, 1, format!("{ip}@7 stated Some(false)")));
    assert_eq!(rig.announced_ips(2010), expected);
}

#[test]
fn ports_are_announced_where_their_frames_leave() {
    let mut rig = Rig::new(team(TeamPolicy::SourceMac, &[0, 1], &[]));
    rig.look(1);
    let outside = rig.teams.outsides()[&SegmentId(1)].clone();
    for (port, uplink) in rig.announced(1) {
        let config = rig.config.ports.iter().find(|config| config.id.0 == port).unwrap();
        let chosen = outside.teams[0].now.uplink(address_key(config.mac.0)).unwrap();
        assert_eq!(outside.uplinks[&PortId(uplink)], chosen, "port {port}");
    }
    assert_eq!(rig.uplinks(), [1, 1, 0, 0].map(Some));
}

#[test]
fn a_former_uplink_receives_until_a_second_after_switches_were_told() {
    let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[1]));
    rig.look(1);
    rig.announced(1);
    rig.seen.links[0] = Some(false);
    assert!(rig.look(30));
    let takes = |rig: &Rig| {
        let outside = &rig.teams.outsides()[&SegmentId(1)];
        let way = outside.ways[&PortId(10)];
        way.path.takes(&outside.teams[0].now, Uplink::new(0).unwrap(), true)
    };
    rig.look(50_000);
    assert!(takes(&rig), "nobody was told");
    rig.announced(50_000);
    let now = rig.at(50_000);
    rig.teams.told(PortId(10), now);
    assert!(!rig.look(50_900) && takes(&rig));
    assert!(rig.look(51_000) && !takes(&rig));
}

#[test]
fn a_team_without_failback_stays_where_it_is_whatever_else_changes() {
    let mut config = team(TeamPolicy::Explicit, &[0], &[1]);
    config.failback = false;
    let mut rig = Rig::new(config);
    rig.seen.links[0] = Some(false);
    rig.look(30);
    rig.seen.links[0] = Some(true);
    rig.look(60);
    rig.look(500);
    assert_eq!(rig.uplinks(), [1; 4].map(Some));
    let other = TeamConfig { segment: SegmentId(0), ..team(TeamPolicy::PortId, &[], &[]) };
    rig.config.teams.insert(0, other);
    rig.config.teams[1].notify_switches = false;
    for port in &mut rig.config.ports {
        port.team = port.team.map(|_| 1);
    }
    rig.configure(600);
    rig.look(700);
    assert_eq!(rig.uplinks(), [1; 4].map(Some));
}

#[test]
fn an_uplink_that_takes_the_place_of_another_gets_another_number() {
    let mut rig = Rig::new(team(TeamPolicy::Explicit, &[0], &[]));
    rig.look(1);
    rig.announced(1);
    rig.config.ports[0] = port(5, PortKind::Uplink, None);
    rig.config.teams[0] = team(TeamPolicy::Explicit, &[5], &[]);
    rig.configure(50);
    assert_eq!(rig.uplinks(), [2; 4].map(Some));
    assert_eq!(rig.announced(50).len(), 4);
}

#[test]
fn a_port_leaves_a_busy_uplink_and_goes_back_when_it_loses_the_other_one() {
    let mut rig = Rig::new(team(TeamPolicy::Load, &[0, 1], &[]));
    for port in &mut rig.config.ports[..2] {
        port.speed = Some(10_000_000);
    }
    rig.configure(0);
    rig.look(0);
    rig.announced(0);
    assert_eq!(rig.uplinks(), [0, 1, 0, 1].map(Some));
    // Ports 10 and 12 send 6 and 3 Mbit/s by the first uplink.
    let mut moved = None;
    for ms in (25..60_000).step_by(25) {
        for (port, bits) in [(0, 9_000_000), (1, 0), (10, 6_000_000), (12, 3_000_000)] {
            let sent = bits / 8 * ms / 1000;
            rig.seen.used.insert(PortId(port), WireBytes { sent, received: 0 });
        }
        rig.look(ms);
        if rig.uplinks()[0] != Some(0) {
            moved = moved.or(Some(ms));
        }
    }
    assert_eq!(moved, Some(31_000));
    assert_eq!(rig.uplinks(), [1, 1, 0, 1].map(Some));
    assert_eq!(rig.announced(60_000), [(10, 1)]);
    rig.seen.links[1] = Some(false);
    rig.look(60_025);
    assert_eq!(rig.uplinks(), [0; 4].map(Some));
    rig.seen.links[1] = Some(true);
    rig.look(60_050);
    rig.look(60_200);
    assert_eq!(rig.uplinks(), [1, 1, 0, 1].map(Some));
}

/// Lets seconds pass in which some uplinks hear the gateway's answer. Returns how often ports
/// changed their uplink.
fn pass(rig: &mut Rig, seconds: std::ops::Range<u64>, answered: &[u16]) -> usize {
    let mut changes = 0;
    for second in seconds {
        let now = rig.at(1000 * second);
        for OwnFrame { uplink, vlan, frame } in rig.teams.probe(now) {
            assert_eq!((vlan, &frame[38..42]), (20, &[10, 0, 0, 1][..]));
            if answered.contains(&uplink.0) {
                let answer = Proof::Answer { vlan: 20, gateway: IpAddr::from([10, 0, 0, 1]) };
                rig.seen.proofs.borrow_mut().entry(uplink).or_default().insert(answer);
            }
        }
        for look in 0..40 {
            let before = rig.uplinks();
            rig.look(1000 * second + 25 * look);
            changes += usize::from(rig.uplinks() != before);
        }
    }
    changes
}

#[test]
fn an_uplink_without_an_answer_of_the_gateway_is_left_within_3_s_and_does_not_flap() {
    let probe = "10.0.0.1@20".parse().unwrap();
    let mut rig = Rig::new(TeamConfig { probe, ..team(TeamPolicy::Explicit, &[0], &[1]) });
    assert_eq!(pass(&mut rig, 0..10, &[0, 1]), 0);
    assert_eq!(rig.uplinks(), [Some(0); 4]);
    // The first uplink was heard last at 9 s.
    pass(&mut rig, 10..12, &[1]);
    assert_eq!((rig.uplinks(), rig.teams.without_path()), (vec![Some(1); 4], [PortId(0)].into()));
    assert_eq!(rig.announced(12_000).len(), 4);
    for second in (12..612).step_by(4) {
        pass(&mut rig, second..second + 1, &[0, 1]);
        pass(&mut rig, second + 1..second + 4, &[1]);
        assert_eq!(rig.uplinks(), [Some(1); 4], "at {second} s");
    }
    pass(&mut rig, 612..624, &[0, 1]);
    assert_eq!((rig.uplinks(), rig.teams.without_path()), (vec![Some(0); 4], BTreeSet::new()));
}

#[test]
fn each_uplink_sends_a_beacon_in_each_vlan_of_its_team() {
    let config = TeamConfig { probe: PathProbe::Beacon, ..team(TeamPolicy::PortId, &[0], &[1]) };
    let mut rig = Rig::new(config.clone());
    rig.config.ports[2].vlan = "7".parse().unwrap();
    // A second team that probes the same.
    rig.config.teams.push(config);
    rig.config.ports[3].team = Some(1);
    rig.configure(0);
    let now = rig.at(0);
    let sent = rig.teams.probe(now);
    let places: Vec<_> = sent.iter().map(|own| (own.uplink.0, own.vlan)).collect();
    assert_eq!(places, [(0, 0), (0, 7), (1, 0), (1, 7)]);
    // The other uplink takes it for a proof.
    let expected = rig.teams.outsides()[&SegmentId(1)].expected.clone();
    for OwnFrame { uplink, frame, .. } in &sent {
        let proof = |at| expected.proof(Uplink::new(at).unwrap(), 0, false, frame, 0);
        let own = uplink.0 as u8;
        assert_eq!((proof(own), proof(1 - own)), (None, Some(Proof::Beacon)));
    }
    assert_eq!(rig.teams.probe(now), [], "once a second");
    rig.seen.links[1] = Some(false);
    rig.look(900);
    let now = rig.at(1000);
    assert!(rig.teams.probe(now).iter().all(|own| own.uplink == PortId(0)), "the other one has no link");
}
