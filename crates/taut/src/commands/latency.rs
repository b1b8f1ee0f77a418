//! `taut latency`: measures how much of its pCPUs a VM's vCPUs get, and what disturbs them.

mod halts;
mod nodes;
mod wake_ups;

use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args as Arguments;
use serde::Serialize;
use taut_api::error::ErrorKind;
use taut_api::host::Cpu;
use taut_api::kvm::KvmCounters;
use taut_api::path;
use taut_api::route::Vm;
use taut_api::vm::LatencySensitivity;
use taut_api::{ApiError, Name};
use taut_host::kernel::topology;
use taut_host::observe::evidence::{self, Intruder, NodeMemory, Vcpu};

use self::wake_ups::WakeUps;
use crate::agent::{self, PATIENCE};
use crate::client::Client;
use crate::output::{self, Format, Outcome};
use crate::progress::Progress;

/// Number of tasks and of interrupts that the table lists per vCPU.
const SHOWN: usize = 8;

#[derive(Debug, Arguments)]
pub(crate) struct Args {
    /// Name of a VM that runs on this host
    vm: Name,
    /// Duration of the measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    duration: f64,
    /// Also measure, through the guest's agent, how late threads wake up: one thread per vCPU, 1000
    /// times a second
    #[arg(long)]
    wake_ups: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds from 0.1 to 86400"))
}

/// Results of one measurement.
#[derive(Debug, Serialize)]
struct Evidence {
    vm: Name,
    latency_sensitivity: LatencySensitivity,
    seconds: f64,
    vcpus: Vec<Vcpu>,
    /// Location of the VM's memory at the end; empty if it cannot be read.
    memory: Vec<NodeMemory>,
    /// Exits and halts that KVM counted during the measurement.
    kvm: KvmCounters,
    /// Wake-up latencies as the guest sees them.
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_ups: Option<Vec<WakeUps>>,
}

pub(crate) fn run(args: &Args, client: &Client, format: Format) -> Outcome {
    let vm: Vm = client.get(&path::VM.of(&args.vm))?;
    let pid = vm.status.pid.ok_or_else(|| {
        let message = format!("{} does not run", args.vm);
        ApiError::new(ErrorKind::Conflict, message, format!("taut vm start {}", args.vm))
    })?;
    let duration = Duration::from_secs_f64(args.duration);
    // Ask the guest first, so that a guest without an agent is reported at once.
    let guest = args.wake_ups.then(|| agent::of_vm(&vm, PATIENCE)).transpose()?;
    let cpus = vm.status.latency.map(|latency| latency.cpus).unwrap_or_default();
    let progress = Progress::start(&format!("watching {} for {} s", args.vm, args.duration));
    let before = halts::read(client, &args.vm);
    let ((time, vcpus), wake_ups) = thread::scope(|scope| {
        let asked = guest.map(|mut guest| scope.spawn(move || wake_ups::ask(&mut guest, duration)));
        let watched = evidence::watch(Path::new("/"), pid, &cpus, duration);
        let answer = asked.map(|asked| asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (watched, answer)
    });
    let kvm = halts::read(client, &args.vm).since(&before);
    drop(progress);
    let wake_ups = wake_ups.transpose()?;
    if vcpus.is_empty() {
        let message = format!("process {pid} of {} has no vCPU threads that can be read", args.vm);
        let hint = "run this on the host that the VM is on, as root";
        return Err(ApiError::new(ErrorKind::Unavailable, message, hint));
    }
    let evidence = Evidence {
        vm: args.vm.clone(),
        latency_sensitivity: vm.spec.vm.latency_sensitivity,
        seconds: time.as_secs_f64(),
        vcpus,
        memory: evidence::memory(Path::new("/"), pid),
        kvm,
        wake_ups,
    };
    // Without the host's pCPUs the report omits NUMA nodes.
    let host = topology::online(Path::new("/")).unwrap_or_default();
    output::print(format, &evidence, |evidence| text(evidence, &host));
    Ok(())
}

fn text(evidence: &Evidence, host: &[Cpu]) -> String {
    let rows: Vec<_> = evidence.vcpus.iter().map(row).collect();
    let mut text = format!(
        "{}, latency sensitivity {}, {:.1} s\n\n",
        evidence.vm,
        output::word(&evidence.latency_sensitivity),
        evidence.seconds
    );
    text += &output::table(
        [
            "VCPU",
            "PCPU",
            "USED %",
            "RDY %",
            "INVOLUNTARY",
            "VOLUNTARY",
            "MIGRATIONS",
            "INTRUDERS",
            "INTERRUPTS",
        ],
        &rows,
    );
    for vcpu in evidence.vcpus.iter().filter(|vcpu| vcpu.exclusive) {
        text += &disturbances(vcpu);
    }
    if evidence.vcpus.iter().all(|vcpu| !vcpu.exclusive) {
        text += "no vCPU owns its pCPU, so no task counts as an intruder\n";
    }
    text += &nodes::text(&evidence.memory, &evidence.vcpus, host);
    text += &halts::text(&evidence.kvm);
    if let Some(wake_ups) = &evidence.wake_ups {
        text += &wake_ups::text(wake_ups);
    }
    text
}

fn row(vcpu: &Vcpu) -> [String; 9] {
    let own = |number: String| if vcpu.exclusive { number } else { "-".to_owned() };
    [
        vcpu.vcpu.to_string(),
        format!("{}{}", vcpu.cpu, if vcpu.exclusive { "" } else { " (shared)" }),
        format!("{:.2}", vcpu.used_percent),
        format!("{:.3}", vcpu.ready_percent),
        vcpu.involuntary.to_string(),
        vcpu.voluntary.to_string(),
        vcpu.migrations.map_or("-".to_owned(), |count| count.to_string()),
        own(vcpu.intruders.len().to_string()),
        own(vcpu.interrupts.iter().map(|interrupt| interrupt.times).sum::<u64>().to_string()),
    ]
}

/// Renders the tasks that ran on a vCPU's own pCPU and the interrupts that it served.
fn disturbances(vcpu: &Vcpu) -> String {
    let mut text = String::new();
    if !vcpu.intruders.is_empty() {
        let shown = vcpu.intruders.iter().take(SHOWN);
        let rows: Vec<_> = shown
            .map(|intruder| {
                let Intruder { tid, name, times, ms, why } = intruder;
                [name.clone(), tid.to_string(), times.to_string(), format!("{ms:.3}"), (*why).to_owned()]
            })
            .collect();
        let head = format!("ON PCPU {}", vcpu.cpu);
        text += &format!("\n{}", output::table([head.as_str(), "THREAD", "TIMES", "MS", "WHY"], &rows));
        text += &more(vcpu.intruders.len());
    }
    if !vcpu.interrupts.is_empty() {
        let shown = vcpu.interrupts.iter().take(SHOWN);
        let rows: Vec<_> = shown
            .map(|interrupt| [interrupt.name.clone(), interrupt.times.to_string(), interrupt.what.clone()])
            .collect();
        let head = format!("INTERRUPT ON PCPU {}", vcpu.cpu);
        text += &format!("\n{}", output::table([head.as_str(), "TIMES", "WHAT"], &rows));
        text += &more(vcpu.interrupts.len());
    }
    text
}

fn more(count: usize) -> String {
    if count > SHOWN { format!("and {} more (-o json has all)\n", count - SHOWN) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use taut_host::observe::evidence::Interrupt;

    use super::*;

    #[test]
    fn a_vcpu_of_its_own_and_a_shared_one() {
        let shared = Vcpu {
            vcpu: 1,
            tid: 12,
            cpu: 0,
            exclusive: false,
            used_percent: 50.0,
            ready_percent: 12.3456,
            involuntary: 70,
            voluntary: 3,
            migrations: None,
            intruders: Vec::new(),
            interrupts: Vec::new(),
        };
        let intruder = Intruder {
            tid: 30,
            name: "ksoftirqd/3".into(),
            times: 4,
            ms: 0.25,
            why: "the kernel's own for this pCPU: it cannot be moved",
        };
        let timer = Interrupt { name: "LOC".into(), what: "Local timer interrupts".into(), times: 1250 };
        let own = Vcpu {
            vcpu: 0,
            tid: 11,
            cpu: 3,
            exclusive: true,
            used_percent: 99.5,
            ready_percent: 0.0123,
            involuntary: 2,
            migrations: Some(0),
            intruders: vec![intruder],
            interrupts: vec![timer],
            ..shared.clone()
        };
        let mut evidence = Evidence {
            vm: "db1".parse().unwrap(),
            latency_sensitivity: LatencySensitivity::High,
            seconds: 5.0,
            vcpus: vec![own, shared],
            memory: Vec::new(),
            kvm: KvmCounters::none("it runs under emulation"),
            wake_ups: None,
        };
        insta::assert_snapshot!(text(&evidence, &[]), @r"
        db1, latency sensitivity high, 5.0 s

        VCPU  PCPU        USED %   RDY %  INVOLUNTARY  VOLUNTARY  MIGRATIONS  INTRUDERS  INTERRUPTS
           0  3            99.50   0.012            2          3           0          1        1250
           1  0 (shared)   50.00  12.346           70          3           -          -           -

        ON PCPU 3    THREAD  TIMES     MS  WHY
        ksoftirqd/3      30      4  0.250  the kernel's own for this pCPU: it cannot be moved

        INTERRUPT ON PCPU 3  TIMES  WHAT
        LOC                   1250  Local timer interrupts

        no KVM counters: it runs under emulation
        ");
        evidence.vcpus.remove(0);
        assert!(text(&evidence, &[]).contains("no task counts as an intruder\n"));
    }
}
