//! Reading the document.

use std::fs::File;
use std::io::{Read as _, Seek as _};

use taut_launch::{DOCUMENT_FD, DocumentError, MAX_DOCUMENT, Step};

use crate::failure::{Failed, Within as _};
use crate::sys::inherited;

/// Reads the document to its end and parses it. A file, such as a memfd, is read from its
/// beginning.
pub(crate) fn read<T>(parse: impl FnOnce(&[u8]) -> Result<T, DocumentError>) -> Result<T, Failed> {
    let at = || format!("descriptor {DOCUMENT_FD}");
    let mut file = File::from(inherited::take(DOCUMENT_FD).within(Step::Document, at)?);
    // A pipe has no position, and is at its beginning.
    let _ = file.rewind();
    let mut bytes = Vec::new();
    // One byte more than allowed shows that a document is too long.
    file.take(MAX_DOCUMENT as u64 + 1).read_to_end(&mut bytes).within(Step::Document, at)?;
    parse(&bytes).within(Step::Document, at)
}
