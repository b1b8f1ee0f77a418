//! Report on an imported VM description (`.vmx`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One key of the imported file and its fate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportedKey {
    /// The key as the file wrote it.
    pub key: String,
    /// Its value as the file wrote it.
    pub value: String,
    /// Fate of the key.
    pub fate: Fate,
}

/// Fate of an imported key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "fate")]
pub enum Fate {
    /// Taken over with the same meaning.
    Understood {
        /// The field of the VM's spec that holds it.
        field: String,
    },
    /// Taken over with a different meaning or value.
    Mapped {
        /// The field of the VM's spec that holds it.
        field: String,
        /// The new meaning or value, with the reason.
        note: String,
    },
    /// Known, but without effect in this version; only reported.
    Reported {
        /// Why it has no effect.
        note: String,
    },
    /// Not known to taut.
    Ignored,
}
