//! The content of a VM file.

use std::collections::BTreeSet;

use taut_api::Name;
use taut_api::import::{Fate, ImportedKey};
use taut_api::vm::VmSpec;

/// A VM file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Name of the VM: that of the request if it has one, otherwise that in the file (`name`,
    /// `displayName`).
    pub name: Option<Name>,
    /// The VM. After [`crate::definition::parse`] defaults are filled in, paths are absolute and
    /// the spec is valid in itself. If the VM has a name, every vNIC has its address.
    pub spec: VmSpec,
    /// The fate of every key of a `.vmx`, in the order of the file.
    pub imported: Vec<ImportedKey>,
}

impl Parsed {
    /// Moves the vNICs of a `.vmx` whose port group does not exist to `default`, and notes that in
    /// the report.
    pub fn replace_unknown_portgroups(&mut self, exists: impl Fn(&Name) -> bool, default: &Name) {
        let unknown: BTreeSet<Name> =
            self.spec.nics.iter().map(|nic| nic.portgroup.clone()).filter(|name| !exists(name)).collect();
        for (index, nic) in self.spec.nics.iter_mut().enumerate() {
            if !unknown.contains(&nic.portgroup) {
                continue;
            }
            let field = format!("nic[{index}].portgroup");
            let note = format!("{default}: there is no port group `{}`", nic.portgroup);
            remark(&mut self.imported, &field, &note);
            nic.portgroup = default.clone();
        }
    }

    /// Notes in the report that a field has another value than its key in the file.
    pub fn remark(&mut self, field: &str, note: &str) {
        remark(&mut self.imported, field, note);
    }
}

fn remark(imported: &mut [ImportedKey], field: &str, note: &str) {
    for key in imported {
        if matches!(&key.fate, Fate::Understood { field: f } | Fate::Mapped { field: f, .. } if f == field) {
            key.fate = Fate::Mapped { field: field.to_owned(), note: note.to_owned() };
        }
    }
}
