//! Command line of `tautd`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Parser, ValueEnum};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::fabric::config::{SocketWorker, WorkerConfig, WorkerMode};
use taut_api::placement::Numbers;
use taut_api::statistics::Period;

use crate::confine::FIRST_USER;

/// Default of `--state-dir`.
const STATE_DIR: &str = "/var/lib/taut";
/// Default of `--log-dir` beside it.
const LOG_DIR: &str = "/var/log/taut";

/// The taut daemon: runs VMs, vSwitches and their ports on this host
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Directory for the store and the ledger of changed host settings
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// Directory for sockets and process records; empty after a boot
    #[arg(long, value_name = "DIR", default_value = "/run/taut")]
    pub(crate) run_dir: PathBuf,
    /// Directory for the logs of VMs and of the fabric [default: /var/log/taut; the folder `log` of
    /// --state-dir if that is given]
    #[arg(long, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// Directory of taut's other programs [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) libexec: Option<PathBuf>,
    /// File that says which users and groups may do what; SIGHUP has it read again [default:
    /// /etc/taut/roles.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) roles: Option<PathBuf>,
    /// Address and port on which to serve the API and the page over TLS as well, to callers with a
    /// token (`taut token create`), such as 192.0.2.7:8443 [default: not over TCP]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// File with the certificate for --listen in PEM [default: a self-signed one in --state-dir]
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "listen"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the key of that certificate in PEM
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "listen"])]
    pub(crate) tls_key: Option<PathBuf>,
    /// pCPUs to bind the fabric's workers to, one worker each, such as 2,3 [default: one unbound
    /// worker]
    #[arg(long, value_name = "CPUS", value_delimiter = ',', value_parser = number)]
    pub(crate) fabric_cpus: Vec<u32>,
    /// When an idle worker of the fabric sleeps
    #[arg(long, value_name = "MODE", value_enum, default_value = "adaptive")]
    pub(crate) fabric_mode: FabricMode,
    /// Microseconds that an adaptive worker polls after the last frame before it sleeps
    #[arg(long, value_name = "US", default_value = "50", value_parser = number)]
    pub(crate) fabric_poll_us: u32,
    /// pCPU to bind the fabric's thread for VMCI sockets to [default: unbound]. It sleeps as
    /// --fabric-mode says
    #[arg(long, value_name = "CPU", value_parser = number)]
    pub(crate) vmci_cpu: Option<u32>,
    /// Cpuset (cgroup v1) whose tasks make room for latency-sensitive VMs, or control group (cgroup
    /// v2) to create the VMs' groups in [default: that of the whole host]
    #[arg(long, value_name = "DIR")]
    pub(crate) cpuset: Option<PathBuf>,
    /// First number of the users and groups that VMs and the fabric run as; the next 65535 are
    /// taut's, too
    #[arg(long, value_name = "UID", default_value_t = FIRST_USER, value_parser = user)]
    pub(crate) first_user: u32,
    /// How long statistics keep samples: those of each second, of each 20 s and of each 5 minutes,
    /// such as 1h,1d,30d. At most 1d,30d,366d; none less than the one before. A sample of a port
    /// takes up to 100 bytes
    #[arg(long, value_name = "TIMES", default_value = "1h,1d,30d", value_parser = history)]
    pub(crate) history: [Period; 3],
    /// Print the OpenAPI description of the HTTP API and exit
    #[arg(long)]
    pub(crate) print_openapi: bool,
    /// Write the manual page to this folder and exit
    #[arg(long, value_name = "DIR")]
    pub(crate) write_man: Option<PathBuf>,
}

/// When an idle worker sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FabricMode {
    /// Sleep at once
    Interrupt,
    /// Poll for a while, then sleep
    Adaptive,
    /// Never sleep: each worker keeps its CPU busy
    Polling,
}

/// Reads the first number of a range of users.
fn user(text: &str) -> Result<u32, &'static str> {
    let usable = |first: &u32| *first > 0 && *first <= u32::MAX - 65_536;
    text.parse()
        .ok()
        .filter(usable)
        .ok_or("write a number from 1 to 4294901759, with 65535 unused ones behind it")
}

/// Most time for which samples of each density are kept.
const MOST_HISTORY: [Period; 3] = [Period::DAY, Period::days(30), Period::LONGEST];

/// Reads the times for which samples are kept.
fn history(text: &str) -> Result<[Period; 3], String> {
    let times: Result<Vec<Period>, _> = text.split(',').map(str::parse).collect();
    let times = times.map_err(|error| error.to_string())?;
    let times: [Period; 3] =
        times.try_into().map_err(|_| "write three times, such as 1h,1d,30d".to_owned())?;
    if times[0] < Period::MINUTE || !times.is_sorted() {
        return Err("the first time is at least 1m, and none is less than the one before".to_owned());
    }
    let too_long = times.iter().zip(MOST_HISTORY).find(|(time, most)| **time > *most);
    too_long.map_or(Ok(times), |(time, most)| Err(format!("{time} is too long: at most {most} there")))
}

/// Reads a number, and says what is wrong with anything else.
fn number(text: &str) -> Result<u32, &'static str> {
    text.parse().map_err(|_| "write a whole number, from 0 on")
}

impl Args {
    /// Returns the directory of logs. Two daemons must not share one.
    pub(crate) fn log_dir(&self) -> PathBuf {
        match &self.log_dir {
            Some(dir) => dir.clone(),
            None if self.state_dir == Path::new(STATE_DIR) => PathBuf::from(LOG_DIR),
            None => self.state_dir.join("log"),
        }
    }

    /// Returns the configuration of the fabric's workers.
    pub(crate) fn workers(&self) -> WorkerConfig {
        WorkerConfig { mode: self.mode(), cpus: self.fabric_cpus.clone(), near: Vec::new() }
    }

    /// Returns the configuration of the fabric's thread for VMCI sockets.
    pub(crate) fn socket_worker(&self) -> SocketWorker {
        SocketWorker { mode: self.mode(), cpu: self.vmci_cpu }
    }

    /// Refuses pCPUs that the host does not have. pCPUs that are only off-line may come back.
    pub(crate) fn check_cpus(
        &self,
        online: &Numbers,
        is_present: impl Fn(u32) -> bool,
    ) -> Result<(), ApiError> {
        let bound = self.fabric_cpus.iter().map(|&cpu| ("--fabric-cpus", cpu));
        let mut bound = bound.chain(self.vmci_cpu.map(|cpu| ("--vmci-cpu", cpu)));
        let Some((option, cpu)) = bound.find(|(_, cpu)| !is_present(*cpu)) else { return Ok(()) };
        Err(ApiError::new(
            ErrorKind::Invalid,
            format!("{option} contains pCPU {cpu}, which this host does not have; {online} are on-line"),
            format!("give on-line pCPUs, or omit {option} and the plan decides"),
        ))
    }

    fn mode(&self) -> WorkerMode {
        match self.fabric_mode {
            FabricMode::Interrupt => WorkerMode::Interrupt,
            FabricMode::Adaptive => WorkerMode::Adaptive { poll_us: self.fabric_poll_us },
            FabricMode::Polling => WorkerMode::Polling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_statistics_have_bounds() {
        let read = |text: &str| {
            Args::try_parse_from(["tautd", "--history", text])
                .map(|args| args.history.map(|time| time.ms() / 1000))
                .map_err(|error| error.to_string())
        };
        let usual = Args::try_parse_from(["tautd"]).unwrap().history;
        assert_eq!(usual.map(|time| time.to_string()), ["1h", "1d", "30d"]);
        assert_eq!(read("1d,30d,366d").unwrap(), [86_400, 2_592_000, 31_622_400]);
        assert_eq!(read("60,60,60").unwrap(), [60; 3]);
        for (wrong, why) in [
            ("1h,1d", "write three times, such as 1h,1d,30d"),
            ("1h,1d,soon", "`soon` is not a period"),
            ("2d,3d,30d", "2d is too long: at most 1d there"),
            ("1h,31d,60d", "31d is too long: at most 30d there"),
            ("1d,1h,30d", "none is less than the one before"),
            ("30s,1d,30d", "at least 1m"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_told_in_words() {
        for options in [["--fabric-cpus", "1,x"], ["--vmci-cpu", ""], ["--fabric-poll-us", "many"]] {
            let error = Args::try_parse_from(["tautd"].iter().chain(&options)).unwrap_err().to_string();
            assert!(error.contains("write a whole number, from 0 on"), "{error}");
        }
    }

    #[test]
    fn daemons_with_their_own_state_have_their_own_logs() {
        let dir = |options: &[&str]| Args::parse_from(["tautd"].iter().chain(options)).log_dir();
        assert_eq!(dir(&[]), Path::new("/var/log/taut"));
        assert_eq!(dir(&["--state-dir", "/x"]), Path::new("/x/log"));
        assert_eq!(dir(&["--state-dir", "/x", "--log-dir", "/y"]), Path::new("/y"));
    }

    #[test]
    fn pcpus_that_the_host_does_not_have_are_refused() {
        let check = |options: &[&str]| {
            let args = Args::parse_from(["tautd"].iter().chain(options));
            args.check_cpus(&"0-1".parse().unwrap(), |cpu| cpu < 4).map_err(|error| error.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["--fabric-cpus", "0,3", "--vmci-cpu", "2"]), Ok(()), "off-line ones are taken");
        let error = check(&["--fabric-cpus", "1,4"]).unwrap_err();
        assert!(
            error.contains("--fabric-cpus contains pCPU 4") && error.contains("0-1 are on-line"),
            "{error}"
        );
        assert!(check(&["--vmci-cpu", "64"]).unwrap_err().contains("--vmci-cpu contains pCPU 64"));
    }
}
