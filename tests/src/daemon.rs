//! One `tautd` with its own directories.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Background, Pids, alive, bin_dir, directory, eventually, kill_9, process};

/// A running `tautd`; dropping it stops everything that it started.
#[derive(Debug)]
pub struct Taut {
    dir: TempDir,
    daemon: Child,
    args: &'static [&'static str],
}

/// Outcome of one command.
#[derive(Debug)]
pub struct Outcome {
    /// True if the exit status was zero.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Taut {
    /// Starts a daemon with an empty store.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a daemon with an empty store and these arguments.
    pub fn start_with(args: &'static [&'static str]) -> Self {
        let dir = directory();
        let daemon = spawn(dir.path(), args, []);
        let taut = Self { dir, daemon, args };
        taut.wait_until_it_answers();
        // Tests may expect ports to be served at once.
        taut.fabric_pid();
        taut
    }

    /// Returns the directory for files of the test.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns the daemon's process number.
    pub fn daemon_pid(&self) -> i32 {
        i32::try_from(self.daemon.id()).expect("process numbers are small")
    }

    /// Returns the fabric's process number, as soon as there is one.
    pub fn fabric_pid(&self) -> i32 {
        let pid = eventually("the daemon names its fabric", || {
            self.json(["daemon", "show"])["fabric_pid"].as_i64()
        });
        i32::try_from(pid).expect("process numbers are small")
    }

    /// Ends the daemon by SIGKILL.
    pub fn kill_daemon(&mut self) {
        kill_9(self.daemon_pid());
        self.daemon.wait().expect("our child");
    }

    /// Ends the daemon by SIGKILL and starts the next one at once. Returns the killed one: a thread
    /// that waits for a file system may keep it from ending.
    pub fn replace_daemon(&mut self) -> Background {
        kill_9(self.daemon_pid());
        let next = spawn(self.dir.path(), self.args, []);
        let killed = Background::of(std::mem::replace(&mut self.daemon, next));
        self.wait_until_it_answers();
        killed
    }

    /// Ends the daemon with all its VMs, and waits until it has ended.
    pub fn shut_down(&mut self) {
        self.ok(["shutdown", "--everything"]);
        self.daemon.wait().expect("our child");
        assert!(self.probes().is_empty(), "a guest that KVM was tried with outlived its daemon");
    }

    /// Returns the processes of the daemon's KVM probe.
    pub fn probes(&self) -> Pids {
        process::naming(&format!("/proc/{}/fd/", self.daemon_pid()))
    }

    /// Starts the daemon again on the same directories.
    pub fn restart_daemon(&mut self) {
        self.restart_daemon_with([]);
    }

    /// Starts the daemon again with additional environment variables.
    pub fn restart_daemon_with<const N: usize>(&mut self, environment: [(&str, &str); N]) {
        self.daemon = spawn(self.dir.path(), self.args, environment);
        self.wait_until_it_answers();
    }

    /// Runs `taut ARGS`.
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        let output = self.command().args(args).output().expect("taut can be run");
        Outcome {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns a `taut` command to which arguments can be added.
    pub fn command(&self) -> Command {
        let mut command = Command::new(bin_dir().join("taut"));
        command.arg("--socket").arg(self.dir.path().join("run/tautd.sock")).stdin(Stdio::null());
        command
    }

    /// Runs `taut ARGS`, which must succeed.
    pub fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let outcome = self.run(args);
        assert!(outcome.success, "failed: {}{}\n{}", outcome.stdout, outcome.stderr, self.logs());
        outcome.stdout
    }

    /// Runs `taut ARGS`, which must fail with a hint; returns the error text.
    pub fn refused<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let outcome = self.run(args);
        assert!(!outcome.success, "was not refused: {}", outcome.stdout);
        assert!(outcome.stderr.contains("\nhint: "), "no hint: {}", outcome.stderr);
        outcome.stderr
    }

    /// Runs `taut ARGS -o json`, which must succeed.
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Value {
        let outcome = {
            let output = self.command().args(["-o", "json"]).args(args).output().expect("taut can be run");
            let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
            assert!(output.status.success(), "failed: {}{}\n{}", said[0], said[1], self.logs());
            output.stdout
        };
        serde_json::from_slice(&outcome).expect("JSON was asked for")
    }

    /// Writes a file of this name and content, and returns its path.
    pub fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).expect("the directory is ours");
        path
    }

    /// Adds a vSwitch `sw` with the port group `lan`.
    #[must_use]
    pub fn with_lan(self) -> Self {
        self.ok(["vswitch", "create", "sw"]);
        self.ok(["portgroup", "create", "lan", "--vswitch", "sw"]);
        self
    }

    /// Creates and starts a VM from a file's text, and waits until its agent answers.
    pub fn boot(&self, name: &str, text: &str) {
        self.create(name, text);
        self.ok(["vm", "start", "--wait", name]);
    }

    /// The same for several VMs, each with its name and the text of its file. They boot at the same
    /// time.
    pub fn boot_all<S: AsRef<str>>(&self, vms: impl IntoIterator<Item = (S, String)>) {
        let start = |(name, text): (S, String)| {
            self.create(name.as_ref(), &text);
            self.ok(["vm", "start", name.as_ref()]);
            name
        };
        let started: Vec<S> = vms.into_iter().map(start).collect();
        for name in started {
            self.ok(["vm", "start", "--wait", name.as_ref()]);
        }
    }

    /// Creates a VM from a file's text.
    fn create(&self, name: &str, text: &str) {
        let file = self.file(&format!("{name}.toml"), text);
        self.ok([
            OsStr::new("vm"),
            "create".as_ref(),
            "-f".as_ref(),
            file.as_os_str(),
            "--name".as_ref(),
            name.as_ref(),
        ]);
    }

    /// Returns all logs of the programs, for the message of a failed test.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "log") {
                    let content = std::fs::read(&path).unwrap_or_default();
                    let tail =
                        String::from_utf8_lossy(&content[content.len().saturating_sub(4000)..]).into_owned();
                    let _ = writeln!(text, "--- {}\n{tail}", path.display());
                }
            }
        }
        text
    }

    fn wait_until_it_answers(&self) {
        eventually("the daemon answers", || self.run(["daemon", "show"]).success.then_some(()));
    }
}

impl Drop for Taut {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        let clean = self.run(["shutdown", "--everything"]).success;
        if clean {
            let _ = self.daemon.wait();
        }
        let mut left = process::of_directory(self.dir.path());
        left.extend(self.probes());
        for &pid in &left {
            if alive(pid) {
                kill_9(pid);
            }
        }
        let _ = self.daemon.wait();
        if !std::thread::panicking() {
            assert!(clean, "the daemon did not shut down cleanly");
            assert!(left.is_empty(), "processes were left behind: {left:?}");
        }
    }
}

pub(crate) fn spawn<const N: usize>(dir: &Path, args: &[&str], environment: [(&str, &str); N]) -> Child {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("tautd.log"))
        .expect("a log file");
    Command::new(bin_dir().join("tautd"))
        .arg("--state-dir")
        .arg(dir.join("state"))
        .arg("--run-dir")
        .arg(dir.join("run"))
        .arg("--log-dir")
        .arg(dir.join("log"))
        .args(args)
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("tautd is built: run make build")
}
