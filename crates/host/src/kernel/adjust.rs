//! Changes to files of the kernel that are computed from what a file contains.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Computes the wanted content from the content without this change; `None` leaves the file alone.
pub(crate) type Adjustment<'a> = Box<dyn Fn(&str) -> Option<String> + 'a>;

/// The files to change, and the change of each.
pub(crate) type Adjustments<'a> = BTreeMap<PathBuf, Adjustment<'a>>;
