//! The headers of qcow2 images, as the image inspector reads them.
//!
//! Input: see `image_file`.

use taut_inspect::Format;

use crate::image_file::{ImageFile, inspect_within_budget};
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "qcow2", run, budget: Budget::of(200, 16) };

/// Incompatible features that an accepted image may have: unclean shutdown, compression type.
const ACCEPTED: u64 = 0b1001;

fn run(data: &[u8]) {
    let file = ImageFile::of_input(data);
    let Some(image) = inspect_within_budget(&file, Format::Qcow2) else { return };
    // What QEMU would open besides this file is in the answer, or does not exist.
    let mut header = [0; 80];
    file.copy_to(&mut header, 0);
    let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().expect("8 bytes"));
    let (backing_offset, backing_len) = (number(8), number(16) >> 32);
    assert_eq!(image.backing.is_some(), backing_offset != 0 && backing_len != 0);
    if image.version == Some(3) {
        assert_eq!(number(72) & !ACCEPTED, 0);
    }
    if let Some(backing) = image.backing {
        let mut name = vec![0; backing_len as usize];
        file.copy_to(&mut name, backing_offset);
        assert_eq!(backing.name.as_bytes(), name);
    }
}
