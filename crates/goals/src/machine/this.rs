//! The machine that this program runs on.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, kill_process, kill_process_group, pidfd_open};

use super::{Command, Ended, Job, Machine, Signal, Text, is_interrupted};
use crate::reason::{Context, Measured, NotMeasured, require};

/// Time after which a wait for a program looks whether it was interrupted. The kernel tells of the
/// program's end: frequent looks would disturb what the program measures.
const LOOK: Duration = Duration::from_millis(200);

/// The machine that this program runs on.
#[derive(Debug)]
pub struct ThisMachine {
    began: Instant,
    jobs: HashMap<u32, Running>,
    /// Folder of outputs that are not kept.
    passing: PathBuf,
    /// Folder of outputs that are kept.
    records: PathBuf,
    /// Number of outputs so far.
    count: u32,
    is_closing: bool,
}

#[derive(Debug)]
struct Running {
    child: Child,
    command: String,
    has_session: bool,
    began: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
    is_kept: bool,
}

impl ThisMachine {
    /// Makes a machine that keeps outputs in `folder`, which must exist.
    pub fn new(folder: &Path) -> Self {
        let passing = folder.join("passing");
        Self {
            began: Instant::now(),
            jobs: HashMap::new(),
            passing,
            records: folder.to_owned(),
            count: 0,
            is_closing: false,
        }
    }

    fn spawn(&mut self, command: &Command) -> Measured<Running> {
        require(!is_interrupted() || self.is_closing, "interrupted")?;
        self.count += 1;
        let name = command.record.as_deref().unwrap_or("output");
        let folder = if command.record.is_some() { &self.records } else { &self.passing };
        fs::create_dir_all(folder)?;
        let path = |end: &str| folder.join(format!("{:03}-{name}.{end}", self.count));
        let (stdout, stderr) = (path("out"), path("err"));
        let mut process = if command.has_session {
            // This very program, also when its file was replaced meanwhile.
            let mut process = process::Command::new("/proc/self/exe");
            process.arg("launch").args(command.is_preferred.then_some("--preferred")).arg("--");
            process.arg(&command.program);
            process
        } else {
            process::Command::new(&command.program)
        };
        process.args(&command.arguments);
        process.stdin(if command.input.is_some() { Stdio::piped() } else { Stdio::null() });
        // A file that is already there is of another call, and must not stand in for this one's.
        process.stdout(File::create_new(&stdout)?).stderr(File::create_new(&stderr)?);
        for (name, value) in &command.environment {
            match value {
                Some(value) => process.env(name, value),
                None => process.env_remove(name),
            };
        }
        if let Some(folder) = &command.folder {
            process.current_dir(folder);
        }
        let began = Instant::now();
        let mut child = process.spawn().when(format!("`{command}` cannot be started"))?;
        if let (Some(input), Some(mut pipe)) = (&command.input, child.stdin.take()) {
            // A program that ends without reading it says why itself.
            let _ = pipe.write_all(input.as_bytes());
        }
        let is_kept = command.record.is_some();
        let line = command.to_string();
        Ok(Running { child, command: line, has_session: command.has_session, began, stdout, stderr, is_kept })
    }

    fn finish(&mut self, mut running: Running, limit: Duration) -> Measured<Ended> {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = running.child.try_wait()? {
                break status;
            }
            let is_interrupted = is_interrupted() && !self.is_closing;
            if is_interrupted || Instant::now() > end {
                running.kill();
                let why = if is_interrupted {
                    "interrupted".to_owned()
                } else {
                    format!("not done after {limit:?}")
                };
                return Err(NotMeasured::because(format!("`{}`: {why}", running.command)));
            }
            let child = Pid::from_child(&running.child);
            let pidfd = pidfd_open(child, PidfdFlags::empty()).map_err(io::Error::from)?;
            let time = Timespec::try_from(LOOK.min(limit)).ok();
            // A signal is one more reason to look.
            let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], time.as_ref());
        };
        let took = running.began.elapsed();
        let read = |path: &Path| Ok::<_, io::Error>(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        let (stdout, stderr) = (read(&running.stdout)?, read(&running.stderr)?);
        if !running.is_kept {
            fs::remove_file(&running.stdout)?;
            fs::remove_file(&running.stderr)?;
        }
        // A signal is no status; a shell would make one of it.
        let status = if status.signal().is_some() { None } else { status.code() };
        let command = running.command;
        Ok(Ended { command, status, stdout: stdout.into(), stderr: stderr.into(), took })
    }
}

impl Running {
    fn kill(&mut self) {
        if self.has_session
            && let Some(pid) = Pid::from_raw(self.child.id().cast_signed())
        {
            let _ = kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Machine for ThisMachine {
    fn run(&mut self, command: &Command) -> Measured<Ended> {
        let running = self.spawn(command)?;
        self.finish(running, command.limit)
    }

    fn start(&mut self, command: &Command) -> Measured<Job> {
        let running = self.spawn(command)?;
        let pid = running.child.id();
        self.jobs.insert(pid, running);
        Ok(Job { pid })
    }

    fn wait(&mut self, job: &Job, limit: Duration) -> Measured<Ended> {
        let running = self.jobs.remove(&job.pid);
        let running = running.ok_or_else(|| NotMeasured::because("a job was waited for twice"))?;
        self.finish(running, limit)
    }

    fn is_running(&mut self, job: &Job) -> bool {
        self.jobs.get_mut(&job.pid).is_some_and(|running| matches!(running.child.try_wait(), Ok(None)))
    }

    fn output(&mut self, job: &Job) -> Measured<Text> {
        let running = self.jobs.get(&job.pid);
        let running = running.ok_or_else(|| NotMeasured::because("the job was waited for already"))?;
        let bytes = fs::read(&running.stdout)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned().into())
    }

    fn signal_session(&mut self, pid: u32, signal: Signal) -> Measured<()> {
        kill_process_group(process(pid)?, number(signal)).when(format!("signal {signal:?} for session {pid}"))
    }

    fn signal(&mut self, pid: u32, signal: Signal) -> Measured<()> {
        kill_process(process(pid)?, number(signal)).when(format!("signal {signal:?} for process {pid}"))
    }

    fn read(&mut self, path: &Path) -> Measured<Text> {
        let bytes = fs::read(path).when(path.display())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned().into())
    }

    fn write(&mut self, path: &Path, text: &str) -> Measured<()> {
        fs::write(path, text).when(path.display())
    }

    fn exists(&mut self, path: &Path) -> bool {
        path.exists()
    }

    fn size(&mut self, path: &Path) -> Measured<u64> {
        Ok(fs::metadata(path).when(path.display())?.len())
    }

    fn make_folder(&mut self, path: &Path) -> Measured<()> {
        fs::create_dir_all(path).when(path.display())
    }

    fn remove(&mut self, path: &Path) -> Measured<()> {
        let is_folder = fs::symlink_metadata(path).when(path.display())?.is_dir();
        if is_folder { fs::remove_dir(path) } else { fs::remove_file(path) }.when(path.display())
    }

    fn remove_all(&mut self, path: &Path) -> Measured<()> {
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).when(path.display()),
            Ok(metadata) => remove_tree(path, metadata.dev()).when(path.display()),
        }
    }

    fn list(&mut self, folder: &Path) -> Measured<Vec<PathBuf>> {
        let entries = fs::read_dir(folder).when(folder.display())?;
        let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        Ok(paths)
    }

    fn copy(&mut self, from: &Path, to: &Path) -> Measured<()> {
        fs::copy(from, to).map(drop).when(from.display())
    }

    fn program(&mut self, name: &str) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(name)).filter(|path| path.is_file());
        }
        let path = std::env::var_os("PATH")?;
        // Programs for the administrator are not on the PATH of everybody.
        let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    fn variable(&mut self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn now(&mut self) -> Duration {
        self.began.elapsed()
    }

    fn sleep(&mut self, time: Duration) -> Measured<()> {
        let end = Instant::now() + time;
        loop {
            require(!is_interrupted() || self.is_closing, "interrupted")?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
    }

    fn record_in(&mut self, folder: &Path) -> Measured<()> {
        self.make_folder(folder)?;
        folder.clone_into(&mut self.records);
        Ok(())
    }

    fn set_closing(&mut self, is_closing: bool) -> bool {
        std::mem::replace(&mut self.is_closing, is_closing)
    }
}

impl Drop for ThisMachine {
    fn drop(&mut self) {
        self.jobs.values_mut().for_each(Running::kill);
        let _ = fs::remove_dir_all(&self.passing);
    }
}

fn process(pid: u32) -> Measured<Pid> {
    Pid::from_raw(pid.cast_signed()).ok_or_else(|| NotMeasured::because(format!("{pid} is no process")))
}

fn number(signal: Signal) -> rustix::process::Signal {
    match signal {
        Signal::Interrupt => rustix::process::Signal::INT,
        Signal::Terminate => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
        Signal::Stop => rustix::process::Signal::STOP,
        Signal::Continue => rustix::process::Signal::CONT,
    }
}

/// Removes a folder on one file system. What is mounted in it stays, and so do the folders above.
fn remove_tree(path: &Path, device: u64) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return fs::remove_file(path);
    }
    if metadata.dev() != device {
        return Err(io::Error::other(format!("{} is another file system", path.display())));
    }
    for entry in fs::read_dir(path)? {
        remove_tree(&entry?.path(), device)?;
    }
    fs::remove_dir(path)
}
