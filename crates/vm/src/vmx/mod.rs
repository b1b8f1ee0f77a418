//! VMware's `.vmx` files.

use taut_api::{ApiError, Name};

use crate::definition::{Parsed, invalid};

/// Reads a `.vmx`.
pub(crate) fn import(_text: &str, _default_portgroup: Option<&Name>) -> Result<Parsed, ApiError> {
    Err(invalid("this version reads no .vmx files", "use taut's own VM file"))
}
