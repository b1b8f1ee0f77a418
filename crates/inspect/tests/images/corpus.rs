//! The corpus in code: what is hostile is refused for the expected reason, what is valid is not.

use std::collections::BTreeSet;
use std::fs;

use taut_inspect::corpus::{hostile, valid};
use taut_inspect::{Format, Subformat};

use crate::counting::inspect_counted;
use crate::qemu_img::qemu_img;

#[test]
fn every_hostile_image_is_refused_for_its_reason() {
    for case in hostile() {
        let refusal = inspect_counted(&case.image, case.format).expect_err(&case.name);
        assert_eq!(refusal, case.refusal, "{}", case.name);
        assert_ne!(refusal.message(), refusal.hint(), "{}", case.name);
    }
}

#[test]
fn every_valid_image_is_accepted() {
    for case in valid() {
        assert_eq!(inspect_counted(&case.image, case.format), Ok(case.answer), "{}", case.name);
    }
}

#[test]
fn the_corpus_is_large_and_each_image_has_a_name() {
    let (hostile, valid) = (hostile(), valid());
    let names = hostile.iter().map(|case| &case.name).chain(valid.iter().map(|case| &case.name));
    let unique: BTreeSet<_> = names.collect();
    assert_eq!(unique.len(), hostile.len() + valid.len());
    for format in [Format::Qcow2, Format::Vmdk] {
        let count = hostile.iter().filter(|case| case.format == format).count();
        assert!(count >= 40, "{count} hostile images of {format}");
    }
}

#[test]
fn a_hostile_image_is_nothing_but_bytes_as_a_raw_one() {
    for case in hostile().into_iter().filter(|case| !case.image.is_empty()) {
        let image = inspect_counted(&case.image, Format::Raw).expect(&case.name);
        assert_eq!((image.backing, image.extents), (None, Vec::new()), "{}", case.name);
    }
}

/// QEMU opens the valid images, too, and sees the same size. A flat disk's other file is missing.
#[test]
fn qemu_sees_valid_images_in_the_same_way() {
    let folder = tempfile::tempdir().unwrap();
    for case in valid() {
        if case.answer.subformat == Some(Subformat::MonolithicFlat) {
            continue;
        }
        fs::write(folder.path().join("image"), &case.image).unwrap();
        let told = qemu_img(folder.path(), &["info", "--output=json", "-f", case.format.name(), "image"]);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["virtual-size"], case.answer.virtual_size, "{}", case.name);
        let backing = case.answer.backing.as_ref();
        let name = backing.map(|backing| backing.name.clone().into());
        assert_eq!(told.get("backing-filename"), name.as_ref(), "{}", case.name);
        let format = backing.map(|backing| backing.format.name().into());
        let is_recorded = format.is_none() || told.get("backing-filename-format") == format.as_ref();
        assert!(is_recorded, "{}: {told}", case.name);
    }
}
