//! `.vmx` files, as `taut vm create` passes them to the daemon.
//!
//! Input: see `vm_file`.

use taut_api::route::VmFormat;

use crate::vm_file::read_within_rules;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "vmx", run, budget: Budget::of(50, 4) };

fn run(data: &[u8]) {
    let Some((text, parsed)) = read_within_rules(data, VmFormat::Vmx) else { return };
    // Each line that sets a key is reported.
    assert!(parsed.imported.len() <= text.lines().count());
    assert!(parsed.spec.disk.is_some(), "without a disk there is nothing to import");
    for key in &parsed.imported {
        assert!(!key.key.is_empty() && key.key.bytes().all(|byte| byte.is_ascii_graphic()), "{key:?}");
    }
}
