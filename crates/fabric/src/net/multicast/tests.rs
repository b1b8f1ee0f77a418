use proptest::prelude::*;

use super::*;
use crate::net::ethernet::{MacKey, check};

/// A frame to a group with an IPv4 packet.
fn ipv4_frame(protocol: u8, to: [u8; 4], body: &[u8]) -> Vec<u8> {
    let mac = address_of(Ipv4Addr::from(to).into()).to_le_bytes();
    let mut frame = [&mac[..6], &[2, 0, 0, 0, 0, 1, 8, 0]].concat();
    frame.extend([0x45, 0, 0, 20 + body.len() as u8, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, 1]);
    frame.extend(to);
    frame.extend(body);
    frame
}

/// An IGMP message with its checksum.
fn igmp(body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    let sum = crate::net::checksum::fold(crate::net::checksum::add(0, &body));
    body[2..4].copy_from_slice(&sum.to_be_bytes());
    ipv4_frame(IGMP, [224, 0, 0, 22], &body)
}

fn parse(frame: &[u8]) -> (Option<Message>, Vec<(String, Change)>) {
    let mut records = Vec::new();
    let ethernet = check(frame, frame.len()).unwrap();
    let message = read(frame, &ethernet, true, &mut records);
    (message, records.iter().map(|record| (record.group.to_string(), record.change)).collect())
}

fn kind_of(frame: &[u8]) -> Kind {
    kind(&frame[..frame.len().min(64)], &check(frame, frame.len()).unwrap())
}

const REPORT: Option<Message> = Some(Message::Report { complete: true });

#[test]
fn messages_of_igmp_1_and_2_name_one_group() {
    let of = |kind: u8, last: u8| parse(&igmp(&[kind, 0, 0, 0, 239, 1, 1, last]));
    assert_eq!(of(0x12, 1), (REPORT, vec![("239.1.1.1".into(), Change::Join)]));
    assert_eq!(of(0x16, 2), (REPORT, vec![("239.1.1.2".into(), Change::Join)]));
    assert_eq!(of(0x17, 3), (REPORT, vec![("239.1.1.3".into(), Change::Leave)]));
    assert_eq!(of(0x11, 3), (Some(Message::Router), vec![]));
    assert_eq!(of(0x13, 3), (None, vec![]), "DVMRP");
    let local = parse(&igmp(&[0x16, 0, 0, 0, 224, 0, 0, 251]));
    assert_eq!(local, (REPORT, vec![]), "frames to it go to all ports anyway");
}

#[test]
fn records_of_igmp_3_join_and_leave() {
    let mut body = vec![0x22, 0, 0, 0, 0, 0, 0, 8];
    for (kind, sources) in [(1_u8, 0_u8), (1, 2), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (7, 0)] {
        body.extend([kind, 1, 0, sources, 239, 0, kind, sources]);
        body.extend([10, 0, 0, 9].repeat(sources.into()));
        body.extend([0xff; 4]);
    }
    let (message, records) = parse(&igmp(&body));
    let changes: Vec<_> = records.iter().map(|(group, change)| (group.as_str(), *change)).collect();
    let expected = [
        ("239.0.1.0", Change::Leave),
        ("239.0.1.2", Change::Join),
        ("239.0.2.0", Change::Join),
        ("239.0.3.0", Change::Leave),
        ("239.0.4.1", Change::Join),
        ("239.0.5.1", Change::Join),
        ("239.0.6.1", Change::Leave),
    ];
    assert_eq!((message, &changes[..]), (REPORT, &expected[..]));
    // A record that is missing.
    body[7] = 9;
    assert_eq!(parse(&igmp(&body)).0, Some(Message::Report { complete: false }));
}

#[test]
fn a_message_with_a_wrong_checksum_is_none_unless_it_has_yet_to_be_summed() {
    let mut frame = igmp(&[0x16, 0, 0, 0, 239, 1, 1, 1]);
    frame[36] ^= 1;
    assert_eq!(parse(&frame), (None, vec![]));
    let ethernet = check(&frame, frame.len()).unwrap();
    assert_eq!(read(&frame, &ethernet, false, &mut Vec::new()), REPORT);
}

#[test]
fn a_fragment_of_a_report_is_an_incomplete_one() {
    let incomplete = (Some(Message::Report { complete: false }), vec![]);
    let mut frame = igmp(&[0x22, 0, 0, 0, 0, 0, 0, 0]);
    frame[20] = 0x20;
    assert_eq!(parse(&frame), incomplete);
    frame[33] = 1;
    assert_eq!(parse(&frame), (None, vec![]), "reports have another address");
    let mut frame = queries(None).remove(1);
    frame[54] = 44;
    assert_eq!(parse(&frame), (None, vec![]), "reports have another address");
    frame[53] = 0x16;
    assert_eq!(parse(&frame), incomplete);
}

#[test]
fn a_report_that_is_longer_than_what_is_read_is_incomplete() {
    let mut body = vec![0x22, 0, 0, 0, 0, 0, 0x01, 0x2c];
    for group in 0..300_u16 {
        body.extend([4, 0, 0, 0, 239, 5]);
        body.extend(group.to_be_bytes());
    }
    let mut frame = ipv4_frame(IGMP, [224, 0, 0, 22], &[]);
    frame.extend(&body);
    frame[16..18].copy_from_slice(&(20 + body.len() as u16).to_be_bytes());
    frame.truncate(MOST_READ);
    let (message, records) = parse(&frame);
    assert_eq!((message, records.len()), (Some(Message::Report { complete: false }), 250));
}

#[test]
fn the_fabrics_own_queries_are_messages_with_valid_sums() {
    let group: IpAddr = "ff05::1234".parse().unwrap();
    for (frames, count) in [(queries(None), 2), (queries(Some(group)), 1)] {
        assert_eq!(frames.len(), count);
        for frame in &frames {
            let v4 = frame[12] == 8;
            let expected = if v4 { Message::Query } else { Message::Router };
            assert_eq!(parse(frame), (Some(expected), vec![]), "{frame:02x?}");
            assert_eq!(kind_of(frame), Kind::Message);
        }
    }
    let [v4, v6] = &queries(None)[..] else { panic!() };
    assert_eq!(checksum_of(&v4[14..38]), 0);
    assert_eq!((v4.len(), v6.len(), v4[22], v6[21]), (60, 90, 1, 1));
    assert_eq!(queries(Some(group))[0][70..86], "ff05::1234".parse::<Ipv6Addr>().unwrap().octets());
}

fn checksum_of(bytes: &[u8]) -> u16 {
    crate::net::checksum::fold(crate::net::checksum::add(0, bytes))
}

#[test]
fn messages_of_mld_name_groups() {
    let from_query = |kind: u8, behind: &[u8]| {
        let mut frame = queries(None).remove(1);
        frame[62] = kind;
        frame.truncate(62 + 8);
        frame[64..70].fill(0);
        frame.extend(behind);
        frame[19] = (frame.len() - 54) as u8;
        let body = &frame[62..];
        let addresses = checksum_words(&frame[22..54], body.len() as u64 + 58);
        let sum = crate::net::checksum::fold(crate::net::checksum::add(addresses, body));
        frame[64..66].copy_from_slice(&sum.to_be_bytes());
        parse(&frame)
    };
    let group = "ff05::1234".parse::<Ipv6Addr>().unwrap().octets();
    let joined = vec![("ff05::1234".to_owned(), Change::Join)];
    let left = vec![("ff05::1234".to_owned(), Change::Leave)];
    assert_eq!(from_query(131, &group), (REPORT, joined.clone()));
    assert_eq!(from_query(132, &group), (REPORT, left.clone()));
    let record = |kind: u8| [&[kind, 0, 0, 0][..], &group].concat();
    let with_count = |kind: u8| {
        let mut frame = queries(None).remove(1);
        frame[62] = 143;
        frame[64..68].fill(0);
        frame[68..70].copy_from_slice(&[0, 1]);
        frame.truncate(70);
        frame.extend(record(kind));
        frame[19] = (frame.len() - 54) as u8;
        let ethernet = check(&frame, frame.len()).unwrap();
        let mut records = Vec::new();
        let message = read(&frame, &ethernet, false, &mut records);
        (message, records.iter().map(|record| (record.group.to_string(), record.change)).collect::<Vec<_>>())
    };
    assert_eq!(with_count(4), (REPORT, joined));
    assert_eq!(with_count(3), (REPORT, left));
}

fn checksum_words(bytes: &[u8], first: u64) -> u64 {
    crate::net::checksum::add(first, bytes)
}

#[test]
fn frames_for_groups_are_told_from_those_for_all() {
    let udp = |to| ipv4_frame(17, to, &[0; 8]);
    let group: IpAddr = Ipv4Addr::new(239, 1, 1, 1).into();
    assert_eq!(kind_of(&udp([239, 1, 1, 1])), Kind::Group(group));
    assert_eq!(kind_of(&udp([224, 0, 0, 251])), Kind::All);
    let mut other = udp([239, 1, 1, 1]);
    other[5] = 2;
    assert_eq!(kind_of(&other), Kind::All, "the address is that of another group");
    other[..6].fill(0xff);
    assert_eq!(kind_of(&other), Kind::All, "broadcast");
    assert_eq!(kind_of(&igmp(&[0x16, 0, 0, 0, 239, 1, 1, 1])), Kind::Message);
    let tagged = crate::net::vlan::tagged(&udp([239, 1, 1, 1]), 7);
    assert_eq!(kind_of(&tagged), Kind::Group(group));
    assert_eq!(kind_of(&tagged[..20]), Kind::All);
    let mut arp = other.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(kind_of(&arp), Kind::All);
    for (group, filtered) in [
        ("224.0.1.1", true),
        ("10.0.0.1", false),
        ("ff02::1:ff00:1", false),
        ("ff05::2", true),
        ("ff1e::1", true),
    ] {
        assert_eq!(is_filtered(group.parse().unwrap()), filtered, "{group}");
    }
    assert_eq!(
        MacKey(address_of("ff05::1:2345:6789".parse().unwrap())).0.to_le_bytes()[..6],
        [0x33, 0x33, 0x23, 0x45, 0x67, 0x89]
    );
}

proptest! {
    #[test]
    fn any_bytes_are_read_within_bounds(
        mut frame in prop::collection::vec(any::<u8>(), 14..300),
        v6 in any::<bool>(),
        is_summed in any::<bool>(),
    ) {
        frame[12..14].copy_from_slice(&if v6 { IPV6 } else { IPV4 }.to_be_bytes());
        if frame.len() > 24 {
            frame[14] = if v6 { 0x60 } else { 0x45 };
            frame[if v6 { 20 } else { 23 }] = if v6 { HOP_BY_HOP } else { IGMP };
        }
        let ethernet = check(&frame, frame.len()).unwrap();
        let mut records = Vec::new();
        let message = read(&frame, &ethernet, is_summed, &mut records);
        prop_assert!(records.len() <= frame.len() / 8);
        prop_assert!(records.iter().all(|record| is_filtered(record.group)));
        let is_report = matches!(message, Some(Message::Report { .. }));
        prop_assert!(records.is_empty() || is_report);
        kind(&frame[..frame.len().min(64)], &ethernet);
    }
}
