use proptest::prelude::*;

use taut_api::Vlan;

use super::super::member::LAST_MEMBER_FAILURES;
use super::*;

const A: PortId = PortId(1);
const B: PortId = PortId(2);
const REPORT: Message = Message::Report { complete: true };

fn group(number: u16) -> IpAddr {
    let [high, low] = number.to_be_bytes();
    IpAddr::from([239, 1, high, low])
}

fn setup() -> PortSetup {
    PortSetup { owner: String::new(), vlan: Vlan::default(), takes_all: false }
}

/// Groups of two ports that were asked long ago.
fn groups() -> Groups {
    let mut groups = Groups::default();
    groups.set_ports([A, B].map(|port| (port, setup())).into());
    for port in [A, B] {
        assert!(groups.see(port, Some(1)) && !groups.see(port, Some(1)));
        groups.asked(port, 0);
    }
    groups
}

const LATER: u64 = ANSWERED_MS;

fn takes(groups: &Groups, port: PortId, number: u16, now: u64) -> bool {
    groups.audience(7, Some(group(number)), now).has(port)
}

fn say(groups: &mut Groups, port: PortId, number: u16, change: Change, now: u64) {
    groups.hear(port, 7, REPORT, &[Record { group: group(number), change }], now);
}

/// Checks that each member is once among the groups of its port and among those to be looked at.
fn check_indices(groups: &Groups) {
    let mut members = BTreeSet::new();
    for ((vlan, group), of_group) in &groups.members {
        assert!(!of_group.is_empty());
        members.extend(of_group.keys().map(|port| Doubt { port: *port, vlan: *vlan, group: *group }));
    }
    let ports = (0..).map(PortId).zip(&groups.ports);
    let of_port = |(port, state): (PortId, &Option<PortState>)| {
        let of_port = state.iter().flat_map(|state| state.groups.clone()).collect::<Vec<_>>();
        of_port.into_iter().map(move |(vlan, group)| Doubt { port, vlan, group })
    };
    assert_eq!(ports.flat_map(of_port).collect::<BTreeSet<_>>(), members);
    let looks: Vec<_> = groups.looks.iter().map(|(_, place)| *place).collect();
    assert_eq!((looks.len(), BTreeSet::from_iter(looks)), (members.len(), members.clone()));
    assert!(groups.doubts.iter().all(|(_, place)| members.contains(place)));
}

/// Asks all that is due.
fn ask(groups: &mut Groups, now: u64) -> usize {
    let due = groups.doubts(now, usize::MAX);
    for doubt in &due {
        groups.doubted(*doubt, true, now);
    }
    due.len()
}

#[test]
fn only_members_take_frames_until_their_time_is_over() {
    let mut groups = groups();
    assert!(takes(&groups, A, 1, LATER - 1), "its answers may be under way");
    assert!(!takes(&groups, A, 1, LATER));
    say(&mut groups, A, 1, Change::Join, LATER);
    assert!(takes(&groups, A, 1, LATER + MEMBER_MS - 1) && !takes(&groups, B, 1, LATER));
    assert!(!groups.audience(8, Some(group(1)), LATER).has(A), "that is another VLAN");
    assert!(!takes(&groups, A, 2, LATER) && !takes(&groups, A, 1, LATER + MEMBER_MS));
    assert!(takes(&groups, PortId(9), 1, LATER), "an unknown port");
    let listed = |groups: &Groups, now| groups.list(10, now).groups;
    assert_eq!(listed(&groups, LATER), [(7, group(1), vec![A])]);
    let changes = groups.changes();
    groups.expire(LATER + MEMBER_MS, usize::MAX);
    assert_eq!((listed(&groups, LATER), groups.changes()), (vec![], changes + 1));
}

#[test]
fn a_member_that_leaves_is_asked_twice_and_taken_off_2_s_later() {
    let mut groups = groups();
    say(&mut groups, A, 1, Change::Join, LATER);
    let left = LATER + 1000;
    say(&mut groups, A, 1, Change::Leave, left);
    say(&mut groups, A, 1, Change::Leave, left + 100);
    assert_eq!([0, 200, 1000, 1200, 2000].map(|after| ask(&mut groups, left + after)), [1, 0, 1, 0, 0]);
    assert!(takes(&groups, A, 1, left + 1999) && !takes(&groups, A, 1, left + 2000));
    // A leave of what was never joined is nothing.
    say(&mut groups, B, 1, Change::Leave, left + 3000);
    assert_eq!(ask(&mut groups, left + 4000), 0);
}

#[test]
fn a_member_that_answers_or_cannot_be_asked_stays() {
    let mut groups = groups();
    say(&mut groups, A, 1, Change::Join, LATER);
    say(&mut groups, A, 1, Change::Leave, 15_000);
    assert_eq!(ask(&mut groups, 15_000), 1);
    say(&mut groups, A, 1, Change::Join, 15_500);
    assert_eq!((ask(&mut groups, 17_000), takes(&groups, A, 1, 19_000)), (0, true));
    say(&mut groups, A, 1, Change::Leave, 19_000);
    let [doubt] = groups.doubts(19_000, 10)[..] else { panic!() };
    let failed: Vec<_> = (19..60)
        .filter(|second| {
            let is_due = !groups.doubts(second * 1000, 10).is_empty();
            groups.doubted(doubt, false, second * 1000);
            is_due
        })
        .collect();
    assert_eq!(failed.len(), usize::from(LAST_MEMBER_FAILURES), "{failed:?}");
    assert_eq!((groups.doubts(60_000, 10), takes(&groups, A, 1, 60_000)), (vec![], true));
    // A query that finds room later is as good.
    say(&mut groups, A, 2, Change::Join, 60_000);
    say(&mut groups, A, 2, Change::Leave, 60_000);
    groups.doubted(Doubt { group: group(2), ..doubt }, false, 60_000);
    assert_eq!([60_500, 61_000, 62_000, 63_000].map(|now| ask(&mut groups, now)), [0, 1, 1, 0]);
    assert!(takes(&groups, A, 2, 62_999) && !takes(&groups, A, 2, 63_000));
    // An answer between the query and its note.
    say(&mut groups, A, 1, Change::Leave, 61_000);
    say(&mut groups, A, 1, Change::Join, 61_000);
    groups.doubted(doubt, true, 61_000);
    assert!(takes(&groups, A, 1, 70_000));
}

#[test]
fn reports_go_to_routers_only_and_routers_take_everything() {
    let mut groups = groups();
    groups.hear(A, 7, Message::Query, &[], LATER);
    let hears = |groups: &Groups, port, now| groups.audience(7, None, now).has(port);
    assert!(!hears(&groups, A, LATER), "a switch is no router");
    groups.hear(A, 7, Message::Router, &[], LATER);
    assert!(hears(&groups, A, LATER) && !hears(&groups, B, LATER));
    assert!(takes(&groups, A, 1, LATER) && groups.list(1, LATER).routers == [A]);
    let end = LATER + ROUTER_MS;
    assert!(!hears(&groups, A, end) && !takes(&groups, A, 1, end));
    let changes = groups.changes();
    groups.expire(end - 1, usize::MAX);
    assert_eq!(groups.changes(), changes);
    groups.expire(end, usize::MAX);
    assert_eq!((groups.list(1, end).routers, groups.changes()), (vec![], changes + 1));
    assert!(!hears(&groups, B, 0), "one that is not known yet might keep its own report back");
}

#[test]
fn a_port_that_joins_more_than_is_kept_takes_everything() {
    let mut groups = groups();
    for number in 0..=MOST_OF_PORT as u16 {
        say(&mut groups, A, number, Change::Join, LATER);
    }
    assert!(takes(&groups, A, 9999, LATER) && !takes(&groups, B, 1, LATER));
    assert_eq!(groups.list(10, LATER).more, MOST_OF_PORT - 10);
    let end = LATER + MEMBER_MS;
    groups.expire(end, usize::MAX);
    assert!(!takes(&groups, A, 9999, end));
    say(&mut groups, A, 1, Change::Join, end);
    assert!(takes(&groups, A, 1, end) && !takes(&groups, A, 2, end));
    groups.hear(A, 7, Message::Report { complete: false }, &[], end);
    assert!(takes(&groups, A, 2, end));
}

#[test]
fn a_full_vswitch_floods_only_to_the_ports_that_join_more() {
    let ports = || (0..20).map(PortId);
    let mut groups = Groups::default();
    groups.set_ports(ports().map(|port| (port, setup())).collect());
    for port in ports() {
        groups.see(port, Some(1));
        groups.asked(port, 0);
    }
    for number in 0..MOST_GROUPS as u16 {
        say(&mut groups, PortId(number / MOST_OF_PORT as u16), number, Change::Join, LATER);
    }
    assert!(!takes(&groups, PortId(0), 9999, LATER));
    say(&mut groups, PortId(19), 9999, Change::Join, LATER);
    assert!(takes(&groups, PortId(19), 9999, LATER) && !takes(&groups, PortId(18), 9999, LATER));
    // A group that is there already has room.
    say(&mut groups, PortId(18), 0, Change::Join, LATER);
    assert!(takes(&groups, PortId(18), 0, LATER) && !takes(&groups, PortId(18), 9999, LATER));
}

#[test]
fn a_port_is_unknown_again_when_its_guest_or_its_settings_change() {
    let mut groups = groups();
    say(&mut groups, A, 1, Change::Join, LATER);
    assert!(!groups.see(A, None));
    assert!(takes(&groups, A, 2, 10_000) && groups.list(10, LATER).groups.is_empty());
    groups.asked(A, 10_000);
    assert!(takes(&groups, A, 2, 60_000), "it did not receive that");
    assert!(groups.see(A, Some(2)));
    groups.asked(A, 60_000);
    assert!(!takes(&groups, A, 2, 80_000));
    say(&mut groups, B, 1, Change::Join, LATER);
    let other = PortSetup { vlan: Vlan::all(), ..setup() };
    groups.set_ports([(A, setup()), (B, other)].into());
    assert!(!takes(&groups, A, 2, 80_000) && takes(&groups, B, 2, 80_000) && groups.see(B, Some(1)));
    groups.set_ports([(A, PortSetup { takes_all: true, ..setup() })].into());
    assert!(takes(&groups, A, 2, 80_000) && groups.audience(7, None, 80_000).has(A));
}

#[test]
fn rings_that_restart_between_two_looks_make_a_port_unknown() {
    let mut groups = groups();
    say(&mut groups, A, 1, Change::Join, LATER);
    groups.hear(A, 7, Message::Router, &[], LATER);
    say(&mut groups, A, 1, Change::Leave, LATER);
    assert!(!groups.is_news(A, Some(1)) && groups.is_news(A, Some(2)) && groups.is_news(A, None));
    assert!(groups.see(A, Some(2)), "it is asked: queries may be lost with the rings");
    assert_eq!((groups.list(9, LATER), groups.doubts(LATER, 9)), (Listing::default(), vec![]));
    assert!(takes(&groups, A, 2, LATER));
}

#[test]
fn a_port_that_is_forgotten_leaves_its_own_groups_only() {
    let mut groups = groups();
    for number in 0..MOST_OF_PORT as u16 {
        say(&mut groups, A, number, Change::Join, LATER);
    }
    for number in [1, 2, 1000] {
        say(&mut groups, B, number, Change::Join, LATER + 1);
    }
    for port in [A, B] {
        say(&mut groups, port, 1, Change::Leave, LATER + 2);
    }
    assert!(groups.see(A, Some(2)));
    check_indices(&groups);
    let listed = groups.list(usize::MAX, LATER + 2).groups;
    assert_eq!(listed, [1, 2, 1000].map(|number| (7, group(number), vec![B])));
    assert_eq!(groups.doubts(LATER + 2, 9), [Doubt { port: B, vlan: 7, group: group(1) }]);
    // The port has room for as many again.
    groups.asked(A, LATER + 2);
    let known = LATER + 2 + ANSWERED_MS;
    for number in 0..MOST_OF_PORT as u16 {
        say(&mut groups, A, number, Change::Join, known);
    }
    assert!(takes(&groups, A, 0, known) && !takes(&groups, A, 9999, known));
    groups.set_ports([(B, setup())].into());
    check_indices(&groups);
    assert_eq!(groups.members.len(), 3);
}

#[test]
fn members_expire_in_short_steps_and_only_those_whose_time_may_be_over_are_looked_at() {
    let mut groups = groups();
    for number in 0..100 {
        say(&mut groups, A, number, Change::Join, LATER + u64::from(number));
    }
    for number in 50..100 {
        say(&mut groups, A, number, Change::Join, LATER + 1000);
    }
    let end = LATER + MEMBER_MS;
    assert!(!groups.expire(end - 1, 10) && groups.looks.len() == 100);
    let steps = (0..100).take_while(|_| groups.expire(end + 99, 10)).count();
    assert_eq!((steps, groups.list(0, end).more, groups.looks.len()), (9, 50, 50));
    assert!(!groups.expire(end + 999, 10), "those that have joined again are looked at later");
    say(&mut groups, A, 99, Change::Leave, end);
    assert_eq!([end, end + 1000].map(|now| ask(&mut groups, now)), [1, 1]);
    assert_eq!(groups.looks.len(), 50, "each member is there once");
    while groups.expire(end + 2000, 10) {}
    assert_eq!((groups.members.len(), groups.looks.len(), groups.port(A).unwrap().groups.len()), (0, 0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Join(u8, u8),
    Leave(u8, u8),
    Router(u8),
    Restart(u8),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0_u8..3, 0_u8..4);
    let step = prop_oneof![
        4 => place().prop_map(|(port, group)| Step::Join(port, group)),
        3 => place().prop_map(|(port, group)| Step::Leave(port, group)),
        1 => (0_u8..3).prop_map(Step::Router),
        1 => (0_u8..3).prop_map(Step::Restart),
        6 => (0_u64..40_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Two hosts are behind each port, and each answers queries. A port takes the frames of every
    /// group that one of its hosts has joined, always.
    #[test]
    fn a_member_always_gets_the_frames_of_its_groups(steps in steps(), first in any::<bool>()) {
        let ports = [PortId(0), PortId(1), PortId(2)];
        let mut groups = Groups::default();
        groups.set_ports(ports.map(|port| (port, setup())).into());
        let mut questions = crate::snooping::Questions::default();
        // Groups of the hosts behind each port.
        let mut joined = vec![vec![BTreeSet::<u8>::new(); 2]; 3];
        let mut restarts = [0; 3];
        let mut now = 0;
        let mut host = usize::from(first);
        for step in steps {
            let mut until = now;
            match step {
                Step::Join(port, number) => {
                    let port = usize::from(port);
                    joined[port][host].insert(number);
                    say(&mut groups, ports[port], number.into(), Change::Join, now);
                    host = 1 - host;
                }
                Step::Leave(port, number) => {
                    let port = usize::from(port);
                    if joined[port][host].remove(&number) {
                        say(&mut groups, ports[port], number.into(), Change::Leave, now);
                    }
                    host = 1 - host;
                }
                Step::Router(port) => groups.hear(ports[usize::from(port)], 7, Message::Router, &[], now),
                Step::Restart(port) => {
                    joined[usize::from(port)].iter_mut().for_each(BTreeSet::clear);
                    restarts[usize::from(port)] += 1;
                }
                Step::Wait(ms) => until = now + ms,
            }
            while now <= until {
                for (port, hosts) in ports.iter().zip(&joined) {
                    if groups.see(*port, Some(restarts[usize::from(port.0)])) {
                        questions.begin(*port, now);
                    }
                    for number in hosts.iter().flatten() {
                        prop_assert!(takes(&groups, *port, (*number).into(), now), "{port} lost {number} at {now}");
                    }
                }
                let answer = |groups: &mut Groups, port: PortId, number: u8| {
                    if joined[usize::from(port.0)].iter().any(|host| host.contains(&number)) {
                        say(groups, port, number.into(), Change::Join, now);
                    }
                };
                for doubt in groups.doubts(now, 2) {
                    groups.doubted(doubt, true, now);
                    let IpAddr::V4(asked) = doubt.group else { unreachable!() };
                    answer(&mut groups, doubt.port, asked.octets()[3]);
                }
                for port in questions.due(now) {
                    if questions.asked(port, true, now) {
                        groups.asked(port, now);
                    }
                    (0..4).for_each(|number| answer(&mut groups, port, number));
                }
                groups.expire(now, usize::MAX);
                check_indices(&groups);
                now += 500;
            }
        }
    }
}
