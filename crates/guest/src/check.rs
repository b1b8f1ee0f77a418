//! `taut-guest check`: the guest's settings against best practices (spec row BP).

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use taut_plan::checklist::{self, Profile, Report};

/// Arguments of `taut-guest check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Purpose of the guest: latency, throughput or dense.
    #[arg(long, default_value_t, value_name = "PROFILE")]
    profile: Profile,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Root of the file system to read.
    #[arg(long, default_value = "/", value_name = "DIR")]
    root: PathBuf,
}

/// Prints the report. Returns exit status 0 if nothing is bad, 1 if something is, 2 if it could not
/// be read.
pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    match report(&args.root, args.profile) {
        Ok(report) => {
            print!("{}", if args.json { json(&report) + "\n" } else { report.to_string() });
            if report.summary.bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!(
                "error: {error}\nhint: --root takes a folder with a Linux machine's /sys and /proc below it"
            );
            ExitCode::from(2)
        }
    }
}

/// Answers the host's request over the agent's channel: the report as text and as JSON.
pub(crate) fn answer(profile: &str) -> Result<(String, String), String> {
    let report = report(Path::new("/"), profile.parse()?).map_err(|error| error.to_string())?;
    Ok((report.to_string(), json(&report)))
}

fn report(root: &Path, profile: Profile) -> io::Result<Report> {
    let facts = taut_host::check::guest(root).map_err(|error| match std::error::Error::source(&error) {
        Some(cause) => io::Error::other(format!("{error}: {cause}")),
        None => io::Error::other(error),
    })?;
    Ok(checklist::guest(&facts, profile))
}

fn json(report: &Report) -> String {
    serde_json::to_string_pretty(report).expect("our own types are JSON")
}

#[cfg(test)]
mod tests {
    use taut_plan::checklist::Verdict;

    use super::*;

    const OLD_GUEST: &str = "\
proc/sys/kernel/osrelease: 2.6.18-164.el5
proc/cpuinfo:
  | flags		: fpu hypervisor
proc/meminfo:
  | MemTotal:        1048576 kB
  | MemAvailable:     524288 kB
proc/cmdline: ro root=/dev/sda1
proc/net/dev: Inter-|   Receive
proc/net/ip_tables_names:
  | filter
  | nat
proc/2001/comm: java
proc/2001/cmdline: java -Xmx512m
proc/sys/net/core/busy_read: 0
sys/fs/selinux/enforce: 1
sys/devices/system/cpu/online: 0
sys/devices/system/clocksource/clocksource0/current_clocksource: acpi_pm
sys/devices/system/clocksource/clocksource0/available_clocksource: acpi_pm pit
sys/class/net/eth{0..1}/device/uevent: [DRIVER=e1000, DRIVER=virtio_net]
sys/kernel/mm/transparent_hugepage/enabled: [always] madvise never
";

    #[test]
    fn an_old_guest_has_much_to_hear() {
        let folder = tempfile::tempdir().unwrap();
        taut_host::observe::captured::unpack(OLD_GUEST, folder.path()).unwrap();
        let report = report(folder.path(), Profile::Latency).unwrap();
        insta::assert_snapshot!(report);
        for profile in [Profile::Throughput, Profile::Dense] {
            let facts = taut_host::check::guest(folder.path()).unwrap();
            let clock =
                checklist::guest(&facts, profile).lines.into_iter().find(|line| line.id == "guest.clock");
            assert_eq!(clock.unwrap().verdict, Verdict::Bad, "slow clocks are bad for {profile} too");
        }
    }

    #[test]
    fn this_machine_can_be_read_from_inside() {
        let (text, json) = answer("dense").unwrap();
        assert!(text.starts_with("VERDICT"), "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["summary"]["ok"].is_u64());
        assert!(answer("fast").unwrap_err().contains("not a profile"));
    }
}
