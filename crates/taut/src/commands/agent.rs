//! The agent inside a VM.

use taut_api::route::Vm;

use crate::Outcome;
use crate::output::Format;

pub(crate) fn addresses(_vm: &Vm, _format: Format) -> Outcome {
    Ok(())
}

pub(crate) fn wait(_vm: &Vm) -> Outcome {
    Ok(())
}
