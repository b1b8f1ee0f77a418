use std::io::Cursor;

use neli::{FromBytesWithInput as _, ToBytes as _};
use taut_api::pnic::{
    Duplex, LinkMode, Offload, OffloadFacts, ParameterFacts, ParameterGroup, PnicParameter,
};
use taut_tests::{Prerequisite, require_found};

use super::features::{Feature, Features};
use super::link::LinkSettings;
use super::*;
use crate::kernel::netlink::Links;

/// The attributes as they are sent.
fn bytes(attributes: &[Attribute]) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    for attribute in attributes {
        attribute.to_bytes(&mut bytes).unwrap();
    }
    bytes.into_inner()
}

/// Applies `read` to an answer of these bytes; none if they are no attributes.
fn read<T>(bytes: &[u8], read: impl Fn(&Attributes<'_>) -> T) -> Option<T> {
    let mut cursor = Cursor::new(bytes);
    let attributes = GenlBuffer::from_bytes_with_input(&mut cursor, bytes.len()).ok()?;
    Some(read(&attributes.get_attr_handle()))
}

/// The bytes of an attribute, made by hand: those of this test, not those of the library.
fn raw(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u16 + 4).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Flag of an attribute that consists of others (`NLA_F_NESTED`), which the kernel demands.
const NESTED: u16 = 1 << 15;

/// The bytes of a set of bits: name, and whether it has the flag that says that it is set.
fn raw_bits(kind: u16, before: &[u8], bits: &[(&str, bool)]) -> Vec<u8> {
    let bit = |(name, is_set): &(&str, bool)| {
        let name = raw(2, &[name.as_bytes(), &[0]].concat());
        raw(1 | NESTED, &[name, if *is_set { raw(3, &[]) } else { Vec::new() }].concat())
    };
    let bits = bits.iter().flat_map(bit).collect::<Vec<_>>();
    raw(kind | NESTED, &[before.to_vec(), raw(3 | NESTED, &bits)].concat())
}

#[test]
fn numbers_are_read_and_written() {
    let number = |kind, value: u32| raw(kind, &value.to_ne_bytes());
    let rings = [number(2, 4096), number(5, 2048), number(6, 256), number(9, 128)].concat();
    let facts = |value, max| ParameterFacts { value, max };
    assert_eq!(
        read(&rings, |answer| parameters::read(ParameterGroup::Rings, answer)).unwrap(),
        [(PnicParameter::RxRing, facts(256, Some(4096))), (PnicParameter::TxRing, facts(128, Some(2048)))]
            .into()
    );
    let coalescing = [number(2, 3), raw(11, &[1])].concat();
    assert_eq!(
        read(&coalescing, |answer| parameters::read(ParameterGroup::Coalescing, answer)).unwrap(),
        [(PnicParameter::RxUsecs, facts(3, None)), (PnicParameter::AdaptiveRx, facts(1, None))].into()
    );
    let channels = [number(5, 8), number(9, 4)].concat();
    assert_eq!(
        read(&channels, |answer| parameters::read(ParameterGroup::Channels, answer)).unwrap(),
        [(PnicParameter::Channels, facts(4, Some(8)))].into()
    );
    assert!(read(&[], |answer| parameters::read(ParameterGroup::Rings, answer)).unwrap().is_empty());

    let written = |parameter, value| bytes(&[parameters::write(parameter, value).unwrap()]);
    assert_eq!(written(PnicParameter::TxRing, 512), number(9, 512));
    assert_eq!(written(PnicParameter::AdaptiveTx, 1), raw(12, &[1]));
}

#[test]
fn a_link_is_read_and_written() {
    let modes = [("10baseT/Half", false), ("1000baseT/Full", true), ("Autoneg", true)];
    let answer = [
        raw(2, &[1]),
        raw_bits(3, &raw(2, &92_u32.to_ne_bytes()), &modes),
        raw(5, &1000_u32.to_ne_bytes()),
        raw(6, &[1]),
    ]
    .concat();
    let link = LinkSettings {
        autoneg: true,
        speed_mbit: Some(1000),
        duplex: Some(Duplex::Full),
        modes: modes.into_iter().map(|(name, on)| (name.to_owned(), on)).collect(),
    };
    assert_eq!(read(&answer, link::read).unwrap(), Some(link.clone()));
    let unknown = [raw(2, &[0]), raw(5, &u32::MAX.to_ne_bytes()), raw(6, &[0xff])].concat();
    assert_eq!(read(&unknown, link::read).unwrap(), Some(LinkSettings::default()));
    assert_eq!(read(&raw(5, &[0; 4]), link::read).unwrap(), None);

    let offer = LinkSettings { speed_mbit: None, duplex: None, ..link };
    // The map sorts the modes.
    let sorted = [("1000baseT/Full", true), ("10baseT/Half", false), ("Autoneg", true)];
    let expected = [raw(2, &[1]), raw_bits(3, &[], &sorted)].concat();
    assert_eq!(bytes(&link::write(&offer).unwrap()), expected);
    let forced =
        LinkSettings { speed_mbit: Some(100), duplex: Some(Duplex::Half), ..LinkSettings::default() };
    let expected = [raw(2, &[0]), raw(5, &100_u32.to_ne_bytes()), raw(6, &[0])].concat();
    assert_eq!(bytes(&link::write(&forced).unwrap()), expected);
}

#[test]
fn the_speed_of_a_mode_is_in_its_name() {
    let mode = |speed_mbit, duplex| Some(LinkMode { speed_mbit, duplex });
    for (name, expected) in [
        ("10baseT/Half", mode(10, Duplex::Half)),
        ("1000baseKX/Full", mode(1000, Duplex::Full)),
        ("400000baseLR8_ER8_FR8/Full", mode(400_000, Duplex::Full)),
        ("10baseT1S_P2MP/Half", mode(10, Duplex::Half)),
        ("Autoneg", None),
        ("Asym_Pause", None),
        ("FEC", None),
        ("base/Full", None),
        ("99999999999baseT/Full", None),
        ("", None),
    ] {
        assert_eq!(link::mode(name), expected, "{name}");
    }
}

#[test]
fn features_are_read_and_written() {
    let no_mask = raw(1, &[]);
    let answer = [
        raw_bits(2, &[], &[("rx-gro", true), ("rx-lro", false), ("highdma", true), ("rx-gro-hw", true)]),
        raw_bits(3, &no_mask, &[("rx-gro", false), ("highdma", false), ("rx-gro-hw", false)]),
        raw_bits(4, &no_mask, &[("rx-gro", false), ("highdma", false)]),
        raw_bits(5, &no_mask, &[("highdma", false)]),
    ]
    .concat();
    let found = read(&answer, features::read).unwrap().unwrap();
    let feature = |is_changeable, is_wanted, is_active| Feature { is_changeable, is_wanted, is_active };
    assert_eq!(found["rx-gro"], feature(true, true, true));
    assert_eq!(found["rx-lro"], feature(false, false, false));
    assert_eq!(found["highdma"], feature(false, true, true));
    assert_eq!(found["rx-gro-hw"], feature(true, true, false));
    let offload = |offload| features::offload(&found, offload);
    assert_eq!(offload(Offload::Gro), Some(OffloadFacts { on: true, fixed: false }));
    assert_eq!(offload(Offload::Lro), Some(OffloadFacts { on: false, fixed: false }));
    assert_eq!(offload(Offload::Tso), None);
    // A card whose features are all off has sets without bits.
    let off = [raw_bits(2, &[], &[("rx-lro", false)]), raw(3 | NESTED, &no_mask), raw(4 | NESTED, &no_mask)];
    let off = read(&off.concat(), features::read).unwrap().unwrap();
    assert_eq!(features::offload(&off, Offload::Lro), Some(OffloadFacts { on: false, fixed: true }));
    assert_eq!(read(&[], features::read).unwrap(), None);

    let wanted = [("rx-gro".to_owned(), false), ("rx-lro".to_owned(), true)].into();
    let expected = raw_bits(3, &[], &[("rx-gro", false), ("rx-lro", true)]);
    assert_eq!(bytes(&[bitset::write(3, &wanted).unwrap()]), expected);
}

#[test]
fn every_offload_has_features_of_its_own() {
    let mut all: Vec<_> = Offload::ALL.iter().flat_map(|offload| features::of_offload(*offload)).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count);
    assert_eq!(features::offload(&Features::new(), Offload::Tso), None);
}

#[test]
fn an_answer_that_is_cut_off_is_not_read() {
    let whole = raw(2, &7_u32.to_ne_bytes());
    let count = |bytes: &[u8]| {
        let numbers = read(bytes, |answer| parameters::read(ParameterGroup::Coalescing, answer));
        numbers.unwrap_or_default().len()
    };
    assert_eq!(count(&whole), 1);
    for length in 0..whole.len() {
        assert_eq!(count(&whole[..length]), 0, "{length} bytes");
    }
    assert_eq!(count(&[0, 0, 1, 0, 1, 1]), 0, "an attribute of length 0");
}

#[test]
fn this_machine_s_kernel_answers_about_its_loopback() {
    // Kernels before 5.6, and some sandboxes, lack the family.
    let opened = Ethtool::open().map_err(|error| error.to_string());
    let Some(mut ethtool) = require_found(Prerequisite::EthtoolNetlink, opened) else { return };
    // The loopback has neither moderation nor rings on any kernel.
    let (loopback, absent) = (Links::LOOPBACK, i32::MAX.cast_unsigned());
    for group in ParameterGroup::ALL {
        assert_eq!(ethtool.parameters(loopback, group).unwrap(), [].into(), "{group:?}");
        // Virtual functions are told by files, which are looked for elsewhere.
        let is_asked = group != ParameterGroup::VirtualFunctions;
        assert_eq!(ethtool.parameters(absent, group).is_err(), is_asked, "{group:?}");
    }
    assert!(ethtool.link(absent).is_err());
    let error = ethtool.features(absent).unwrap_err();
    assert!(error.to_string().contains("no device"), "the kernel says why: {error}");
    // The errors before leave nothing behind that the next answer could be mistaken for.
    let features = ethtool.features(loopback).unwrap();
    assert_eq!(features::offload(&features, Offload::Lro), Some(OffloadFacts { on: false, fixed: true }));
    assert!(features["tx-tcp-segmentation"].is_changeable);
}
