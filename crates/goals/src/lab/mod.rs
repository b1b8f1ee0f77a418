//! Lab of a row: daemons, guests, namespaces, rivals, and the machine under them. What it started
//! is gone when the row ends.

mod checkout;
mod clients;
mod cpu_distance;
mod daemon;
mod dead;
mod extended_image;
mod fabric_events;
mod file_system;
mod guests;
pub mod inventory;
mod logs;
mod namespaces;
mod qemu;
pub mod rig;
mod scope;
mod twins;
mod usage;
mod walls;
mod witness;

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::machine::{Command, Doc, Ended, Job, Machine, Signal, Text, Words};
use crate::reason::{Measured, NotMeasured, require};
use crate::rival::Rival;

pub use checkout::Tests;
pub use clients::Client;
pub use daemon::{Daemon, DaemonOptions};
pub use dead::clear_away_the_dead;
pub use extended_image::Contents;
pub use file_system::FileSystem;
pub use guests::{NEWEST, OLDEST};
pub use twins::{BRIDGE, Rewrite, Twin};
pub use usage::Usage;
pub use walls::Walls;
pub use witness::{Round, Testimony, Witness};

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Folder of taut's programs.
    pub programs: PathBuf,
    /// Folder of the guest images.
    pub images: PathBuf,
    /// The checkout.
    pub checkout: PathBuf,
    /// True if rows shorten themselves.
    pub quick: bool,
}

/// Lab of a row.
pub struct Lab<'a> {
    machine: &'a mut dyn Machine,
    setup: &'a Setup,
    /// Folder of results of this row, which no other run has used.
    results: PathBuf,
    /// Folder of everything that goes with the lab.
    folder: PathBuf,
    /// Daemons that run, in the order of their start.
    daemons: Vec<Daemon>,
    /// Folder of the daemon that commands go to.
    current: Option<PathBuf>,
    /// Cpuset of this program and all that it starts.
    scope: Option<PathBuf>,
    /// Commands that undo what this lab changed on the machine, in the order of the changes.
    owed: Vec<Command>,
    /// Jobs of rivals and loads, ended with the lab.
    jobs: Vec<Job>,
}

impl<'a> Lab<'a> {
    /// Opens the lab of a row. Results of the row go to `results`.
    pub fn open(machine: &'a mut dyn Machine, setup: &'a Setup, results: &Path) -> Measured<Self> {
        machine.record_in(results)?;
        let folder = dead::folder(machine)?;
        Ok(Self {
            machine,
            setup,
            results: results.to_owned(),
            folder,
            daemons: Vec::new(),
            current: None,
            scope: None,
            owed: Vec::new(),
            jobs: Vec::new(),
        })
    }

    /// Ends everything that the lab started and gives back what it changed. Problems are printed:
    /// the results are there already.
    pub fn close(mut self) {
        self.clean_up(Self::give_back);
    }

    /// Does the work of [`Self::close`], which keeps it from being interrupted.
    fn give_back(&mut self) {
        for job in std::mem::take(&mut self.jobs).into_iter().rev() {
            self.end(&job);
        }
        // A daemon on a frozen file system cannot end.
        self.thaw_all();
        let mut problems: Vec<NotMeasured> = Vec::new();
        while let Some(daemon) = self.daemons.last().cloned() {
            problems.extend(self.stop(&daemon).err());
        }
        problems.extend(self.leave_scope().err());
        for command in std::mem::take(&mut self.owed).into_iter().rev() {
            // Some of it the row has undone itself.
            let _ = self.machine.run(&command);
        }
        let folder = self.folder.clone();
        if !problems.is_empty() {
            problems.extend(dead::end_processes(self.machine, &folder).err());
        }
        problems.extend(self.machine.remove_all(&folder).err());
        for problem in problems {
            self.note(format!("the lab's end: {problem}"));
        }
    }

    /// Runs `body`, which ends what this lab started, to its end even if this program is
    /// interrupted.
    pub fn clean_up<T>(&mut self, body: impl FnOnce(&mut Self) -> T) -> T {
        let was_closing = self.machine.set_closing(true);
        let outcome = body(self);
        self.machine.set_closing(was_closing);
        outcome
    }

    /// Returns true for a shortened run.
    pub fn quick(&self) -> bool {
        self.setup.quick
    }

    /// Fails in a shortened run, for rows that cannot be shortened.
    pub fn takes_a_full_run(&self, why: &str) -> Measured<()> {
        require(!self.setup.quick, format!("it takes a full run: {why}"))
    }

    /// Returns `short` for a shortened run, and `full` otherwise.
    pub fn pick<T>(&self, full: T, short: T) -> T {
        if self.setup.quick { short } else { full }
    }

    /// Settings of the run.
    pub fn setup(&self) -> &'a Setup {
        self.setup
    }

    /// Folder of everything that goes with the lab.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The machine, for what the lab has no word for.
    pub fn machine(&mut self) -> &mut dyn Machine {
        self.machine
    }

    /// Prints a line about the measurement.
    pub fn note(&mut self, text: impl Display) {
        if !self.machine.is_stand_in() {
            text.to_string().lines().for_each(|line| println!("  {line}"));
        }
    }

    /// Path of one of taut's programs.
    pub fn program(&self, name: &str) -> PathBuf {
        let daemon = self.current_daemon();
        daemon.map_or(&self.setup.programs, |daemon| &daemon.programs).join(name)
    }

    /// Returns the path of a new file in the row's folder. Fails if it is there: it would be of
    /// another call.
    pub fn fresh(&mut self, name: &str) -> Measured<PathBuf> {
        let path = self.results.join(name);
        let is_there = self.machine.exists(&path) && !self.machine.is_stand_in();
        require(!is_there, format!("{} is there already", path.display()))?;
        Ok(path)
    }

    /// Writes a file with what was found, such as a table, to the row's folder.
    pub fn keep(&mut self, name: &str, text: &str) -> Measured<PathBuf> {
        let path = self.fresh(name)?;
        self.machine.write(&path, text)?;
        Ok(path)
    }

    /// Requires that a program has written the file that [`Lab::fresh`] named, and returns its
    /// size.
    pub fn written(&mut self, path: &Path) -> Measured<u64> {
        let size = self.machine.size(path)?;
        require(size > 0, format!("{} is empty", path.display()))?;
        Ok(size)
    }

    /// Runs a program and requires status 0.
    pub fn run(&mut self, command: &Command) -> Measured<Ended> {
        self.machine.run(command)?.success()
    }

    /// Starts a program that ends with the lab, if not before.
    pub fn start(&mut self, command: &Command) -> Measured<Job> {
        let job = self.machine.start(command)?;
        self.jobs.push(job.clone());
        Ok(job)
    }

    /// Waits for a program that was started, and requires status 0.
    pub fn wait(&mut self, job: &Job, limit: Duration) -> Measured<Ended> {
        self.jobs.retain(|other| other != job);
        self.machine.wait(job, limit)?.success()
    }

    /// Waits for the end of a program that was started, whatever its status.
    pub fn wait_for_end(&mut self, job: &Job, limit: Duration) -> Measured<Ended> {
        self.jobs.retain(|other| other != job);
        self.machine.wait(job, limit)
    }

    /// Ends a program that was started: asks it to, and kills it after 5 s.
    pub fn end(&mut self, job: &Job) {
        self.jobs.retain(|other| other != job);
        let end = self.machine.now() + Duration::from_secs(5);
        let _ = self.machine.signal(job.pid, Signal::Continue);
        let _ = self.machine.signal(job.pid, Signal::Terminate);
        while self.machine.is_running(job) && self.machine.now() < end {
            if self.machine.sleep(Duration::from_millis(20)).is_err() {
                break;
            }
        }
        if self.machine.is_running(job) {
            let _ = self.machine.signal(job.pid, Signal::Kill);
        }
        let _ = self.machine.wait(job, Duration::from_secs(5));
    }

    /// Waits until `holds` returns true. Fails after `seconds`; `what` says what was waited for.
    pub fn until(
        &mut self,
        what: &str,
        seconds: u64,
        mut holds: impl FnMut(&mut Self) -> Measured<bool>,
    ) -> Measured<()> {
        let end = self.machine.now() + Duration::from_secs(seconds);
        loop {
            if holds(self)? || self.machine.takes_for_granted() {
                return Ok(());
            }
            require(self.machine.now() < end, format!("timed out after {seconds} s waiting until {what}"))?;
            self.machine.sleep(Duration::from_millis(20))?;
        }
    }

    /// Waits for so many seconds.
    pub fn sleep(&mut self, seconds: f64) -> Measured<()> {
        self.machine.sleep(Duration::from_secs_f64(seconds))
    }

    /// Returns the time since some moment.
    pub fn now(&mut self) -> Duration {
        self.machine.now()
    }

    /// Reads a file.
    pub fn read(&mut self, path: impl AsRef<Path>) -> Measured<Text> {
        self.machine.read(path.as_ref())
    }

    /// Returns the program of a rival. Fails if it is not installed.
    pub fn rival(&mut self, rival: Rival) -> Measured<PathBuf> {
        rival.find(self.machine)
    }

    /// Records a command that undoes what is changed next: it runs when the lab is closed, and by
    /// the next lab if this program is killed. The last one runs first. A command that is owed
    /// already is not added again.
    pub fn owe(&mut self, command: Command) -> Measured<()> {
        if !self.owed.contains(&command) {
            self.owed.push(command);
        }
        dead::note_owed(self.machine, &self.folder, &self.owed)
    }

    /// Returns a command for `taut`, which talks to the current daemon.
    pub fn taut_command(&self, words: impl Words) -> Command {
        let command = Command::new(self.program("taut")).args(words);
        match self.current_daemon() {
            Some(daemon) => command.env("TAUT_SOCKET", &daemon.socket),
            None => command,
        }
    }

    /// Runs `taut` and requires status 0.
    pub fn taut(&mut self, words: impl Words) -> Measured<Ended> {
        let command = self.taut_command(words);
        self.run(&command)
    }

    /// Runs taut with JSON output and returns what it prints.
    pub fn taut_json(&mut self, words: impl Words) -> Measured<Doc> {
        let mut words = words.words();
        words.splice(0..0, ["-o", "json"].map(str::to_owned));
        let command = self.taut_command(words);
        self.machine.run(&command)?.json()
    }

    /// Runs `taut bench …` with JSON output and returns its result, which is kept in the row's
    /// folder. The result is what this call printed, so that no other call's can stand in.
    pub fn bench(&mut self, words: impl Words) -> Measured<Doc> {
        let command = self.bench_command(words);
        self.bench_by(&command)
    }

    /// Runs a command of [`Lab::bench_command`] and returns its result.
    pub fn bench_by(&mut self, command: &Command) -> Measured<Doc> {
        self.machine.run(command)?.json()
    }

    /// Returns the command of `taut bench …` with JSON output, to run it with priority or in the
    /// background.
    pub fn bench_command(&self, words: impl Words) -> Command {
        let words = words.words();
        let name = words.first().map_or("bench", |word| word).to_owned();
        let all = ["-o", "json", "bench"].map(str::to_owned).into_iter().chain(words);
        self.taut_command(all.collect::<Vec<_>>()).record(&name).limit(3600)
    }
}
