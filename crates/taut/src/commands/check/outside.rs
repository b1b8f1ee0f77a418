//! Facts for `taut check` that only the daemon has: VMs and their reservations.

use taut_api::check::Commitment;
use taut_api::error::ErrorKind;
use taut_api::host::{HostInfo, HostSettings};
use taut_api::path;
use taut_api::route::Vm;
use taut_api::tune::HostTune;
use taut_api::{ApiError, Name};
use taut_plan::checklist::{self, Profile, Report, VmFacts};

use taut_bench::agent::protocol::{Answer, Check, Checked, Request};

use crate::agent::{self, PATIENCE};
use crate::client::Client;
use crate::output::{self, Format};
use crate::progress::Progress;

/// Sums up the resources that VMs use; `None` if no daemon runs.
pub(super) fn commitment(client: &Client) -> Result<Option<Commitment>, ApiError> {
    let vms: Vec<Vm> = match client.get(path::VMS) {
        Err(error) if error.kind == ErrorKind::Unavailable => return Ok(None),
        answer => answer?,
    };
    let settings: HostSettings = client.get(path::HOST_SETTINGS)?;
    Ok(Some(checklist::commitment(&vms, &host(client)?, &settings)))
}

/// Checks a VM from outside, for this profile or for the one that follows from the VM.
pub(super) fn vm(client: &Client, name: &Name, profile: Option<Profile>) -> Result<Report, ApiError> {
    let vm: Vm = client.get(&path::VM.of(name))?;
    let host = host(client)?;
    let (profile, because) = if let Some(profile) = profile {
        (profile, None)
    } else {
        let tune: HostTune = client.get(path::HOST_TUNE)?;
        let (profile, because) = checklist::profile_of(&vm.spec.vm, tune.state.on);
        (profile, Some(because))
    };
    let facts = VmFacts { name: name.as_str(), spec: &vm.spec.vm, status: &vm.status, host: &host };
    Ok(checklist::vm(&facts, profile).because(because))
}

/// Runs the check inside a VM through its agent and returns whether no finding is bad.
pub(super) fn guest(
    client: &Client,
    name: &Name,
    profile: Profile,
    format: Format,
) -> Result<bool, ApiError> {
    let vm: Vm = client.get(&path::VM.of(name))?;
    let mut guest = agent::of_vm(&vm, PATIENCE)?;
    let wanted = Request::Check(Check { profile: profile.to_string() });
    match guest.call(wanted, PATIENCE) {
        Ok(Answer::Checked(Checked { text, json })) => {
            match format {
                Format::Table => output::write(&text),
                Format::Json => output::write(&format!("{json}\n")),
            }
            let report: serde_json::Value =
                serde_json::from_str(&json).map_err(|_| agent::failed(&guest.confused()))?;
            Ok(report.pointer("/summary/bad") == Some(&serde_json::json!(0)))
        }
        Ok(_) => Err(agent::failed(&guest.confused())),
        Err(error) => Err(agent::failed(&error)),
    }
}

/// The first answer waits for the probe that starts a vCPU.
fn host(client: &Client) -> Result<HostInfo, ApiError> {
    let _progress = Progress::start("looking at the host");
    client.get(path::HOST)
}
