//! Facts for `taut check` that only the daemon has: VMs and their reservations.

use taut_api::check::Commitment;
use taut_api::error::ErrorKind;
use taut_api::host::{HostInfo, HostSettings, Toggle};
use taut_api::path;
use taut_api::route::Vm;
use taut_api::tune::HostTune;
use taut_api::vm::VmSize;
use taut_api::vmci::VmciSpec;
use taut_api::{ApiError, Bytes, Name};
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
    let host = host(client)?;
    let settings: HostSettings = client.get(path::HOST_SETTINGS)?;
    let running: Vec<_> = vms.iter().filter(|vm| vm.status.pid.is_some()).map(size).collect();
    Ok(Some(Commitment {
        vms: u32::try_from(running.len()).unwrap_or(u32::MAX),
        vcpus: running.iter().map(|size| size.vcpus).sum(),
        memory: Bytes(running.iter().map(|size| size.memory.0).sum()),
        host_memory: host.memory_total,
        accelerator: output::word(&host.accelerator.kind),
        coalescing: [settings.coalesce_scheme.as_str(), settings.coalesce_params.as_str()]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(":"),
        lro: settings.lro == Toggle::On,
    }))
}

/// Returns the size that a running VM has, with the memory of its queue pairs. Its description may
/// have another one for the next start.
fn size(vm: &Vm) -> VmSize {
    let spec = &vm.spec.vm;
    let VmSize { vcpus, memory } =
        vm.status.size.unwrap_or(VmSize { vcpus: spec.vcpus, memory: spec.memory });
    let queue_pairs = vm.status.vmci.as_ref().and_then(|vmci| vmci.queue_pairs).unwrap_or_default();
    VmSize { vcpus, memory: Bytes(memory.0.saturating_add(VmciSpec::nvdimm_of(queue_pairs).0)) }
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
