//! Images for tests: hostile ones, each with the reason for its refusal, and valid ones. They are
//! made from a small valid image by changing single fields.

mod bytes;
mod qcow2;
mod vmdk_file;
mod vmdk_text;

use crate::image::{Format, Image};
use crate::refusal::Refusal;

/// An image that must be refused.
#[derive(Debug, Clone)]
pub struct Hostile {
    /// The attack that the image tries, in words.
    pub name: String,
    /// Format that the inspector is told.
    pub format: Format,
    /// Bytes of the file.
    pub image: Vec<u8>,
    /// The expected reason.
    pub refusal: Refusal,
}

/// An image that must be accepted.
#[derive(Debug, Clone)]
pub struct Valid {
    /// The property that sets the image apart, in words.
    pub name: String,
    /// Format that the inspector is told.
    pub format: Format,
    /// Bytes of the file.
    pub image: Vec<u8>,
    /// The expected answer of the inspector.
    pub answer: Image,
}

/// Returns all hostile images. Names are unique.
pub fn hostile() -> Vec<Hostile> {
    [qcow2::hostile(), vmdk_file::hostile(), vmdk_text::hostile()].concat()
}

/// Returns valid images, at least one of each kind. Names are unique.
pub fn valid() -> Vec<Valid> {
    let raw = Valid {
        name: "raw: any bytes".to_owned(),
        format: Format::Raw,
        image: b"QFI\xfb".repeat(256),
        answer: Image::new(Format::Raw, 1024),
    };
    [vec![raw], qcow2::valid(), vmdk_file::valid(), vmdk_text::valid()].concat()
}
