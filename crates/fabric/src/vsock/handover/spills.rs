//! Payload that was copied out of rings, on its way to the next fabric: in a file in memory.
//!
//! For each flow: number of the connection, side, number of records and of bytes; length and flags
//! of each record; the bytes. All numbers are 32 bits, little-endian.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Write};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::vsock::proto::{ConnId, ConnectionTable, MAX_EMPTY, Party, Side, Spill};

/// Most bytes of one flow.
const MAX_BYTES: u32 = 4 << 20;

/// Writes the spills of all flows to guests, or of all others, into a new file in memory. Returns
/// `None` if there is no spill.
pub(crate) fn write_spills(table: &ConnectionTable, to_guests: bool) -> io::Result<Option<File>> {
    let mut written = None;
    for (id, connection) in table.iter() {
        for side in Side::BOTH {
            let is_to_guest = matches!(connection.ends[side.other()].party, Party::Guest(_));
            let spill = connection.flows[side].spill.as_ref().filter(|_| is_to_guest == to_guests);
            let Some(spill) = spill else { continue };
            let file = match &mut written {
                Some(file) => file,
                none => none.insert(File::from(memfd_create("spills", MemfdFlags::CLOEXEC)?)),
            };
            let numbers = [id.0, side as u32, spill.count() as u32, spill.len() as u32];
            let records = spill.records().flat_map(|record| [record.len, record.flags]);
            let head: Vec<u8> = numbers.into_iter().chain(records).flat_map(u32::to_le_bytes).collect();
            file.write_all(&head)?;
            for part in spill.bytes() {
                file.write_all(part)?;
            }
        }
    }
    Ok(written)
}

/// Reads the spills that another fabric has written, and gives them to their connections.
pub(crate) fn read_spills(mut file: File, table: &mut ConnectionTable) -> io::Result<()> {
    let length = file.stream_position()?;
    file.rewind()?;
    let mut file = BufReader::new(file);
    while file.stream_position()? < length {
        let [id, side, records, bytes] = numbers(&mut file)?;
        if bytes > MAX_BYTES || records as usize > MAX_EMPTY + bytes as usize {
            return Err(io::Error::other(format!("{records} records, {bytes} bytes for connection {id}")));
        }
        let records = (0..records).map(|_| numbers::<2>(&mut file)).collect::<io::Result<Vec<_>>>()?;
        let mut payload = vec![0; bytes as usize];
        file.read_exact(&mut payload)?;
        let Some(connection) = table.get_mut(ConnId(id)) else { continue };
        let from = if side == 0 { Side::Requester } else { Side::Responder };
        let mut spill = Spill::default();
        let mut rest = &payload[..];
        for [len, flags] in records {
            let (record, behind) = rest
                .split_at_checked(len as usize)
                .ok_or_else(|| io::Error::other(format!("a record of {len} bytes, {} left", rest.len())))?;
            spill.push(record, flags, connection.socket_type);
            rest = behind;
        }
        connection.flows[from].spill = Some(Box::new(spill)).filter(|spill| !spill.is_empty());
    }
    Ok(())
}

fn numbers<const N: usize>(file: &mut impl Read) -> io::Result<[u32; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes)?;
        *number = u32::from_le_bytes(bytes);
    }
    Ok(numbers)
}
