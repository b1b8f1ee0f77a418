//! Frames that are more work than they look.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use taut_virtq::header::{GSO_TCPV4, NEEDS_CSUM, NetHeader};

use super::front_end::{ENTRIES, FrontEnd};
use super::{Act, Effect, Port, Tools, claim};

/// Length of the longest frame, with its header.
pub(super) const LONGEST: usize = 65_000;
/// Length of the Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 14 + 20 + 20;

/// Returns the acts of this group.
pub(super) fn acts() -> Vec<Act> {
    let frame = |name: &str, change: fn(&mut NetHeader), times: u16| {
        Act::new(name, Effect::Any, move |front: &mut FrontEnd, tools: &Tools| {
            front.set_up()?;
            let mut header = tso(1448);
            change(&mut header);
            send(front, &header, &segment(Port::Plain.mac(), tools.sink, LONGEST), times)
        })
    };
    vec![
        frame("segments of one byte", |header| header.gso_size = 1, 1),
        frame("a ring full of segments of one byte", |header| header.gso_size = 1, ENTRIES),
        frame(
            "a ring full of the shortest segments that Linux sends",
            |header| header.gso_size = 48,
            ENTRIES,
        ),
        frame("segments of 65,000 bytes", |header| header.gso_size = 65_000, 16),
        frame("segments of no bytes", |header| header.gso_size = 0, 16),
        frame("segments of an unknown kind", |header| header.gso_type = 0x77, 16),
        frame("headers that are longer than their frame", |header| header.hdr_len = u16::MAX, 16),
        frame("a checksum outside its frame", |header| header.csum_start = u16::MAX, 16),
        frame("a checksum's field outside its frame", |header| header.csum_offset = u16::MAX, 16),
        frame("a ring full of the longest frames", |_| {}, ENTRIES),
        Act::new("a frame that is only a header", Effect::Any, |front, _| {
            front.set_up()?;
            send(front, &NetHeader::default(), &[], 16)
        }),
        Act::new("a frame of one byte", Effect::Any, |front, _| {
            front.set_up()?;
            send(front, &NetHeader::default(), &[0xff], 16)
        }),
        Act::new("a ring full of frames from other addresses", Effect::Any, |front, tools| {
            front.set_up()?;
            let mut frame = segment(Port::Plain.mac(), tools.sink, 60);
            frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
            send(front, &NetHeader::default(), &frame, ENTRIES)
        }),
    ]
}

/// Builds the header of a frame that is cut into segments of this size.
pub(super) fn tso(gso_size: u16) -> NetHeader {
    NetHeader {
        flags: NEEDS_CSUM,
        gso_type: GSO_TCPV4,
        hdr_len: HEADERS as u16,
        gso_size,
        csum_start: 14 + 20,
        csum_offset: 16,
        ..NetHeader::default()
    }
}

/// Builds a TCP segment between two ports, as a guest's stack leaves it to its card.
pub(super) fn segment(from: [u8; 6], to: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    (frame[22], frame[23]) = (64, 6);
    if len > HEADERS {
        frame[34 + 12] = 0x50;
    }
    frame
}

/// Offers the frame so many times, and waits until the fabric has returned it each time, or has
/// stopped the ring.
fn send(front: &mut FrontEnd, header: &NetHeader, frame: &[u8], times: u16) -> io::Result<()> {
    let bytes = [&header.to_bytes()[..], frame].concat();
    let at = front.ram.allocate(bytes.len() as u64, 64).ok_or(ErrorKind::OutOfMemory)?;
    front.write(at, &bytes);
    let desc = front.queues[1].layout.desc;
    (0..times).for_each(|index| front.describe(desc, index, (at, bytes.len() as u32), 0, 0));
    front.offer(1, &(0..times).collect::<Vec<_>>());
    let end = Instant::now() + Duration::from_secs(10);
    while front.used(1) != times && Instant::now() < end {
        if front.breaks_within(Duration::from_millis(1)) || !front.is_served() {
            return Ok(());
        }
    }
    claim(front.used(1) == times, "the fabric has not taken the frames")
}
