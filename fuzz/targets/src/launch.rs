//! Documents and reports of the launcher. A document that is understood keeps its rules and is
//! written and read unchanged. The pieces in which a report arrives do not matter.
//!
//! Input: 1 byte for the kind (document, skeleton, report of a launch, report of a skeleton), 1
//! byte for the size of a report's pieces, then the bytes of it.

use std::fmt::Write as _;
use std::path::{Component, PathBuf};

use taut_launch::{Document, FIRST_INHERITED, LaunchError, Report, Skeleton};

use crate::input::Input;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "launch", run, budget: Budget::of(100, 8) };

fn run(data: &[u8]) {
    let mut input = Input(data);
    let (kind, piece) = (input.u8() % 4, usize::from(input.u8()).max(1));
    match kind {
        0 => document(input.0),
        1 => skeleton(input.0),
        _ => report(input.0, piece, kind == 3),
    }
}

fn document(bytes: &[u8]) {
    let document = match Document::parse(bytes) {
        Ok(document) => document,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(document.uid != 0 && document.gid != 0);
    assert!(document.uid != u32::MAX && document.gid != u32::MAX);
    let skeleton = document.root.skeleton;
    assert!(document.keep.iter().chain([&document.program]).chain(&skeleton).all(|n| *n >= FIRST_INHERITED));
    assert!(skeleton.is_none_or(|number| !document.keep.contains(&number)));
    let root = &document.root;
    check_paths([&root.system, &root.read_only, &root.writable]);
    assert!(document.args.iter().chain(&document.env).all(|text| !text.contains('\0')));
    let again = document.to_bytes().expect("a document that was read can be written");
    assert_eq!(Document::parse(&again).expect("and read"), document);
}

fn skeleton(bytes: &[u8]) {
    let Ok(skeleton) = Skeleton::parse(bytes) else { return };
    check_paths([&skeleton.system]);
    let again = skeleton.to_bytes().expect("a skeleton that was read can be written");
    assert_eq!(Skeleton::parse(&again).expect("and read"), skeleton);
}

/// Checks that paths lead straight down from the root.
fn check_paths<const N: usize>(lists: [&Vec<PathBuf>; N]) {
    for path in lists.into_iter().flatten() {
        let mut parts = path.components();
        assert_eq!(parts.next(), Some(Component::RootDir));
        assert!(parts.clone().count() > 0 && parts.all(|part| matches!(part, Component::Normal(_))));
    }
}

fn report(bytes: &[u8], piece: usize, is_skeleton: bool) {
    let whole = outcome(bytes.chunks(bytes.len().max(1)), is_skeleton);
    assert_eq!(outcome(bytes.chunks(piece), is_skeleton), whole);
}

/// Returns what a report says, as a text that can be compared.
fn outcome<'a>(pieces: impl Iterator<Item = &'a [u8]>, is_skeleton: bool) -> String {
    let mut report = Report::default();
    let mut text = String::new();
    for piece in pieces {
        if let Err(error) = report.feed(piece) {
            return describe(&error);
        }
    }
    let pid = report.pid();
    let finished =
        if is_skeleton { report.finish_skeleton().map(|()| None) } else { report.finish().map(Some) };
    match finished {
        Ok(None) => text.push_str("skeleton"),
        Ok(Some(launched)) => {
            assert_eq!(pid, Some(launched.pid));
            assert!(i32::try_from(launched.pid).is_ok_and(|pid| pid > 0));
            let _ = write!(text, "{launched:?}");
        }
        Err(error) => text = describe(&error),
    }
    text
}

fn describe(error: &LaunchError) -> String {
    let text = error.to_string();
    assert!(!text.contains(char::is_control) && text.len() < 8192, "{text}");
    assert!(!error.hint().is_empty());
    text
}
