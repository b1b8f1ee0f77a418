//! Daemons of a lab.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Lab;
use crate::machine::{Command, Job, PREFERRED, Words};
use crate::reason::{Context, Measured, NotMeasured};

/// A `tautd` of a lab.
#[derive(Debug, Clone)]
pub struct Daemon {
    /// Folder of its programs.
    pub programs: PathBuf,
    /// Folder of its state and its run folder.
    pub folder: PathBuf,
    /// Socket of its API.
    pub socket: PathBuf,
    /// Its process.
    pub job: Job,
    options: DaemonOptions,
}

/// How a daemon is started.
#[derive(Debug, Clone, Default)]
pub struct DaemonOptions {
    words: Vec<String>,
    environment: Vec<(String, String)>,
    is_preferred: bool,
    programs: Option<PathBuf>,
    name: Option<String>,
}

impl DaemonOptions {
    /// Adds arguments, such as `--fabric-cpus 0`.
    #[must_use]
    pub fn args(mut self, words: impl Words) -> Self {
        self.words.extend(words.words());
        self
    }

    /// Sets a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Gives it and its fabric priority over everything else on this machine.
    #[must_use]
    pub fn preferred(mut self) -> Self {
        self.is_preferred = true;
        self
    }

    /// Takes programs of another build.
    #[must_use]
    pub fn programs(mut self, folder: &Path) -> Self {
        self.programs = Some(folder.to_owned());
        self
    }

    /// Names it, for labs with several daemons.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
}

impl Daemon {
    /// Sets a variable in the environment of the next process, see [`Lab::restart_daemon`].
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.options = self.options.env(name, value);
        self
    }
}

impl Lab<'_> {
    /// Starts a daemon, makes it the current one, and waits until it has a fabric.
    pub fn start_daemon(&mut self, options: DaemonOptions) -> Measured<Daemon> {
        let folder = options.name.as_ref().map_or(self.folder.clone(), |name| self.folder.join(name));
        self.machine.make_folder(&folder)?;
        let programs = options.programs.clone().unwrap_or_else(|| self.setup.programs.clone());
        let socket = folder.join("run/tautd.sock");
        let daemon = Daemon { programs, socket, job: Job { pid: 0 }, folder, options };
        self.launch(daemon)
    }

    /// Starts a daemon that was killed once more, on its state.
    pub fn restart_daemon(&mut self, daemon: &Daemon) -> Measured<Daemon> {
        self.daemons.retain(|other| other.folder != daemon.folder);
        self.launch(daemon.clone())
    }

    fn launch(&mut self, mut daemon: Daemon) -> Measured<Daemon> {
        let job = self.launch_unanswered(&daemon)?;
        daemon.job = job.clone();
        self.daemons.retain(|other| other.folder != daemon.folder);
        self.daemons.push(daemon.clone());
        self.current = Some(daemon.folder.clone());
        // A daemon may answer before it has started its fabric.
        let answers = self.until("tautd answers and has a fabric", 20, |lab| {
            if !lab.machine.is_running(&job) {
                let ended = lab.machine.wait(&job, Duration::ZERO)?.success();
                let said = ended.map_or_else(|why| why, |_| NotMeasured::because("it ended"));
                return Err(said);
            }
            Ok(lab.fabric_pid().is_ok())
        });
        answers.when("tautd")?;
        // Waits for the daemon's KVM probe, which keeps a core busy for seconds.
        self.taut("host show")?;
        if daemon.options.is_preferred {
            self.prefer(daemon.job.pid);
            let fabric = self.fabric_pid()?;
            self.prefer(fabric);
        }
        Ok(daemon)
    }

    /// Starts a daemon's process without waiting until it answers, for rows that measure that time.
    pub fn launch_unanswered(&mut self, daemon: &Daemon) -> Measured<Job> {
        let mut command = Command::new(daemon.programs.join("tautd"))
            .arg("--state-dir")
            .arg(daemon.folder.join("state"))
            .arg("--run-dir")
            .arg(daemon.folder.join("run"))
            .args(daemon.options.words.clone())
            // All that it starts inherits the mark by which leftovers are found.
            .env("TAUT_GOALS_LAB", self.folder.join(""))
            .session()
            .record("tautd");
        if let Some(scope) = &self.scope {
            command = command.arg("--cpuset").arg(scope);
        }
        for (name, value) in &daemon.options.environment {
            command = command.env(name, value);
        }
        let job = self.machine.start(&command)?;
        if let Some(known) = self.daemons.iter_mut().find(|other| other.folder == daemon.folder) {
            known.job = job.clone();
        }
        Ok(job)
    }

    /// Directs the following commands to this daemon and its build.
    pub fn use_daemon(&mut self, daemon: &Daemon) {
        self.current = Some(daemon.folder.clone());
    }

    /// Returns the current daemon.
    pub(super) fn current_daemon(&self) -> Option<&Daemon> {
        let current = self.current.as_ref()?;
        self.daemons.iter().find(|daemon| daemon.folder == *current)
    }

    /// Returns the current daemon, as it runs now. Fails without one.
    pub fn daemon(&self) -> Measured<Daemon> {
        self.current_daemon().cloned().ok_or_else(|| NotMeasured::because("no daemon runs"))
    }

    /// Stops the current daemon with all that it runs, and removes its state.
    pub fn stop_daemon(&mut self) -> Measured<()> {
        match self.current_daemon().cloned() {
            Some(daemon) => self.stop(&daemon),
            None => Ok(()),
        }
    }

    pub(super) fn stop(&mut self, daemon: &Daemon) -> Measured<()> {
        self.clean_up(|lab| lab.stop_to_the_end(daemon))
    }

    fn stop_to_the_end(&mut self, daemon: &Daemon) -> Measured<()> {
        self.use_daemon(daemon);
        let mut shutdown = self.taut("shutdown --everything").map(drop);
        let mut job = daemon.job.clone();
        if shutdown.is_err() && !self.machine.is_running(&job) {
            // Another daemon on the same state ends what a dead one left, and restores the host.
            shutdown = self.launch(daemon.clone()).and_then(|again| {
                job = again.job;
                self.taut("shutdown --everything").map(drop)
            });
        }
        let ended = self.machine.wait(&job, Duration::from_secs(20)).map(drop);
        self.daemons.retain(|other| other.folder != daemon.folder);
        self.current = self.daemons.last().map(|other| other.folder.clone());
        self.unmount_in(&daemon.folder);
        for folder in ["state", "run", "log"] {
            self.machine.remove_all(&daemon.folder.join(folder))?;
        }
        shutdown.and(ended)
    }

    /// Process ID of the current daemon's fabric.
    pub fn fabric_pid(&mut self) -> Measured<u32> {
        let shown = self.taut_json("daemon show")?;
        Ok(u32::try_from(shown.count("fabric_pid")?)?)
    }

    /// Gives a process's session (autogroup) priority over everything else on this machine. The
    /// process should have a session of its own. Kernels without autogroups have nothing to set.
    pub fn prefer(&mut self, pid: u32) {
        let _ = self.machine.write(Path::new(&format!("/proc/{pid}/autogroup")), PREFERRED);
    }

    /// Makes a vSwitch `sw` with a port group `lan`.
    pub fn make_lan(&mut self) -> Measured<()> {
        self.taut("vswitch create sw")?;
        self.taut("portgroup create lan --vswitch sw").map(drop)
    }

    /// Starts the daemon with a vSwitch `sw` and a port group `lan`.
    pub fn start_lan(&mut self, options: DaemonOptions) -> Measured<Daemon> {
        let daemon = self.start_daemon(options)?;
        self.make_lan()?;
        Ok(daemon)
    }
}
