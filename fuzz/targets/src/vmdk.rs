//! VMDK headers and descriptors, as the image inspector reads them.
//!
//! Input: see `image_file`.

use taut_inspect::{Format, Subformat};

use crate::image_file::{ImageFile, inspect_within_budget};
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "vmdk", run, budget: Budget::of(200, 16) };

/// What QEMU searches for the name of a parent: up to 20 sectors, from the second one of an image
/// with a binary header, up to the first zero.
const SEARCHED: usize = 20 * 512;
const PARENT: &[u8] = b"parentFileNameHint";

fn run(data: &[u8]) {
    let file = ImageFile::of_input(data);
    let Some(image) = inspect_within_budget(&file, Format::Vmdk) else { return };
    let is_flat = image.subformat == Some(Subformat::MonolithicFlat);
    let mut searched = vec![0; SEARCHED];
    file.copy_to(&mut searched, if is_flat { 0 } else { 512 });
    let text = searched.split(|byte| *byte == 0).next().unwrap_or_default();
    assert!(!text.windows(PARENT.len()).any(|word| word == PARENT), "QEMU would open a parent");
}
