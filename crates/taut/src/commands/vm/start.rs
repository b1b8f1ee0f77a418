//! `taut vm start`, and the start of a new VM.
//!
//! A start is a success once the VM has shown that it runs, or that its agent answers (`--wait`).
//! A VM that fails before ends the wait with the reason of its failure.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use taut_api::error::ErrorKind;
use taut_api::path;
use taut_api::route::{SetPower, Vm};
use taut_api::vm::{Phase, Power};
use taut_api::{ApiError, Name};

use super::{get, power};
use crate::client::Client;
use crate::commands::{PATIENCE, agent, timed_out, within, within_steps};
use crate::output::{Outcome, Output};
use crate::progress::Progress;

/// Longest wait until a VM runs, without `--wait`. The probe of KVM that precedes a daemon's first
/// start takes some seconds where KVM runs guests slowly.
const SHORTLY: Duration = Duration::from_secs(10);
/// Time between two looks at a VM whose agent is awaited.
const LOOK: Duration = Duration::from_millis(200);
/// Time in which the daemon notices that a VM has failed whose agent is gone.
const NOTICED: Duration = Duration::from_secs(3);

/// The VM, and what to wait for.
#[derive(Debug, Arguments)]
pub(crate) struct Args {
    /// Name of the VM
    name: Name,
    /// Wait until the agent inside answers
    #[arg(long)]
    wait: bool,
    /// Longest wait for the agent
    #[arg(long, value_name = "SECONDS", default_value_t = PATIENCE.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=86_400), requires = "wait")]
    timeout: u64,
}

pub(super) fn run(args: &Args, client: &Client, out: Output) -> Outcome {
    let Args { name, wait, timeout } = args;
    let before = get(client, name)?;
    let asked: Vm = client.post(&path::VM_POWER.of(name), &SetPower { power: Power::On, force: false })?;
    let ran = before.status.phase != Phase::Stopping
        && before.status.pid.is_some()
        && before.status.pid == asked.status.pid;
    let vm = if *wait {
        await_agent(client, name, Duration::from_secs(*timeout))?
    } else if ran {
        asked
    } else {
        await_process(client, name)?
    };
    out.changed(&vm, |vm| {
        let said = if ran { format!("{}; it ran already", power(vm)) } else { state(vm) };
        if *wait { format!("{said}; its agent answers") } else { said }
    });
    Ok(())
}

/// Waits shortly until the VM runs. Returns it also if it is still starting then.
pub(super) fn await_process(client: &Client, name: &Name) -> Result<Vm, ApiError> {
    match until_running(client, name, SHORTLY)? {
        Some(vm) => Ok(vm),
        None => get(client, name),
    }
}

/// Renders the state of a VM that was started.
pub(super) fn state(vm: &Vm) -> String {
    let name = &vm.name;
    if vm.status.phase == Phase::Running {
        return power(vm);
    }
    let why = vm.status.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{}{why}; it goes on, and `taut vm show {name}` shows its state", power(vm))
}

fn await_agent(client: &Client, name: &Name, patience: Duration) -> Result<Vm, ApiError> {
    let end = Instant::now() + patience;
    let Some(vm) = until_running(client, name, patience)? else {
        let step = get(client, name)?.status.reason.map(|step| format!(": {step}")).unwrap_or_default();
        return Err(timed_out(patience, &format!("{name} is running{step}")));
    };
    let left = end.saturating_duration_since(Instant::now());
    let advice = format!(
        "`taut vm console {name}` shows what the guest does; one without taut's agent does not answer \
         (docs/guide/operations.md: the agent in a VM of your own)"
    );
    let _progress = Progress::with_reports(&format!("waiting for the agent in {name}"), left, advice);
    let (done, answer) = channel();
    let asked = vm.clone();
    // The thread ends with the process if the VM fails first.
    thread::spawn(move || done.send(agent::wait(&asked, left)));
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(Ok(())) => return get(client, name),
            // The end of QEMU breaks the connection before the daemon has noticed the failure.
            Ok(Err(error)) => {
                let patience = NOTICED.min(end.saturating_duration_since(Instant::now()));
                let look = || has_ended(&get(client, name)?).map(|()| None::<()>);
                within(patience, &format!("the state of {name} is known"), look)?;
                return Err(error);
            }
            Err(RecvTimeoutError::Timeout) => has_ended(&get(client, name)?)?,
            Err(RecvTimeoutError::Disconnected) => {
                let message = format!("the wait for the agent in {name} was interrupted");
                return Err(ApiError::new(ErrorKind::Internal, message, "report this as a fault of taut"));
            }
        }
    }
}

/// Waits until the VM runs; returns nothing if it is still starting after `patience`.
fn until_running(client: &Client, name: &Name, patience: Duration) -> Result<Option<Vm>, ApiError> {
    within_steps(patience, &format!("{name} is running"), |progress| {
        let vm = get(client, name)?;
        has_ended(&vm)?;
        let step = vm.status.reason.as_ref().map(|step| format!(": {step}")).unwrap_or_default();
        progress.show(format!("waiting until {name} is running{step}"));
        Ok((vm.status.phase == Phase::Running).then_some(vm))
    })
}

/// Returns an error if the VM neither runs nor starts.
fn has_ended(vm: &Vm) -> Outcome {
    let name = &vm.name;
    match vm.status.phase {
        Phase::Failed => Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("VM {name} has failed: {}", vm.status.reason.as_deref().unwrap_or("no reason is known")),
            format!("`taut vm log {name}` and `taut events` show what happened before"),
        )),
        Phase::Stopped => Err(ApiError::new(
            ErrorKind::Unavailable,
            format!("VM {name} is off again: its guest has shut down, or somebody has stopped it"),
            "`taut events` shows what happened",
        )),
        Phase::Starting | Phase::Running | Phase::Stopping => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &str) -> Result<Args, clap::Error> {
        Line::try_parse_from(format!("start {args}").split_whitespace()).map(|line| line.args)
    }

    fn vm(status: &serde_json::Value) -> Vm {
        let vm = serde_json::json!({ "name": "db1", "revision": 1, "spec": {}, "status": status });
        serde_json::from_value(vm).unwrap()
    }

    #[test]
    fn only_a_wait_has_a_timeout() {
        let args = parse("db1 --wait").unwrap();
        assert!(args.wait && args.timeout == 180);
        assert_eq!(parse("db1 --wait --timeout 5").unwrap().timeout, 5);
        assert!(!parse("db1").unwrap().wait);
        for bad in ["db1 --timeout 5", "db1 --wait --timeout 0", "db1 --wait --timeout soon"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_vm_that_has_ended_is_an_error_with_its_reason() {
        let failed = vm(&serde_json::json!({ "phase": "failed", "reason": "its disk is in use" }));
        let error = has_ended(&failed).unwrap_err();
        assert_eq!(error.message, "VM db1 has failed: its disk is in use");
        assert!(has_ended(&vm(&serde_json::json!({ "phase": "stopped" }))).is_err());
        let starting = vm(&serde_json::json!({ "phase": "starting", "pid": 7, "reason": "QEMU is busy" }));
        assert!(has_ended(&starting).is_ok());
        let said =
            "VM db1: starting, process 7: QEMU is busy; it goes on, and `taut vm show db1` shows its state";
        assert_eq!(state(&starting), said);
        assert_eq!(
            state(&vm(&serde_json::json!({ "phase": "running", "pid": 7 }))),
            "VM db1: running, process 7"
        );
    }
}
