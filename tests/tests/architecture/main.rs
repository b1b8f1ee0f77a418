//! ARCHITECTURE.md and the other documents against the code: the arrows between crates, the arrows
//! between the folders of a crate, the files that documents name, and rules for comments and
//! scripts.

mod columns;
mod crates;
mod documents;
mod folders;
mod scripts;
mod source;
mod table;

use std::path::Path;

/// Root of the checkout.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}
