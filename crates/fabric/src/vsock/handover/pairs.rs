//! Queue pairs on their way to the next fabric: in a file in memory.
//!
//! The file says which channels are in use and by which connections, and what of a connection's
//! state is not in its words in the counters file. The positions of rings are not there: the next
//! fabric reads them from the words of the channels.
//!
//! A file is a sequence of records, each a kind and the kind's numbers. All numbers are 32 bits,
//! little-endian.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};

use rustix::fs::{MemfdFlags, memfd_create};
use taut_api::fabric::PortId;
use taut_queue_pair::End;

use crate::vsock::guest::Guests;
use crate::vsock::proto::{ChannelIdx, ConnId, Connection, ConnectionTable, Flow, Side};
use crate::vsock::queue_pair::{CONTROL_WORDS, Control, QueuePairs};

/// Most bytes of a file: some records for each connection.
const MAX_LEN: u64 = 32 << 20;

/// Kinds of records.
const CONTROL: u32 = 1;
const CHANNEL: u32 = 2;
const FLOW: u32 = 3;
const LEFT: u32 = 4;

/// Bits of a flow's last number.
const CUT: u32 = 1;
const RECEIVE_SHUT: u32 = 2;

/// A record by which one fabric tells the next about queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairRecord {
    /// A control connection.
    Control(ConnId, Control),
    /// A channel in use.
    Channel(ChannelRecord),
    /// A flow of a control connection, or of a connection of which an end is attached.
    Flow {
        connection: ConnId,
        from: Side,
        /// As in [`Flow`](crate::vsock::proto::Flow).
        skew: u32,
        unframed: u32,
        cut: bool,
        receive_shut: bool,
    },
    /// A side that has left its channel, behind its flows.
    Left(LeftRecord),
}

/// Bytes that are still in the rings of a side which has left its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftRecord {
    pub(crate) connection: ConnId,
    pub(crate) side: Side,
    /// As in the [`Flow`](crate::vsock::proto::Flow) to the side.
    pub(crate) returned: u32,
    /// As in the [`Flow`](crate::vsock::proto::Flow) from the side.
    pub(crate) before_ring: Option<u64>,
}

/// A channel in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelRecord {
    /// The device of the guest.
    pub(crate) device: PortId,
    pub(crate) channel: ChannelIdx,
    /// The end that is attached.
    pub(crate) of: Option<(ConnId, Side)>,
    pub(crate) control: Option<ConnId>,
    /// As in [`AttachedEnd`](crate::vsock::queue_pair::AttachedEnd).
    pub(crate) announced: End,
    pub(crate) is_final: bool,
}

/// Writes all queue pairs into a new file in memory. Returns `None` if none is in use.
pub(crate) fn write_pairs(
    pairs: &QueuePairs,
    table: &ConnectionTable,
    guests: &Guests,
) -> io::Result<Option<File>> {
    // Channels refer to control connections, so those come first.
    let mut records: Vec<_> =
        pairs.controls().map(|(id, control)| PairRecord::Control(id, *control)).collect();
    for (guest, channel, end) in pairs.ends() {
        let Some(device) = &guests.devices[guest] else { continue };
        records.push(PairRecord::Channel(ChannelRecord {
            device: device.config.id,
            channel,
            of: end.of.map(|of| (of.connection, of.side)),
            control: end.control,
            announced: end.announced,
            is_final: end.is_final,
        }));
    }
    for (_, connection) in table.iter().filter(|(_, connection)| connection.has_pairs()) {
        records.extend(Side::BOTH.map(|from| flow_record(connection, from)));
        let left = Side::BOTH.into_iter().filter(|&side| connection.has_left[side]);
        records.extend(left.map(|side| left_record(connection, side)));
    }
    if records.is_empty() {
        return Ok(None);
    }
    let mut file = File::from(memfd_create("queue pairs", MemfdFlags::CLOEXEC)?);
    let numbers = records.iter().flat_map(numbers_of);
    file.write_all(&numbers.flat_map(u32::to_le_bytes).collect::<Vec<_>>())?;
    Ok(Some(file))
}

fn flow_record(connection: &Connection, from: Side) -> PairRecord {
    let flow = &connection.flows[from];
    let &Flow { skew, unframed, cut, receive_shut, .. } = flow;
    PairRecord::Flow { connection: connection.id, from, skew, unframed, cut, receive_shut }
}

fn left_record(connection: &Connection, side: Side) -> PairRecord {
    PairRecord::Left(LeftRecord {
        connection: connection.id,
        side,
        returned: connection.flows[side.other()].returned,
        before_ring: connection.flows[side].before_ring,
    })
}

/// Reads the queue pairs that another fabric has written.
pub(crate) fn read_pairs(mut file: File) -> io::Result<Vec<PairRecord>> {
    // The position is the one of the process that has written the file: its end.
    let len = file.stream_position()?;
    if len > MAX_LEN {
        return Err(io::Error::other(format!("{len} bytes, {MAX_LEN} at most are possible")));
    }
    let mut bytes = vec![0; len as usize];
    file.rewind()?;
    file.read_exact(&mut bytes)?;
    let mut numbers =
        bytes.chunks_exact(4).map(|number| u32::from_le_bytes([0, 1, 2, 3].map(|at| number[at])));
    let mut records = Vec::new();
    while let Some(kind) = numbers.next() {
        let record = record_of(kind, &mut numbers);
        records.push(record.ok_or_else(|| io::Error::other(format!("record {} is invalid", records.len())))?);
    }
    Ok(records)
}

/// A record as numbers.
fn numbers_of(record: &PairRecord) -> Vec<u32> {
    match *record {
        PairRecord::Control(id, control) => [CONTROL, id.0].into_iter().chain(control.to_words()).collect(),
        PairRecord::Channel(ChannelRecord { device, channel, of, control, announced, is_final }) => {
            let (connection, side) = of.map_or((0, 0), |(id, side)| (id.0, side as u32));
            let control = control.map_or(0, |id| id.0);
            let last = u32::from(is_final);
            vec![CHANNEL, device.0.into(), channel.0, connection, side, control, announced.number(), last]
        }
        PairRecord::Flow { connection, from, skew, unframed, cut, receive_shut } => {
            let bits = u32::from(cut) * CUT + u32::from(receive_shut) * RECEIVE_SHUT;
            vec![FLOW, connection.0, from as u32, skew, unframed, bits]
        }
        PairRecord::Left(LeftRecord { connection, side, returned, before_ring }) => {
            let bytes = before_ring.unwrap_or(0);
            let [lower, upper] = [bytes as u32, (bytes >> 32) as u32];
            vec![LEFT, connection.0, side as u32, returned, before_ring.is_some().into(), lower, upper]
        }
    }
}

/// The record of a kind; `None` if the numbers are not possible. No connection has number 0.
fn record_of(kind: u32, numbers: &mut impl Iterator<Item = u32>) -> Option<PairRecord> {
    let connection = |number| (number != 0).then_some(ConnId(number));
    Some(match kind {
        CONTROL => {
            let id = connection(numbers.next()?)?;
            PairRecord::Control(id, Control::from_words(take::<CONTROL_WORDS>(numbers)?)?)
        }
        CHANNEL => {
            let [device, channel, of, side, control, announced, is_final] = take(numbers)?;
            let side = side_of(side)?;
            PairRecord::Channel(ChannelRecord {
                device: PortId(u16::try_from(device).ok()?),
                channel: ChannelIdx(channel),
                of: connection(of).map(|id| (id, side)),
                control: connection(control),
                announced: end_of(announced)?,
                is_final: is_final != 0,
            })
        }
        FLOW => {
            let [id, from, skew, unframed, bits] = take(numbers)?;
            let (connection, from) = (connection(id)?, side_of(from)?);
            let (cut, receive_shut) = (bits & CUT != 0, bits & RECEIVE_SHUT != 0);
            PairRecord::Flow { connection, from, skew, unframed, cut, receive_shut }
        }
        LEFT => {
            let [id, side, returned, has_bytes, lower, upper] = take(numbers)?;
            let bytes = u64::from(lower) | u64::from(upper) << 32;
            PairRecord::Left(LeftRecord {
                connection: connection(id)?,
                side: side_of(side)?,
                returned,
                before_ring: (has_bytes != 0).then_some(bytes),
            })
        }
        _ => return None,
    })
}

fn end_of(number: u32) -> Option<End> {
    [End::Open, End::Finished, End::Reset].into_iter().find(|end| end.number() == number)
}

fn take<const N: usize>(numbers: &mut impl Iterator<Item = u32>) -> Option<[u32; N]> {
    let mut taken = [0; N];
    for number in &mut taken {
        *number = numbers.next()?;
    }
    Some(taken)
}

fn side_of(number: u32) -> Option<Side> {
    Side::BOTH.into_iter().find(|&side| side as u32 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_and_anything_else_is_refused() {
        let mut control = Control::default();
        let _ = control.take(b"12345", 5);
        control.signal();
        control.advertised = 5;
        let channel = ChannelRecord {
            device: PortId(7),
            channel: ChannelIdx(30),
            of: Some((ConnId(9), Side::Responder)),
            control: None,
            announced: End::Reset,
            is_final: true,
        };
        let records = [
            PairRecord::Control(ConnId(5), control),
            PairRecord::Channel(channel),
            PairRecord::Flow {
                connection: ConnId(9),
                from: Side::Requester,
                skew: u32::MAX,
                unframed: 3,
                cut: true,
                receive_shut: false,
            },
            PairRecord::Flow {
                connection: ConnId(9),
                from: Side::Responder,
                skew: 0,
                unframed: 0,
                cut: false,
                receive_shut: true,
            },
            PairRecord::Left(LeftRecord {
                connection: ConnId(9),
                side: Side::Responder,
                returned: 7,
                before_ring: Some(5 << 32 | 6),
            }),
            PairRecord::Left(LeftRecord {
                connection: ConnId(9),
                side: Side::Requester,
                returned: 0,
                before_ring: None,
            }),
        ];
        let words: Vec<u32> = records.iter().flat_map(numbers_of).collect();
        let read = |words: &[u32]| {
            let mut file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
            file.write_all(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>()).unwrap();
            read_pairs(file)
        };
        assert_eq!(read(&words).unwrap(), records);
        assert_eq!(read(&[]).unwrap(), []);
        for len in 1..words.len() {
            let is_whole =
                (0..=records.len()).any(|count| records[..count].iter().flat_map(numbers_of).count() == len);
            assert_eq!(read(&words[..len]).is_ok(), is_whole, "{len} words");
        }
        assert!(read(&[5, 1, 1, 1, 1, 1]).is_err());
        assert!(read(&[FLOW, 9, 2, 0, 0, 0]).is_err(), "a third side");
        assert!(read(&[FLOW, 0, 1, 0, 0, 0]).is_err(), "connection 0");
    }
}
