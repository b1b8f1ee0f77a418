//! The latency-sensitive VM of an experiment. Its level is changed during the experiment and
//! restored at the end.

use std::thread::sleep;
use std::time::{Duration, Instant};

use taut_api::error::ErrorKind;
use taut_api::latency::LatencyState;
use taut_api::patch::{LatencyPatch, VmPatch};
use taut_api::path;
use taut_api::route::Vm;
use taut_api::vm::LatencySensitivity;
use taut_api::{ApiError, Name};

use crate::client::Client;
use crate::output::{self, Outcome};

/// Time that a level may take to be in force.
const PATIENCE: Duration = Duration::from_secs(10);

/// A VM whose level is changed.
pub(super) struct Sensitive<'c> {
    client: &'c Client,
    name: Name,
    before: LatencySensitivity,
    now: LatencySensitivity,
}

impl<'c> Sensitive<'c> {
    /// Reads the VM, which must be running.
    pub(super) fn new(client: &'c Client, name: &Name) -> Result<Self, ApiError> {
        let vm: Vm = client.get(&path::VM.of(name))?;
        pid(&vm)?;
        let before = vm.spec.vm.latency_sensitivity;
        Ok(Self { client, name: name.clone(), before, now: before })
    }

    /// Sets a level and waits until it is in force.
    pub(super) fn make(&mut self, level: LatencySensitivity) -> Outcome {
        if level == self.now {
            return Ok(());
        }
        self.change(level)?;
        let begun = Instant::now();
        loop {
            let vm: Vm = self.client.get(&path::VM.of(&self.name))?;
            let state = vm.status.latency.clone().unwrap_or_default();
            let done = match level {
                LatencySensitivity::Normal => vm.status.latency.is_none(),
                _ => matches!(state.state, LatencyState::Granted | LatencyState::Partly),
            };
            // Effects that need a restart are reported with the results; exclusive pCPUs are what
            // is measured.
            if done && (level == LatencySensitivity::Normal || !state.cpus.is_empty()) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let why = if state.missing.is_empty() {
                    String::new()
                } else {
                    format!(": {}", state.missing.join("; "))
                };
                return Err(ApiError::new(
                    ErrorKind::Conflict,
                    format!("{} has no exclusive pCPUs as {}{why}", self.name, output::word(&level)),
                    format!("taut vm set {} --memory-reservation full --cpu-reservation full", self.name),
                ));
            }
            sleep(Duration::from_millis(20));
        }
    }

    fn change(&mut self, level: LatencySensitivity) -> Outcome {
        let latency = LatencyPatch { latency_sensitivity: Some(level), ..LatencyPatch::default() };
        let patch = VmPatch { latency, ..VmPatch::default() };
        let _: Vm = self.client.patch(&path::VM.of(&self.name), &patch)?;
        self.now = level;
        Ok(())
    }
}

impl Drop for Sensitive<'_> {
    fn drop(&mut self) {
        if self.now != self.before {
            // The results matter more than this error; `taut vm show` tells the level.
            let _ = self.change(self.before);
        }
    }
}

/// Returns the process of a running VM.
pub(super) fn pid(vm: &Vm) -> Result<u32, ApiError> {
    vm.status.pid.ok_or_else(|| {
        let hint = format!("taut vm start --wait {}", vm.name);
        ApiError::new(ErrorKind::Conflict, format!("{} is not running", vm.name), hint)
    })
}
