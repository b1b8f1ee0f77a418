//! Connections to agents inside VMs, with their errors as API errors.

use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::route::Vm;
use taut_bench::agent::{Client as Agent, ClientError};

/// Longest time for an answer that needs no measurement. A guest under emulation is slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Connects to the agent inside a VM, waiting up to `patience` for its first answer.
pub(crate) fn of_vm(vm: &Vm, patience: Duration) -> Result<Agent, ApiError> {
    let Some(socket) = &vm.status.agent_socket else {
        return Err(ApiError::new(
            ErrorKind::Conflict,
            format!("{} is not running", vm.name),
            format!("start it: taut vm start --wait {}", vm.name),
        ));
    };
    Agent::connect(vm.name.to_string(), socket.as_ref(), patience).map_err(|error| failed(&error))
}

/// Converts an agent's error, with its causes and hint.
pub(crate) fn failed(error: &ClientError) -> ApiError {
    let shown = ApiError::new(ErrorKind::Unavailable, error.to_string(), error.hint());
    match std::error::Error::source(error) {
        Some(cause) => shown.because(cause),
        None => shown,
    }
}
