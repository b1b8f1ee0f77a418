//! Inspects disk images that a stranger may have made, before QEMU sees them.
//!
//! [`inspect`] is told the format of an image and never guesses it: a guest can write any header on
//! its raw disk. It reads only headers, at most [`MAX_READ`] bytes, and follows no name. It returns
//! what the image consists of ([`Image`]), so that the caller opens each file itself and names each
//! node to QEMU, or the reason why the image is refused ([`Refusal`]).
//!
//! The program `taut-inspect` does this in a process of its own and prints an [`Answer`].

mod answer;
#[cfg(feature = "corpus")]
pub mod corpus;
mod image;
mod name;
pub mod overlay;
mod qcow2;
mod read_at;
mod refusal;
mod vmdk;

pub use answer::{Answer, AnswerError, MAX_ANSWER, Refused};
pub use image::{Backing, Extent, Format, Image, MAX_VIRTUAL_SIZE, Subformat, UnknownFormat};
pub use name::{NameFault, bare_name, plain_name};
pub use read_at::{MAX_READ, ReadAt, ReadError};
pub use refusal::{Place, Refusal, Table};

use image::SECTOR;
use read_at::Bounded;

/// Inspects an image of the given format.
///
/// # Errors
/// Returns the reason why the image is refused.
pub fn inspect(image: &dyn ReadAt, format: Format) -> Result<Image, Refusal> {
    let file = Bounded::new(image)?;
    match format {
        Format::Raw => inspect_raw(file.size()),
        Format::Qcow2 => qcow2::inspect(&file),
        Format::Vmdk => vmdk::inspect(&file),
    }
}

/// Nothing inside a raw image is looked at. QEMU rounds its size up to whole sectors.
fn inspect_raw(size: u64) -> Result<Image, Refusal> {
    if size == 0 {
        return Err(Refusal::NoSize);
    }
    if size > MAX_VIRTUAL_SIZE {
        return Err(Refusal::TooLarge { size });
    }
    Ok(Image { stated_size: size, ..Image::new(Format::Raw, size.next_multiple_of(SECTOR)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_image_is_its_size_in_whole_sectors() {
        let image = inspect(&vec![0; 1024], Format::Raw).unwrap();
        assert_eq!((image.virtual_size, image.stated_size), (1024, 1024));
        let image = inspect(&vec![0; 1025], Format::Raw).unwrap();
        assert_eq!((image.virtual_size, image.stated_size), (1536, 1025));
        assert_eq!(inspect(&Vec::new(), Format::Raw), Err(Refusal::NoSize));
    }

    #[test]
    fn a_header_on_a_raw_disk_is_data() {
        let image = inspect(&overlay::empty_qcow2(1 << 20).unwrap(), Format::Raw).unwrap();
        assert_eq!((image.format, image.backing), (Format::Raw, None));
    }
}
