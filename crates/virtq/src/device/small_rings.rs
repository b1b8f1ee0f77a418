//! Rings of two to four entries with every content over a small alphabet, against a model. Each
//! chain ends within as many steps as the ring has entries, the device reads the bytes that the
//! descriptors name and no others, and positions stay in the ring.

use std::sync::atomic::Ordering::Release;

use super::chain::{Chain, Chains, Fetch, QueueKind};
use super::packed::PackedRing;
use super::split::SplitRing;
use crate::driver::{QueueLayout, Ram};
use crate::fault::RingFault;
use crate::features::{INDIRECT_DESC, RING_PACKED, VERSION_1};
use crate::memory::Area;
use crate::ring::packed::{self, DESC_AVAIL, DESC_USED, Position};
use crate::ring::{DESC_INDIRECT, DESC_NEXT, DESC_WRITE, Descriptor, Start, desc_at, split};

const LEN: u64 = 0x8000;
const END: u64 = Ram::START + LEN;
/// Addresses and lengths of buffers: the last bytes of memory, one byte too many, a short buffer,
/// and one that is a table if it is indirect.
const BUFFERS: [(u64, u32); 4] = [(END - 8, 8), (END - 8, 9), (Ram::START + 0x5004, 5), (TABLE, 16)];
const OUTSIDE: (u64, u32) = BUFFERS[1];
const SHORT: (u64, u32) = BUFFERS[2];
const TABLE: u64 = Ram::START + 0x5100;
/// The buffer in the table.
const IN_TABLE: (u64, u32) = (Ram::START + 0x5200, 7);
const KINDS: [QueueKind; 2] = [QueueKind::Transmit(1 << 16), QueueKind::Receive];

/// The parts of a chain: addresses and lengths.
type Parts = Vec<(u64, u32)>;

/// Memory with a pattern, and the areas of a ring in it.
struct Scene {
    ram: Ram,
    layout: QueueLayout,
    kind: QueueKind,
    features: u64,
    image: Vec<u8>,
    chains: Chains,
    out: [Chain; 8],
}

impl Scene {
    fn new(size: u16, kind: QueueKind, features: u64) -> Self {
        let mut ram = Ram::new(LEN).unwrap();
        let layout = QueueLayout::allocate(&mut ram, size).unwrap();
        let image: Vec<u8> = (0..LEN).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        ram.memory().write(Ram::START, &image).unwrap();
        let flags = if kind == QueueKind::Receive { DESC_WRITE } else { 0 };
        let (addr, len) = IN_TABLE;
        let entry = Descriptor { addr, len, id_or_next: 0, flags };
        let words = if features & RING_PACKED == 0 { split::encode(entry) } else { packed::encode(entry) };
        ram.memory().write(TABLE, &words.map(u64::to_le_bytes).concat()).unwrap();
        let chains = Chains::new(ram.memory(), kind, true, 64);
        let mut scene = Self { ram, layout, kind, features, image, chains, out: [Chain::default(); 8] };
        scene.image = scene.content();
        scene
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; LEN as usize];
        self.ram.memory().read(Ram::START, &mut content).unwrap();
        content
    }

    fn area<const ALIGN: usize>(&self, addr: u64, len: usize) -> Area<ALIGN> {
        Area::at_user_addr(self.ram.memory(), addr, len).unwrap()
    }

    fn split(&self, position: u16) -> SplitRing {
        SplitRing::new(self.ram.memory(), &self.layout.config(self.features, Start::At(position))).unwrap()
    }

    fn packed(&self, position: Position) -> PackedRing {
        let config = self.layout.config(self.features, Start::At(position.to_bits()));
        PackedRing::new(self.ram.memory(), &config, self.kind).unwrap()
    }

    /// The bytes of a chain as the device reads them.
    fn bytes(&self, chain: Chain) -> Vec<u8> {
        let mut bytes = vec![0; chain.len as usize + 1];
        let len = self.chains.buffer(chain).read(&mut bytes);
        bytes.truncate(len);
        bytes
    }

    /// The bytes that these parts name.
    fn named(&self, parts: &Parts) -> Vec<u8> {
        let of = |&(addr, len): &(u64, u32)| &self.image[(addr - Ram::START) as usize..][..len as usize];
        parts.iter().flat_map(of).copied().collect()
    }

    /// The part that a descriptor describes; `None` if it is faulty.
    fn part(&self, descriptor: Descriptor) -> Option<(u64, u32)> {
        let part @ (addr, len) = (descriptor.addr, descriptor.len);
        let direction = descriptor.has(DESC_WRITE) == (self.kind == QueueKind::Receive);
        let is_inside = (Ram::START..END).contains(&addr) && u64::from(len) <= END - addr;
        (direction && len > 0 && is_inside).then_some(part)
    }

    /// The buffer of an indirect descriptor; `None` if the table is faulty.
    fn in_table(descriptor: Descriptor) -> Option<(u64, u32)> {
        let is_table = (descriptor.addr, descriptor.len) == (TABLE, 16) && !descriptor.has(DESC_NEXT);
        is_table.then_some(IN_TABLE)
    }

    /// Checks that only the ring itself was written to.
    fn check_untouched(&self) {
        let content = self.content();
        let lens = split::area_lengths(self.layout.size, false);
        let areas = [self.layout.desc, self.layout.avail, self.layout.used];
        let is_ring =
            |at: u64| areas.iter().zip(lens).any(|(start, len)| at.wrapping_sub(*start) < len as u64);
        let changed = |&at: &u64| content[at as usize] != self.image[at as usize];
        let outside = (0..LEN).filter(changed).find(|at| !is_ring(Ram::START + at));
        assert_eq!(outside, None, "written outside of the ring");
    }
}

/// The chain from a head in a split ring of these descriptors; `None` if it is faulty.
fn split_chain(scene: &Scene, table: &[Descriptor], head: u16) -> Option<Parts> {
    let mut parts = Parts::new();
    let mut at = head;
    for _ in 0..table.len() {
        let descriptor = *table.get(usize::from(at))?;
        if descriptor.has(DESC_INDIRECT) {
            parts.push(Scene::in_table(descriptor)?);
            return Some(parts);
        }
        parts.push(scene.part(descriptor)?);
        if !descriptor.has(DESC_NEXT) {
            return Some(parts);
        }
        at = descriptor.id_or_next;
    }
    None
}

/// Compares a look at a split ring with the model, returns what was found, and looks again.
fn check_split(scene: &mut Scene, avail: &Area<2>, used: &Area<4>, table: &[Descriptor], heads: &[u16]) {
    for (at, head) in (0..).zip(heads) {
        avail.store_u16(split::avail_at(at, scene.layout.size), *head, Release);
    }
    avail.store_u16(split::INDEX, heads.len() as u16, Release);
    let mut ring = scene.split(0);
    scene.chains.spans.clear();
    let found = ring.fetch(Fetch { chains: &mut scene.chains, out: &mut scene.out, parts: 64 });
    let expected: Vec<Parts> = heads.iter().map_while(|head| split_chain(scene, table, *head)).collect();
    let Ok(count) = found else {
        return assert!(expected.is_empty(), "{found:?} in {table:?}, heads {heads:?}");
    };
    assert_eq!(count, expected.len(), "{table:?}, heads {heads:?}");
    for ((chain, parts), head) in scene.out.iter().zip(&expected).zip(heads) {
        assert_eq!((chain.id, usize::from(chain.count)), (*head, parts.len()));
        assert!(usize::from(chain.count) <= table.len());
        assert_eq!(scene.bytes(*chain), scene.named(parts), "{table:?}, head {head}");
    }
    ring.push_used(scene.out[..count].iter().map(|chain| (*chain, 3)));
    ring.publish();
    assert_eq!((usize::from(ring.position()), usize::from(ring.used_index())), (count, count));
    for (at, head) in (0..).zip(&heads[..count]) {
        let entry = split::used_at(at, scene.layout.size);
        assert_eq!((used.load_u32(entry), used.load_u32(entry + 4)), (u32::from(*head), 3));
    }
    let again = ring.fetch(Fetch { chains: &mut scene.chains, out: &mut scene.out, parts: 64 });
    assert_eq!(again.is_ok(), count == heads.len(), "a faulty chain stays faulty: {again:?}");
}

/// Areas of a split ring: descriptors, available ring, used ring.
fn split_areas(scene: &Scene) -> (Area<16>, Area<2>, Area<4>) {
    let [desc, avail, used] = split::area_lengths(scene.layout.size, false);
    let layout = scene.layout;
    (scene.area(layout.desc, desc), scene.area(layout.avail, avail), scene.area(layout.used, used))
}

/// Writes a descriptor: both words.
fn write(desc: &Area<16>, index: usize, [addr, state]: [u64; 2]) {
    desc.store_u64(desc_at(index as u16), addr);
    desc.store_u64(desc_at(index as u16) + 8, state);
}

/// Calls `action` with every table of `size` descriptors of this alphabet, after one call of
/// `change` for each descriptor that differs from the table before.
fn every_table(
    size: usize,
    alphabet: &[Descriptor],
    mut change: impl FnMut(usize, Descriptor),
    mut action: impl FnMut(&[Descriptor]),
) {
    let mut digits = vec![0; size];
    let mut table = vec![alphabet[0]; size];
    table.iter().enumerate().for_each(|(index, descriptor)| change(index, *descriptor));
    loop {
        action(&table);
        let mut index = 0;
        loop {
            if index == size {
                return;
            }
            digits[index] = (digits[index] + 1) % alphabet.len();
            table[index] = alphabet[digits[index]];
            change(index, table[index]);
            if digits[index] != 0 {
                break;
            }
            index += 1;
        }
    }
}

/// Every descriptor with these flags, these third fields (next or ID) and these buffers.
fn alphabet(flags: &[u16], thirds: &[u16], buffers: &[(u64, u32)]) -> Vec<Descriptor> {
    let mut all = Vec::new();
    for &flags in flags {
        for &id_or_next in thirds {
            all.extend(buffers.iter().map(|&(addr, len)| Descriptor { addr, len, id_or_next, flags }));
        }
    }
    all
}

#[test]
fn split_rings_of_two_with_every_descriptor() {
    let heads: [&[u16]; 8] = [&[0], &[1], &[2], &[0, 0], &[0, 1], &[1, 0], &[0, 2], &[u16::MAX, 1]];
    let flags = [0, DESC_NEXT, DESC_WRITE, DESC_NEXT | DESC_WRITE, DESC_INDIRECT, DESC_INDIRECT | DESC_NEXT];
    for kind in KINDS {
        let mut scene = Scene::new(2, kind, VERSION_1 | INDIRECT_DESC);
        let (desc, avail, used) = split_areas(&scene);
        let all = alphabet(&flags, &[0, 1, 2], &BUFFERS);
        let change = |index, descriptor| write(&desc, index, split::encode(descriptor));
        every_table(2, &all, change, |table| {
            for heads in heads {
                check_split(&mut scene, &avail, &used, table, heads);
            }
        });
        scene.check_untouched();
    }
}

#[test]
fn split_rings_of_four_with_every_link() {
    for kind in KINDS {
        let own = if kind == QueueKind::Receive { DESC_WRITE } else { 0 };
        let mut scene = Scene::new(4, kind, VERSION_1 | INDIRECT_DESC);
        let (desc, avail, used) = split_areas(&scene);
        let mut all = alphabet(&[own | DESC_NEXT], &[0, 1, 2, 3, 4], &[SHORT]);
        all.extend(alphabet(&[own, DESC_INDIRECT], &[0], &[(TABLE, 16)]));
        let change = |index, descriptor| write(&desc, index, split::encode(descriptor));
        every_table(4, &all, change, |table| {
            for heads in [&[0][..], &[3], &[4], &[0, 1, 2, 3], &[2, 2, 1, 0]] {
                check_split(&mut scene, &avail, &used, table, heads);
            }
        });
        scene.check_untouched();
    }
}

#[test]
fn every_available_index_is_ahead_by_at_most_the_size_or_a_fault() {
    for (size, start) in [(1, 0), (2, 0), (2, 0xfffe), (4, 0xffff)] {
        let mut scene = Scene::new(size, KINDS[0], VERSION_1);
        let (desc, avail, _) = split_areas(&scene);
        let (addr, len) = SHORT;
        (0..size.into()).for_each(|index| {
            write(&desc, index, split::encode(Descriptor { addr, len, id_or_next: 0, flags: 0 }));
            avail.store_u16(split::avail_at(index as u16, size), 0, Release);
        });
        for index in 0..=u16::MAX {
            avail.store_u16(split::INDEX, index, Release);
            let mut ring = scene.split(start);
            scene.chains.spans.clear();
            let found = ring.fetch(Fetch { chains: &mut scene.chains, out: &mut scene.out, parts: 64 });
            let ahead = index.wrapping_sub(start);
            if ahead <= size {
                assert_eq!(found, Ok(ahead.into()), "index {index} from {start}");
            } else {
                assert_eq!(found, Err(RingFault::AvailIndexJumped { from: start, to: index, size }));
            }
        }
    }
}

/// A chain of a packed ring: position, parts, ID, and number of descriptors.
type PackedChain = (Position, Parts, u16, u16);

/// The chains from a position on, and whether they end in a fault.
fn packed_chains(scene: &Scene, ring: &[Descriptor], start: Position) -> (Vec<PackedChain>, bool) {
    let size = ring.len() as u16;
    let ahead = |from: Position, count: u16| {
        let index = from.index + count;
        Position { index: index % size, wrap: from.wrap ^ (index >= size) }
    };
    let of = |at: Position| ring[usize::from(at.index)];
    let is_available = |at: Position| {
        let flags = (of(at).has(DESC_AVAIL), of(at).has(DESC_USED));
        flags == (at.wrap, !at.wrap)
    };
    let (mut chains, mut at, mut room) = (Vec::new(), start, size);
    while is_available(at) {
        let mut parts = Parts::new();
        let last = (0..room).map(|offset| of(ahead(at, offset))).try_for_each(|descriptor| {
            let is_table = descriptor.has(DESC_INDIRECT);
            let part = if is_table { Scene::in_table(descriptor) } else { scene.part(descriptor) };
            parts.push(part.ok_or(None)?);
            // Ends the walk with the ID of the last descriptor.
            if is_table || !descriptor.has(DESC_NEXT) { Err(Some(descriptor.id_or_next)) } else { Ok(()) }
        });
        let Err(Some(id)) = last else { return (chains, true) };
        let count = parts.len() as u16;
        chains.push((at, parts, id, count));
        (at, room) = (ahead(at, count), room - count);
    }
    (chains, false)
}

fn check_packed(scene: &mut Scene, desc: &Area<16>, ring: &[Descriptor], start: Position) {
    let mut device = scene.packed(start);
    scene.chains.spans.clear();
    let found = device.fetch(Fetch { chains: &mut scene.chains, out: &mut scene.out, parts: 64 });
    let (expected, is_faulty) = packed_chains(scene, ring, start);
    let Ok(count) = found else {
        return assert!(expected.is_empty() && is_faulty, "{found:?} in {ring:?} from {start:?}");
    };
    assert_eq!(count, expected.len(), "{ring:?} from {start:?}");
    for (chain, (_, parts, id, descriptors)) in scene.out.iter().zip(&expected) {
        assert_eq!((chain.id, chain.descriptors), (*id, *descriptors), "{ring:?} from {start:?}");
        assert_eq!(scene.bytes(*chain), scene.named(parts), "{ring:?} from {start:?}");
    }
    device.push_used(scene.out[..count].iter().map(|chain| (*chain, 3)));
    device.publish();
    let sum: u16 = expected.iter().map(|(.., descriptors)| descriptors).sum();
    let size = ring.len() as u16;
    assert!(sum <= size);
    let behind = start.index + sum;
    let position = Position { index: behind % size, wrap: start.wrap ^ (behind >= size) };
    assert_eq!(Position::from_bits(device.position()), position);
    for (at, _, id, _) in &expected {
        let flags = if at.wrap { DESC_AVAIL | DESC_USED } else { 0 };
        let state = desc.load_u64(packed::state_at(at.index));
        let shown = packed::decode([0, state]);
        assert_eq!((shown.flags & (DESC_AVAIL | DESC_USED), shown.id_or_next), (flags, *id));
    }
    // What was written is undone for the next look.
    (0..ring.len()).for_each(|index| write(desc, index, packed::encode(ring[index])));
}

/// Checks every ring over an alphabet, from every position.
fn every_packed(size: u16, kind: QueueKind, all: &[Descriptor]) {
    let mut scene = Scene::new(size, kind, VERSION_1 | INDIRECT_DESC | RING_PACKED);
    let desc: Area<16> = scene.area(scene.layout.desc, desc_at(size));
    let change = |index, descriptor| write(&desc, index, packed::encode(descriptor));
    every_table(size.into(), all, change, |ring| {
        for bits in (0..size).flat_map(|index| [index, index | 1 << 15]) {
            check_packed(&mut scene, &desc, ring, Position::from_bits(bits));
        }
    });
    scene.check_untouched();
}

const BITS: [u16; 4] = [0, DESC_AVAIL, DESC_USED, DESC_AVAIL | DESC_USED];

fn with_bits(flags: &[u16]) -> Vec<u16> {
    BITS.iter().flat_map(|bits| flags.iter().map(move |flags| flags | bits)).collect()
}

#[test]
fn packed_rings_of_two_with_every_descriptor() {
    let flags = [0, DESC_NEXT, DESC_WRITE, DESC_NEXT | DESC_WRITE, DESC_INDIRECT, DESC_INDIRECT | DESC_NEXT];
    for kind in KINDS {
        every_packed(2, kind, &alphabet(&with_bits(&flags), &[7], &BUFFERS));
    }
}

#[test]
fn packed_rings_of_three_and_four_with_every_link() {
    every_packed(3, KINDS[0], &alphabet(&with_bits(&[0, DESC_NEXT]), &[0, 9], &[SHORT]));
    every_packed(3, KINDS[0], &alphabet(&with_bits(&[0, DESC_NEXT]), &[1], &[SHORT, OUTSIDE]));
    every_packed(4, KINDS[1], &alphabet(&with_bits(&[DESC_WRITE, DESC_NEXT | DESC_WRITE]), &[3], &[SHORT]));
}
