//! The accelerator that a VM's file names.

use taut_api::machine::{AcceleratorChoice, VmAccelerator};
use taut_api::vm::VmSpec;

use crate::facts::{Explanation, Process};

/// Explains the accelerator of a VM that names one.
pub(crate) fn explain_accelerator(spec: &VmSpec, process: Option<&Process>) -> Explanation {
    let mut told = Explanation::default();
    let wanted = match spec.accelerator {
        AcceleratorChoice::Auto => return told,
        AcceleratorChoice::Kvm => VmAccelerator::Kvm,
        AcceleratorChoice::Tcg => VmAccelerator::Tcg,
    };
    let rule = "accelerator: the VM's own choice, which overrides the probe of this host";
    match process.map(|process| process.accelerator) {
        Some(other) if other != wanted => {
            told.decide_from(true, format!("it runs under {wanted}; it was started under {other}"), rule);
        }
        _ => told.decide(format!("it runs under {wanted}"), rule),
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_accelerator_needs_a_restart() {
        let spec = VmSpec { accelerator: AcceleratorChoice::Kvm, ..VmSpec::default() };
        let restart = |accelerator| {
            let process = Process { accelerator, ..Process::default() };
            explain_accelerator(&spec, Some(&process)).decisions[0].restart
        };
        assert!(restart(VmAccelerator::Tcg) && !restart(VmAccelerator::Kvm));
        assert_eq!(explain_accelerator(&VmSpec::default(), None), Explanation::default());
    }
}
