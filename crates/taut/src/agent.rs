//! Agents inside VMs, and their errors as ours.

use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::route::Vm;
use taut_bench::agent::{Client as Agent, ClientError};

/// How long an agent may take to answer what it does not have to measure; a guest under emulation is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Speaks to the agent inside a VM, as soon as it answers within `patience`.
pub(crate) fn of_vm(vm: &Vm, patience: Duration) -> Result<Agent, ApiError> {
    let Some(socket) = &vm.status.agent_socket else {
        return Err(ApiError::new(
            ErrorKind::Conflict,
            format!("{} is not running", vm.name),
            format!("start it: taut vm start --wait {}", vm.name),
        ));
    };
    Agent::connect(socket.as_ref(), patience).map_err(|error| failed(&error))
}

/// An agent's error with its causes and hint.
pub(crate) fn failed(error: &ClientError) -> ApiError {
    let shown = ApiError::new(ErrorKind::Unavailable, error.to_string(), error.hint());
    match std::error::Error::source(error) {
        Some(cause) => shown.because(cause),
        None => shown,
    }
}
