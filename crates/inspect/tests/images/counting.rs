//! Counts what an inspection reads.

use std::cell::Cell;
use std::io;

use taut_inspect::{Answer, Format, Image, MAX_READ, ReadAt, Refusal, inspect};

/// Most reads of one inspection: the header's parts, 65 extensions, a format and a name.
const MAX_READS: u64 = 75;

/// Bytes whose reads are counted.
struct Counting<'a> {
    image: &'a [u8],
    bytes: Cell<u64>,
    reads: Cell<u64>,
}

impl ReadAt for Counting<'_> {
    fn size(&self) -> io::Result<u64> {
        self.image.size()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.bytes.set(self.bytes.get() + buf.len() as u64);
        self.reads.set(self.reads.get() + 1);
        self.image.read_exact_at(buf, offset)
    }
}

/// Inspects an image and checks what holds for every image: few reads, and an answer that its
/// reader accepts.
pub(crate) fn inspect_counted(image: &[u8], format: Format) -> Result<Image, Refusal> {
    let counting = Counting { image, bytes: Cell::new(0), reads: Cell::new(0) };
    let inspected = inspect(&counting, format);
    assert!(counting.bytes.get() <= MAX_READ, "{} bytes were read", counting.bytes.get());
    assert!(counting.reads.get() <= MAX_READS, "{} reads", counting.reads.get());
    let answer = Answer::from(inspected.clone());
    let line = answer.to_line().unwrap();
    assert_eq!(Answer::read(line.as_bytes(), format).unwrap(), answer);
    inspected
}
