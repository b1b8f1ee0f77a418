//! An image as a file: the input's bytes, zeros, and possibly a footer. A short input can be a
//! large file.
//!
//! Input: 1 byte for the mode, then
//! - mode 0: the whole file.
//! - mode 1: 6 bytes with the file's size, and the file's beginning. Zeros follow.
//! - mode 2: the same, but the last 112 bytes are for the last three sectors of the file: 16 bytes
//!   of the first, 80 of the second, 16 of the third, as the footer of a VMDK uses them.

use std::cell::Cell;
use std::io;

use taut_inspect::{Answer, Format, Image, MAX_READ, ReadAt, inspect};

use crate::budget::OVER;
use crate::input::Input;

const SECTOR: u64 = 512;

/// Bytes of the last three sectors in mode 2.
const FOOTER: [usize; 3] = [16, 80, 16];

/// Limits of one inspection besides time and memory: reads, and bytes of one buffer.
const MAX_READS: u32 = 75;
const MAX_BUFFER: usize = 1 << 20;

/// A file of zeros with some parts that are not, and counters of what is read.
#[derive(Debug)]
pub(crate) struct ImageFile<'a> {
    size: u64,
    /// Offset and bytes. Later parts cover earlier ones.
    parts: Vec<(u64, &'a [u8])>,
    reads: Cell<u32>,
    bytes: Cell<u64>,
}

impl<'a> ImageFile<'a> {
    pub(crate) fn of_input(data: &'a [u8]) -> Self {
        let mut input = Input(data);
        let mode = input.u8();
        let (size, parts) = match mode % 3 {
            0 => (input.0.len() as u64, vec![(0, input.0)]),
            mode => {
                let mut size = [0; 8];
                size[..6].copy_from_slice(&input.array::<6>());
                let size = u64::from_le_bytes(size);
                let mut parts = vec![(0, input.0)];
                if mode == 2 {
                    let start = input.0.len().saturating_sub(FOOTER.iter().sum());
                    let (head, mut tail) = (Input(input.0).slice(start), Input(&input.0[start..]));
                    parts = vec![(0, head)];
                    for (from_end, len) in [3, 2, 1].into_iter().zip(FOOTER) {
                        parts.push((size.saturating_sub(from_end * SECTOR), tail.slice(len)));
                    }
                }
                (size, parts)
            }
        };
        Self { size, parts, reads: Cell::new(0), bytes: Cell::new(0) }
    }

    /// Copies what the file has from an offset; bytes behind its end are zeros.
    pub(crate) fn copy_to(&self, buf: &mut [u8], offset: u64) {
        buf.fill(0);
        let end = (offset + buf.len() as u64).min(self.size);
        for (at, part) in &self.parts {
            let (from, to) = (offset.max(*at), end.min(*at + part.len() as u64));
            if from < to {
                let bytes = &part[(from - at) as usize..(to - at) as usize];
                buf[(from - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
}

impl ReadAt for ImageFile<'_> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(offset.checked_add(buf.len() as u64).is_some_and(|end| end <= self.size), "behind the end");
        assert!(buf.len() <= MAX_BUFFER, "{OVER} a buffer of {} bytes", buf.len());
        self.reads.set(self.reads.get() + 1);
        self.bytes.set(self.bytes.get() + buf.len() as u64);
        self.copy_to(buf, offset);
        Ok(())
    }
}

/// Inspects a file within the budgets, and passes the answer through its reader. Returns the image
/// if it is accepted.
pub(crate) fn inspect_within_budget(file: &ImageFile<'_>, format: Format) -> Option<Image> {
    let inspected = inspect(file, format);
    assert!(file.reads.get() <= MAX_READS, "{OVER} {} reads", file.reads.get());
    assert!(file.bytes.get() <= MAX_READ, "{OVER} {} bytes read", file.bytes.get());
    let answer = Answer::from(inspected);
    let line = answer.to_line().expect("a line");
    assert_eq!(Answer::read(line.as_bytes(), format).expect("an answer that its reader accepts"), answer);
    match answer {
        Answer::Image(image) => Some(image),
        Answer::Refused(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads all of a small file.
    fn content(input: &[u8]) -> Vec<u8> {
        let file = ImageFile::of_input(input);
        let mut bytes = vec![0; file.size as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn a_short_input_can_be_a_large_file_with_a_footer() {
        assert_eq!(content(b"\0abc"), b"abc");
        assert_eq!(content(b"\x01\x05\0\0\0\0\0abc"), b"abc\0\0");
        assert_eq!(content(b"\x01\x02\0\0\0\0\0abc"), b"ab");
        assert_eq!(ImageFile::of_input(b"\x01\xff\xff\xff\xff\xff\xff").size, (1 << 48) - 1);
        let mut input = b"\x02\0\x08\0\0\0\0head".to_vec();
        input.extend([[1; 16].to_vec(), [2; 80].to_vec(), [3; 16].to_vec()].concat());
        let bytes = content(&input);
        assert_eq!((&bytes[..5], bytes.len()), (&b"head\0"[..], 2048));
        for (at, len, byte) in [(512, 16, 1), (1024, 80, 2), (1536, 16, 3)] {
            assert!(bytes[at..at + len].iter().all(|found| *found == byte) && bytes[at + len] == 0);
        }
    }
}
