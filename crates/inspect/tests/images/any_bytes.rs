//! Any bytes, and valid images with random changes, lead to an answer within the limits.

use proptest::collection::vec;
use proptest::prelude::*;
use taut_inspect::corpus::valid;
use taut_inspect::{Format, MAX_VIRTUAL_SIZE};

use crate::counting::inspect_counted;

/// First bytes that lead to each parser.
const BEGINNINGS: [&[u8]; 5] =
    [b"", b"QFI\xfb\0\0\0\x02", b"QFI\xfb\0\0\0\x03", b"KDMV\x01\0\0\0", b"# Disk DescriptorFile\n"];

/// Words and signs of descriptors.
const WORDS: [&str; 24] = [
    "\n",
    "\n",
    " ",
    "=",
    "\"",
    "#",
    "RW",
    "RDONLY",
    "4096",
    "0",
    "FLAT",
    "SPARSE",
    "ZERO",
    "x.vmdk",
    "/",
    "..",
    "CID",
    "parentCID",
    "ffffffff",
    "createType",
    "monolithicFlat",
    "ddb.",
    "\r",
    "ö",
];

/// Inspects bytes in every format.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    for format in Format::ALL {
        match inspect_counted(bytes, format) {
            Ok(image) => prop_assert!((1..=MAX_VIRTUAL_SIZE).contains(&image.virtual_size)),
            Err(refusal) => prop_assert!(!refusal.hint().is_empty()),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_lead_to_an_answer(begin in 0..BEGINNINGS.len(), rest in vec(any::<u8>(), 0..2048)) {
        check(&[BEGINNINGS[begin], &rest].concat())?;
    }

    #[test]
    fn a_changed_image_leads_to_an_answer(
        which in any::<prop::sample::Index>(),
        changes in vec((0..200_usize, any::<u8>()), 1..6),
        len in prop::option::of(0..4096_usize),
    ) {
        let valid = valid();
        let mut bytes = which.get(&valid).image.clone();
        for (at, byte) in changes {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        bytes.resize(len.unwrap_or(bytes.len()), 0);
        check(&bytes)?;
    }

    #[test]
    fn any_words_of_a_descriptor_lead_to_an_answer(words in vec(0..WORDS.len(), 0..100)) {
        let text: String = words.into_iter().map(|word| WORDS[word]).collect();
        check(format!("# Disk DescriptorFile\n{text}").as_bytes())?;
    }
}
