//! The kept corpus of a target.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use tar::Archive;

/// Names and contents of all inputs, in their order.
pub(crate) fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../corpus/{target}.tar.gz"));
    let file = File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut archive = Archive::new(GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<'_, GzDecoder<File>>>| {
        let mut entry = entry.unwrap();
        let mut input = Vec::new();
        entry.read_to_end(&mut input).unwrap();
        (entry.path().unwrap().display().to_string(), input)
    };
    archive.entries().unwrap().map(read).collect()
}
