//! Geometries of all sizes, headers with any numbers, and words.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

/// Lengths of all regions that are possible.
fn region_lengths() -> impl Iterator<Item = u64> {
    (22..=30).map(|shift| 1 << shift)
}

#[test]
fn the_geometry_follows_from_the_length_of_the_region() {
    let of = |mib: u64| {
        let geometry = Geometry::of(mib * MIB).unwrap();
        (geometry.ring_len() >> 10, geometry.channels(), geometry.channel_len())
    };
    assert_eq!(of(4), (64, 31, 4096 + 2 * 65536));
    assert_eq!(of(8), (128, 31, 4096 + 2 * 131_072));
    assert_eq!(of(16), (256, 31, 4096 + 2 * 262_144));
    assert_eq!(of(32), (512, 31, 4096 + 2 * 524_288));
    assert_eq!(of(64), (1024, 31, 4096 + 2 * 1_048_576));
    assert_eq!(of(256), (1024, 127, 4096 + 2 * 1_048_576));
    assert_eq!(of(512), (256, 1016, 4096 + 2 * 262_144));
    assert_eq!(of(1024), (256, 2032, 4096 + 2 * 262_144));
}

#[test]
fn a_running_vm_keeps_the_rings_that_it_was_started_with() {
    let shape = |geometry: Geometry| (geometry.ring_len() >> 10, geometry.channels());
    for len in region_lengths() {
        let chosen = Geometry::of(len).unwrap();
        assert_eq!(Geometry::made_with(len, Some(chosen.ring_len())), Some(chosen));
        let former = Geometry::made_with(len, None).unwrap();
        assert_eq!(Geometry::made_with(len, Some(former.ring_len())), Some(former));
        check_places(&former, len);
    }
    assert_eq!(shape(Geometry::made_with(64 * MIB, None).unwrap()), (256, 127));
    assert_eq!(shape(Geometry::of(64 * MIB).unwrap()), (1024, 31));
    assert_eq!(Geometry::made_with(12 * MIB, None), None);
    for ring in [0, 1, 3 << 16, 32 << 10, 128 << 10, 2 << 20, u32::MAX] {
        assert_eq!(Geometry::made_with(4 * MIB, Some(ring)), None, "{ring}");
    }
}

#[test]
fn regions_of_other_lengths_are_refused() {
    for len in [0, 1, PAGE, 2 * MIB, 4 * MIB - 1, 4 * MIB + 1, 12 * MIB, 2048 * MIB, u64::MAX, 1 << 63] {
        assert_eq!(Geometry::of(len), Err(RegionLenError(len)));
    }
    let error = RegionLenError(12 * MIB).to_string();
    assert!(error.contains("12582912 bytes") && error.contains("from 4 MiB to 1 GiB"), "{error}");
}

/// Checks that all channels and rings lie in `mapped` bytes behind the header, and apart from each
/// other.
fn check_places(geometry: &Geometry, mapped: u64) {
    let ring = u64::from(geometry.ring_len());
    let mut end = PAGE;
    for index in BTreeSet::from([0, geometry.channels() - 1]) {
        let channel = geometry.channel(index).unwrap();
        assert!(channel.is_multiple_of(PAGE) && channel >= end);
        let (out, back) = (geometry.ring(Direction::Out), geometry.ring(Direction::In));
        assert!(out >= PAGE && back >= out + ring);
        end = channel + back + ring;
        assert!(end <= channel + geometry.channel_len());
    }
    assert!(end <= geometry.end() && geometry.end() <= mapped);
    assert_eq!(geometry.channel(geometry.channels()), None);
    assert_eq!(geometry.channel(u32::MAX), None);
}

#[test]
fn channels_lie_in_their_region() {
    for len in region_lengths() {
        check_places(&Geometry::of(len).unwrap(), len);
    }
}

#[test]
fn a_header_is_read_as_it_was_written() {
    for len in region_lengths() {
        let geometry = Geometry::of(len).unwrap();
        assert_eq!(Geometry::read(&geometry.header(), len), Ok(geometry));
        assert_eq!(Geometry::read(&geometry.header(), geometry.end()), Ok(geometry));
        let short = Geometry::read(&geometry.header(), geometry.end() - 1);
        assert!(matches!(short, Err(HeaderError::Outside { .. })), "{short:?}");
    }
}

#[test]
fn a_header_has_the_fields_at_their_offsets() {
    let header = Geometry::of(16 * MIB).unwrap().header();
    assert_eq!(&header[..8], b"TAUTQPR1");
    assert_eq!(header[0x08..0x0c], 1_u32.to_le_bytes());
    assert_eq!(header[0x0c..0x10], 31_u32.to_le_bytes());
    assert_eq!(header[0x10..0x18], 4096_u64.to_le_bytes());
    assert_eq!(header[0x18..0x20], 528_384_u64.to_le_bytes());
    assert_eq!(header[0x20..0x24], 262_144_u32.to_le_bytes());
    assert_eq!(header.len(), 0x24);
}

/// The fields of a header behind the magic.
#[derive(Debug, Clone, Copy)]
struct Fields {
    version: u32,
    channels: u32,
    first: u64,
    channel_len: u64,
    ring_len: u32,
}

impl Fields {
    fn header(self) -> [u8; HEADER_LEN] {
        let mut header = Vec::from(MAGIC);
        header.extend(self.version.to_le_bytes());
        header.extend(self.channels.to_le_bytes());
        header.extend(self.first.to_le_bytes());
        header.extend(self.channel_len.to_le_bytes());
        header.extend(self.ring_len.to_le_bytes());
        header.try_into().unwrap()
    }

    /// Tells whether a reader of `mapped` bytes may accept them, without any overflow.
    fn are_possible(self, mapped: u64) -> bool {
        let wide = |number: u64| u128::from(number);
        self.version == 1
            && self.ring_len.is_power_of_two()
            && self.ring_len >= 64 << 10
            && self.ring_len <= 1 << 20
            && self.channel_len.is_multiple_of(4096)
            && wide(self.channel_len) >= 4096 + 2 * wide(self.ring_len.into())
            && self.first.is_multiple_of(4096)
            && self.first != 0
            && self.channels > 0
            && wide(self.first) + wide(self.channels.into()) * wide(self.channel_len) <= wide(mapped)
    }
}

/// Numbers that are near what is possible, or any.
fn number(near: Vec<u64>) -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => proptest::sample::select(near),
        1 => any::<u64>(),
        1 => (0_u32..64).prop_map(|shift| 1 << shift),
        1 => (0_u64..3).prop_map(|below| u64::MAX - 4095 - 4096 * below),
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    (
        number(vec![1]),
        number(vec![0, 1, 2, 31, 32, 1 << 31, (1 << 32) - 1]),
        number(vec![0, 4096, 8192, 4097, 16 * MIB]),
        number(vec![0, 135_168, 528_384, 528_385, 4096 + 2 * MIB]),
        number(vec![0, 32 << 10, 64 << 10, 65537, 128 << 10, 256 << 10, 1 << 20, 2 << 20]),
    )
        .prop_map(|(version, channels, first, channel_len, ring_len)| Fields {
            version: version as u32,
            channels: channels as u32,
            first,
            channel_len,
            ring_len: ring_len as u32,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn a_header_is_accepted_if_its_channels_lie_in_the_memory(
        fields in fields(),
        mapped in number(vec![16 * MIB, 4 * MIB, 0, 4096]),
    ) {
        match Geometry::read(&fields.header(), mapped) {
            Ok(geometry) => {
                prop_assert!(fields.are_possible(mapped));
                prop_assert_eq!(geometry.channels(), fields.channels);
                prop_assert_eq!(geometry.ring_len(), fields.ring_len);
                prop_assert_eq!(geometry.channel_len(), fields.channel_len);
                prop_assert_eq!(geometry.channel(0), Some(fields.first));
                check_places(&geometry, mapped);
            }
            Err(error) => {
                prop_assert!(!fields.are_possible(mapped), "{}", error);
                prop_assert!(!error.to_string().is_empty());
            }
        }
    }
}

#[test]
fn memory_without_a_header_is_refused() {
    assert_eq!(Geometry::read(&[0; HEADER_LEN], 1 << 30), Err(HeaderError::Magic([0; 8])));
    let mut header = Geometry::of(4 * MIB).unwrap().header();
    header[7] ^= 1;
    assert_eq!(Geometry::read(&header, 4 * MIB), Err(HeaderError::Magic(*b"TAUTQPR0")));
}

#[test]
fn words_are_alone_in_their_cache_lines() {
    let offsets = Word::ALL.map(Word::offset);
    assert_eq!(offsets, std::array::from_fn(|number| 64 * number));
    assert!(offsets.iter().all(|offset| offset + 64 <= PAGE as usize));
}

#[test]
fn each_word_belongs_to_one_direction() {
    let words = |direction: Direction| {
        [direction.head(), direction.tail(), direction.room_wait(), direction.bytes_wait(), direction.end()]
    };
    assert_eq!(words(Direction::Out).map(Word::offset), [0x000, 0x040, 0x080, 0x0c0, 0x200]);
    assert_eq!(words(Direction::In).map(Word::offset), [0x100, 0x140, 0x180, 0x1c0, 0x240]);
}

#[test]
fn what_one_party_produces_the_other_consumes() {
    assert_eq!((Role::Guest.produces(), Role::Guest.consumes()), (Direction::Out, Direction::In));
    assert_eq!((Role::Fabric.produces(), Role::Fabric.consumes()), (Direction::In, Direction::Out));
    assert_eq!((Role::Guest.other(), Role::Fabric.other()), (Role::Fabric, Role::Guest));
}
