//! `taut vm stats`: run and ready time, memory and disks of all VMs of the host.

use clap::Args as Arguments;
use taut_api::error::ErrorKind;
use taut_api::printable::{MOST_NAME, printable};
use taut_api::statistics::{Period, VmStatistics, limits};
use taut_api::{ApiError, path};

use crate::client::Client;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Arguments)]
pub(crate) struct Args {
    /// Names of VMs, also of those that another program has started; all by default
    names: Vec<String>,
    /// The period before now: a number of seconds, or a number with s, m, h or d, up to 366d
    #[arg(long, default_value_t)]
    period: Period,
}

pub(super) fn run(args: &Args, client: &Client, out: Output) -> Outcome {
    let period = args.period;
    let all: Vec<VmStatistics> = client.get(&format!("{}?period={period}", path::VM_STATISTICS))?;
    if let Some(missing) = args.names.iter().find(|name| !all.iter().any(|vm| vm.name == **name)) {
        return Err(ApiError::new(
            ErrorKind::NotFound,
            format!("no VM `{missing}` has samples of the last {period}"),
            "`taut vm stats` without a name lists those that have some; a new one has them after two seconds",
        ));
    }
    let is_wanted = |vm: &VmStatistics| args.names.is_empty() || args.names.contains(&vm.name);
    let wanted: Vec<_> = all.into_iter().filter(is_wanted).collect();
    output::print(out.format, &wanted, |wanted| table(wanted));
    Ok(())
}

fn table(vms: &[VmStatistics]) -> String {
    // The owner of a foreign VM chooses its name.
    let shown = |vm: &VmStatistics| VmStatistics { name: printable(&vm.name, MOST_NAME), ..vm.clone() };
    let vms: Vec<_> = vms.iter().map(shown).collect();
    let rows: Vec<_> = vms.iter().map(row).collect();
    let mut text = output::table(
        [
            "NAME",
            "PID",
            "SECONDS",
            "VCPUS",
            "%RUN",
            "%RDY",
            "MAX %RDY",
            "RDY MS/20S",
            "%MLMTD",
            "%SWPWT",
            "%SYS",
            "MiB",
            "SWAP MiB",
            "MBRD/s",
            "MBWR/s",
        ],
        &rows,
    );
    for vm in &vms {
        for vcpu in vm.vcpus.iter().filter(|vcpu| vcpu.ready_percent > limits::READY_PERCENT) {
            text += &format!(
                "{}: vCPU {} was ready to run and waited for a pCPU for {:.1} % of the time\n",
                vm.name, vcpu.vcpu, vcpu.ready_percent
            );
        }
        let throttled = vm.throttled_percent.filter(|percent| *percent > limits::THROTTLED_PERCENT);
        if let Some(throttled) = throttled {
            text +=
                &format!("{}: its CPU limit kept it from running for {throttled:.1} % of a pCPU\n", vm.name);
        }
        if let Some(paged) = vm.paged_percent.filter(|percent| *percent > limits::PAGED_PERCENT) {
            text +=
                &format!("{}: its vCPUs waited for memory from disk for {paged:.1} % of a pCPU\n", vm.name);
        }
        for (wait, _) in vm.waits() {
            text += &format!("{}: see {}\n", vm.name, wait.guide());
        }
        if vm.vcpus.is_empty() && vm.others_percent > 0.0 {
            text += &format!(
                "{}: QEMU does not name its threads (debug-threads=on), so %SYS has its vCPUs\n",
                vm.name
            );
        }
    }
    text
}

fn row(vm: &VmStatistics) -> [String; 15] {
    let most = vm.vcpus.iter().map(|vcpu| vcpu.ready_percent).max_by(f64::total_cmp);
    let percent = |percent: f64| format!("{percent:.1}");
    let per = |value: Option<f64>, unit: f64, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{:.digits$}", value / unit))
    };
    let of_vcpus = |text: String| if vm.vcpus.is_empty() { "-".to_owned() } else { text };
    [
        if vm.foreign { format!("{} (foreign)", vm.name) } else { vm.name.clone() },
        vm.pid.map_or("gone".to_owned(), |pid| pid.to_string()),
        ((vm.covered_ms + 500) / 1000).to_string(),
        of_vcpus(vm.vcpus.len().to_string()),
        of_vcpus(percent(vm.run_percent)),
        of_vcpus(percent(vm.ready_percent)),
        most.map_or("-".to_owned(), percent),
        // 10 % of 20 s are 2000 ms.
        most.map_or("-".to_owned(), |most| format!("{:.0}", most * 200.0)),
        vm.throttled_percent.map_or("-".to_owned(), percent),
        vm.paged_percent.map_or("-".to_owned(), percent),
        percent(vm.others_percent),
        per(vm.memory_bytes, f64::from(1 << 20), 0),
        per(vm.swapped_bytes, f64::from(1 << 20), 0),
        per(vm.disk_read_bytes_per_s, 1e6, 2),
        per(vm.disk_written_bytes_per_s, 1e6, 2),
    ]
}

#[cfg(test)]
mod tests {
    use taut_api::statistics::VcpuStatistics;

    use super::*;

    #[test]
    fn a_vcpu_that_waits_is_named() {
        let vcpu = |vcpu, run_percent, ready_percent| VcpuStatistics { vcpu, run_percent, ready_percent };
        let busy = VmStatistics {
            name: "db".to_owned(),
            foreign: true,
            pid: Some(712),
            covered_ms: 300_400,
            to_ms: 0,
            vcpus: vec![vcpu(0, 50.2, 49.7), vcpu(1, 12.0, 3.0)],
            run_percent: 62.2,
            ready_percent: 52.7,
            others_percent: 4.25,
            throttled_percent: Some(12.34),
            paged_percent: None,
            memory_bytes: Some(1_610_612_736.0),
            swapped_bytes: Some(0.0),
            disk_read_bytes_per_s: Some(1_234_567.0),
            disk_written_bytes_per_s: Some(0.0),
        };
        let nameless = VmStatistics {
            name: "process 9".to_owned(),
            pid: None,
            vcpus: Vec::new(),
            run_percent: 0.0,
            ready_percent: 0.0,
            throttled_percent: None,
            memory_bytes: None,
            swapped_bytes: None,
            disk_read_bytes_per_s: None,
            disk_written_bytes_per_s: None,
            ..busy.clone()
        };
        let hostile = VmStatistics { name: "a\u{1b}[2J\nb".to_owned(), ..nameless.clone() };
        assert!(!table(&[hostile]).contains('\u{1b}'), "a terminal would obey it");
        insta::assert_snapshot!(table(&[busy, nameless]), @r"
        NAME                 PID   SECONDS  VCPUS  %RUN  %RDY  MAX %RDY  RDY MS/20S  %MLMTD  %SWPWT  %SYS   MiB  SWAP MiB  MBRD/s  MBWR/s
        db (foreign)         712       300      2  62.2  52.7      49.7        9940    12.3       -   4.2  1536         0    1.23    0.00
        process 9 (foreign)  gone      300      -     -     -         -           -       -       -   4.2     -         -       -       -
        db: vCPU 0 was ready to run and waited for a pCPU for 49.7 % of the time
        db: its CPU limit kept it from running for 12.3 % of a pCPU
        db: see docs/guide/reasons.md#wait-ready
        db: see docs/guide/reasons.md#wait-throttled
        process 9: QEMU does not name its threads (debug-threads=on), so %SYS has its vCPUs
        ");
    }
}
