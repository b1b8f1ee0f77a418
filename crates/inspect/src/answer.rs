//! The answer of the program `taut-inspect`: one line of JSON. The reader trusts none of it, since
//! a stranger's image may have taken the program over.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use crate::image::{Format, Image, MAX_VIRTUAL_SIZE, Subformat};
use crate::name::{bare_name, plain_name};
use crate::refusal::Refusal;

/// Most bytes of an answer with its newline: 64 KiB.
pub const MAX_ANSWER: usize = 64 << 10;

/// The answer that the program prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The image is accepted.
    Image(Image),
    /// The image is refused.
    Refused(Refused),
}

/// A refusal as the user sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refused {
    /// The reason with its causes.
    pub message: String,
    /// Advice for the user.
    pub hint: String,
}

/// Why an answer is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// The pipe failed.
    #[error("the answer of the image inspector cannot be read")]
    Unreadable(#[source] io::Error),
    /// The program ended before it answered, for example at its limit of CPU time.
    #[error("the image inspector ended without an answer")]
    Missing,
    /// More than [`MAX_ANSWER`] bytes.
    #[error("the image inspector answered more than {MAX_ANSWER} bytes")]
    TooLong,
    /// Not exactly one line.
    #[error("the image inspector answered {bytes} bytes that are not exactly one line")]
    NotOneLine {
        /// Length of the answer.
        bytes: usize,
    },
    /// Not the expected JSON.
    #[error("the answer of the image inspector is not understood")]
    Malformed(#[source] serde_json::Error),
    /// JSON that no inspection results in.
    #[error("the image inspector answered an impossible {what}")]
    Impossible {
        /// Part of the answer.
        what: &'static str,
    },
}

impl AnswerError {
    /// Returns what the user can do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Unreadable(_) | Self::Missing => {
                "an image that needs more than its header read is damaged: check it with `qemu-img check`; \
                 otherwise look for the inspector's end in the kernel's log"
            }
            _ => "do not trust this image: use another one, and report what happened",
        }
        .to_owned()
    }
}

impl From<Result<Image, Refusal>> for Answer {
    fn from(inspected: Result<Image, Refusal>) -> Self {
        match inspected {
            Ok(image) => Self::Image(image),
            Err(refusal) => Self::Refused(Refused { message: refusal.message(), hint: refusal.hint() }),
        }
    }
}

impl Answer {
    /// Returns the answer as a line with its newline.
    ///
    /// # Errors
    /// Fails only if the memory limit is reached.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self).map(|line| line + "\n")
    }

    /// Reads an answer up to the end of the stream. `format` is the one that the program was told.
    /// The caller sets a deadline by closing the stream's other end, as by killing the program.
    ///
    /// # Errors
    /// Fails if the answer is incomplete, too long, or not one that an inspection can have.
    pub fn read(stream: impl Read, format: Format) -> Result<Self, AnswerError> {
        let mut bytes = Vec::new();
        stream.take(MAX_ANSWER as u64 + 1).read_to_end(&mut bytes).map_err(AnswerError::Unreadable)?;
        if bytes.is_empty() {
            return Err(AnswerError::Missing);
        }
        if bytes.len() > MAX_ANSWER {
            return Err(AnswerError::TooLong);
        }
        if bytes.iter().position(|byte| *byte == b'\n') != Some(bytes.len() - 1) {
            return Err(AnswerError::NotOneLine { bytes: bytes.len() });
        }
        let answer: Self = serde_json::from_slice(&bytes).map_err(AnswerError::Malformed)?;
        match answer.impossible(format) {
            Some(what) => Err(AnswerError::Impossible { what }),
            None => Ok(answer),
        }
    }

    /// Returns the first part that no inspection of an image of this format results in.
    fn impossible(&self, format: Format) -> Option<&'static str> {
        let checks: &[(bool, &'static str)] = match self {
            Self::Refused(Refused { message, hint }) => &[
                (is_one_line(message), "message"), //
                (is_one_line(hint), "hint"),
            ],
            Self::Image(image) => &[
                (image.format == format, "format"),
                ((1..=MAX_VIRTUAL_SIZE).contains(&image.virtual_size), "virtual size"),
                (image.virtual_size.abs_diff(image.stated_size) < crate::image::SECTOR, "stated size"),
                (has_plain_backing(image), "backing file"),
                (has_bare_extents(image), "extent"),
                (image.subformat.is_some() == (format == Format::Vmdk), "subformat"),
            ],
        };
        checks.iter().find(|(is_possible, _)| !is_possible).map(|(_, what)| *what)
    }
}

fn is_one_line(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

fn has_plain_backing(image: &Image) -> bool {
    match &image.backing {
        None => true,
        Some(backing) => image.format == Format::Qcow2 && plain_name(&backing.name).is_ok(),
    }
}

/// Only a flat VMDK has an extent, and that is the whole disk.
fn has_bare_extents(image: &Image) -> bool {
    match (&image.extents[..], image.subformat) {
        ([extent], Some(Subformat::MonolithicFlat)) => {
            bare_name(&extent.name).is_ok()
                && extent.size == image.virtual_size
                && extent.offset.checked_add(extent.size).is_some()
        }
        (extents, subformat) => extents.is_empty() && subformat != Some(Subformat::MonolithicFlat),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{Backing, Extent};

    fn overlay() -> Image {
        let backing = Backing { name: "base.img".to_owned(), format: Format::Raw };
        Image { backing: Some(backing), version: Some(3), ..Image::new(Format::Qcow2, 1 << 20) }
    }

    fn flat() -> Image {
        let extent = Extent { name: "d-flat.vmdk".to_owned(), offset: 0, size: 1 << 20 };
        Image {
            extents: vec![extent],
            subformat: Some(Subformat::MonolithicFlat),
            ..Image::new(Format::Vmdk, 1 << 20)
        }
    }

    fn read(line: &str, format: Format) -> Result<Answer, AnswerError> {
        Answer::read(line.as_bytes(), format)
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let refused = Answer::from(Err(Refusal::Corrupt));
        let images = [overlay(), flat(), Image::new(Format::Raw, 512)].map(Answer::Image);
        for (answer, format) in images.into_iter().zip([Format::Qcow2, Format::Vmdk, Format::Raw]) {
            assert_eq!(read(&answer.to_line().unwrap(), format).unwrap(), answer);
        }
        assert_eq!(read(&refused.to_line().unwrap(), Format::Raw).unwrap(), refused);
        assert_eq!(
            Answer::Image(overlay()).to_line().unwrap(),
            "{\"image\":{\"format\":\"qcow2\",\"virtual_size\":1048576,\"stated_size\":1048576,\
             \"backing\":{\"name\":\"base.img\",\"format\":\"raw\"},\"version\":3}}\n"
        );
    }

    #[test]
    fn an_answer_is_one_short_line_of_known_json() {
        let told = |line: &str| read(line, Format::Raw).unwrap_err();
        assert!(matches!(told(""), AnswerError::Missing));
        assert!(matches!(told("{}"), AnswerError::NotOneLine { bytes: 2 }));
        assert!(matches!(told("{}\n{}\n"), AnswerError::NotOneLine { bytes: 6 }));
        assert!(matches!(told("{}\n"), AnswerError::Malformed(_)));
        assert!(matches!(told("{\"image\":{}}\n"), AnswerError::Malformed(_)));
        assert!(matches!(told(&"[".repeat(MAX_ANSWER)), AnswerError::NotOneLine { bytes: MAX_ANSWER }));
        assert!(matches!(told(&("[".repeat(MAX_ANSWER - 1) + "\n")), AnswerError::Malformed(_)));
        assert!(matches!(told(&"[".repeat(MAX_ANSWER + 1)), AnswerError::TooLong));
        let more = "{\"refused\":{\"message\":\"a\",\"hint\":\"b\",\"path\":\"c\"}}\n";
        assert!(matches!(told(more), AnswerError::Malformed(_)));
    }

    #[test]
    fn an_answer_that_no_inspection_has_is_not_accepted() {
        let of_overlay = |change: fn(&mut Image)| {
            let mut image = overlay();
            change(&mut image);
            image
        };
        let of_flat = |change: fn(&mut Image)| {
            let mut image = flat();
            change(&mut image);
            image
        };
        let named =
            |image: &mut Image, name: &str| name.clone_into(&mut image.backing.as_mut().unwrap().name);
        let mut outside = overlay();
        named(&mut outside, "../base.img");
        let cases = [
            (outside, "backing file"),
            (of_overlay(|image| image.format = Format::Raw), "format"),
            (of_overlay(|image| image.virtual_size = 0), "virtual size"),
            (of_overlay(|image| image.virtual_size = MAX_VIRTUAL_SIZE + 1), "virtual size"),
            (of_overlay(|image| image.stated_size += 512), "stated size"),
            (of_overlay(|image| image.extents = flat().extents), "extent"),
            (of_overlay(|image| image.subformat = Some(Subformat::StreamOptimized)), "subformat"),
            (of_flat(|image| image.extents[0].name = "/etc/shadow".to_owned()), "extent"),
            (of_flat(|image| image.extents[0].size = 512), "extent"),
            (of_flat(|image| image.extents[0].offset = u64::MAX), "extent"),
            (of_flat(|image| image.extents.clear()), "extent"),
            (of_flat(|image| image.backing = overlay().backing), "backing file"),
        ];
        for (image, expected) in cases {
            let format =
                if image.subformat == Some(Subformat::MonolithicFlat) { Format::Vmdk } else { Format::Qcow2 };
            let error = read(&Answer::Image(image).to_line().unwrap(), format).unwrap_err();
            assert!(matches!(error, AnswerError::Impossible { what } if what == expected), "{error:?}");
        }
        let refused = Refused { message: "a\u{1b}[2J".to_owned(), hint: "b".to_owned() };
        let error = read(&Answer::Refused(refused).to_line().unwrap(), Format::Raw).unwrap_err();
        assert!(matches!(error, AnswerError::Impossible { what: "message" }), "{error:?}");
        assert!(error.hint().contains("do not trust"));
    }
}
