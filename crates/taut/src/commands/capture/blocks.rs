//! Reads pcapng as the daemon sends it: block by block, with one interface, numbers in
//! little-endian order, and times in nanoseconds (draft-ietf-opsawg-pcapng).

use taut_api::ApiError;
use taut_api::error::ErrorKind;

/// Length of the shortest block: its kind, and its length twice.
const SHORTEST: usize = 12;
/// Length of the longest block that is read. The longest one that the daemon sends has a frame of
/// 64 KiB and some options.
const LONGEST: usize = 1 << 20;

/// Kind of a block with statistics.
const STATISTICS: u32 = 5;
/// Kind of a block with a frame.
const FRAME: u32 = 6;

/// Blocks of which the end may still be missing.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    bytes: Vec<u8>,
    /// Number of bytes whose blocks were taken.
    taken: usize,
}

/// One block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Block<'a> {
    /// The description of the section or of its interface, which files need as it is.
    Description(&'a [u8]),
    /// A frame, as files need it and as it is read.
    Frame(&'a [u8], Frame<'a>),
    /// Numbers of the capture.
    Statistics(Statistics<'a>),
}

/// A captured frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Time in nanoseconds since the Unix epoch.
    pub(super) at_ns: u64,
    /// True if the port has sent the frame.
    pub(super) is_sent: bool,
    /// Length of the whole frame.
    pub(super) len: u32,
    /// First bytes of the frame.
    pub(super) bytes: &'a [u8],
    /// Number of frames that were lost between the last one and this one.
    pub(super) lost: u64,
    /// Reason, if the frame was dropped: `drop: ` and a word.
    pub(super) comment: Option<&'a str>,
}

/// Numbers of a capture.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics<'a> {
    /// Number of frames that were lost.
    pub(super) lost: u64,
    /// Reason that the capture has ended, unless its end was wanted.
    pub(super) reason: Option<&'a str>,
}

impl Blocks {
    /// Adds a piece of the answer.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the next block; `None` if it is not complete.
    pub(super) fn take(&mut self) -> Result<Option<Block<'_>>, ApiError> {
        let rest = &self.bytes[self.taken..];
        let (Some(kind), Some(len)) = (word(rest, 0), word(rest, 4)) else { return Ok(None) };
        let len = len as usize;
        if !(SHORTEST..=LONGEST).contains(&len) || !len.is_multiple_of(4) {
            return Err(broken(&format!("a block of {len} bytes")));
        }
        let Some(block) = rest.get(..len) else { return Ok(None) };
        self.taken += len;
        let content = &block[8..len - 4];
        Ok(Some(match kind {
            FRAME => {
                let frame = frame(content).ok_or_else(|| broken("a block without its frame"))?;
                Block::Frame(block, frame)
            }
            STATISTICS => Block::Statistics(statistics(content)),
            _ => Block::Description(block),
        }))
    }
}

fn broken(what: &str) -> ApiError {
    ApiError::new(
        ErrorKind::Internal,
        format!("the daemon's capture cannot be read: {what}"),
        "use taut and tautd of the same version",
    )
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*word))
}

/// Reads a frame (section 4.3).
fn frame(content: &[u8]) -> Option<Frame<'_>> {
    let at_ns = u64::from(word(content, 4)?) << 32 | u64::from(word(content, 8)?);
    let (captured, len) = (word(content, 12)? as usize, word(content, 16)?);
    let behind = content.get(20..)?;
    let bytes = behind.get(..captured)?;
    let mut frame = Frame { at_ns, is_sent: false, len, bytes, lost: 0, comment: None };
    for (code, value) in options(behind.get(captured.next_multiple_of(4)..)?) {
        match code {
            1 => frame.comment = std::str::from_utf8(value).ok(),
            2 => frame.is_sent = word(value, 0).is_some_and(|flags| flags & 3 == 2),
            4 => frame.lost = number(value),
            _ => {}
        }
    }
    Some(frame)
}

/// Reads statistics (section 4.6).
fn statistics(content: &[u8]) -> Statistics<'_> {
    let mut statistics = Statistics::default();
    for (code, value) in options(content.get(12..).unwrap_or_default()) {
        match code {
            1 => statistics.reason = std::str::from_utf8(value).ok(),
            5 => statistics.lost = number(value),
            _ => {}
        }
    }
    statistics
}

/// Reads a number of eight bytes.
fn number(value: &[u8]) -> u64 {
    value.try_into().map(u64::from_le_bytes).unwrap_or_default()
}

/// Returns the options at the end of a block, as far as they are whole.
fn options(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, behind) = rest.split_first_chunk::<4>()?;
        let code = u16::from_le_bytes([head[0], head[1]]);
        let len = usize::from(u16::from_le_bytes([head[2], head[3]]));
        if code == 0 {
            return None;
        }
        let value = behind.get(..len)?;
        rest = behind.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    })
}

/// Returns a block with the numbers of a capture, for the end of a file.
pub(super) fn statistics_block(begun_ns: u64, at_ns: u64, captured: u64, lost: u64) -> Vec<u8> {
    const LEN: u32 = 88;
    let time = |at_ns: u64| [(at_ns >> 32) as u32, at_ns as u32];
    let number = |number: u64| [number as u32, (number >> 32) as u32];
    let option = |code: u32, [first, second]: [u32; 2]| [code | 8 << 16, first, second];
    let [upper, lower] = time(at_ns);
    let words = [
        &[STATISTICS, LEN, 0, upper, lower][..],
        &option(2, time(begun_ns)),
        &option(3, time(at_ns)),
        &option(4, number(captured.saturating_add(lost))),
        &option(5, number(lost)),
        &option(8, number(captured)),
        &[0, LEN],
    ]
    .concat();
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// A dropped frame of five bytes, before which nine were lost.
    fn frame_block() -> Vec<u8> {
        [
            bytes(&[6, 80, 0, 2, 3, 5, 1514]),
            vec![1, 2, 3, 4, 5, 0, 0, 0],
            vec![2, 0, 4, 0, 2, 0, 0, 0],
            vec![4, 0, 8, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            vec![1, 0, 10, 0],
            b"drop: runt\0\0".to_vec(),
            bytes(&[0, 80]),
        ]
        .concat()
    }

    #[test]
    fn blocks_are_read_from_pieces_of_any_length() {
        let description = bytes(&[1, 20, 1, 96, 20]);
        let end = statistics_block(1, 2 << 32, 5, 7);
        let all = [description.clone(), frame_block(), end].concat();
        for piece in [1, 3, 50, 1000] {
            let mut blocks = Blocks::default();
            let mut kinds = Vec::new();
            for piece in all.chunks(piece) {
                blocks.add(piece);
                while let Some(block) = blocks.take().unwrap() {
                    kinds.push(match block {
                        Block::Description(raw) => {
                            assert_eq!(raw, description);
                            'd'
                        }
                        Block::Frame(raw, frame) => {
                            assert_eq!(raw, frame_block());
                            let bytes = &[1, 2, 3, 4, 5][..];
                            let at_ns = 2 << 32 | 3;
                            let comment = Some("drop: runt");
                            let same = Frame { at_ns, is_sent: true, len: 1514, bytes, lost: 9, comment };
                            assert_eq!(frame, same);
                            'f'
                        }
                        Block::Statistics(statistics) => {
                            assert_eq!(statistics, Statistics { lost: 7, reason: None });
                            's'
                        }
                    });
                }
            }
            assert_eq!(kinds, ['d', 'f', 's']);
        }
    }

    #[test]
    fn hostile_lengths_are_errors_and_missing_options_are_none() {
        for len in [0, 8, 13, (1 << 20) + 4, u32::MAX] {
            let mut blocks = Blocks::default();
            blocks.add(&bytes(&[6, len, 0, 0]));
            assert!(blocks.take().is_err(), "{len}");
        }
        let whole = frame_block();
        for captured in [57, 0xffff_fffc, u32::MAX] {
            let mut block = whole.clone();
            block[20..24].copy_from_slice(&captured.to_le_bytes());
            let mut blocks = Blocks::default();
            blocks.add(&block);
            assert!(blocks.take().is_err(), "{captured}");
        }
        // The length of each option is a lie, or its value is missing.
        for at in 36..whole.len() - 4 {
            let mut block = whole.clone();
            block[at] = 0xff;
            let mut blocks = Blocks::default();
            blocks.add(&block);
            assert!(matches!(blocks.take(), Ok(Some(Block::Frame(..)))), "{at}");
        }
        let mut blocks = Blocks::default();
        blocks.add(&bytes(&[5, 12, 12]));
        assert_eq!(blocks.take().unwrap(), Some(Block::Statistics(Statistics::default())));
    }
}
