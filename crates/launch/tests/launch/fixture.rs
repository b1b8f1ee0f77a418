//! Starts the launcher with descriptors at given numbers.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use taut_launch::{
    CONFIRM_FD, DOCUMENT_FD, Device, Document, FIRST_INHERITED, Filter, LaunchError, Launched, REPORT_FD,
    Skeleton, Waiting, Wall, read_skeleton_report, read_waiting,
};

/// First user of the tests, as taut's own: a number that no account has.
pub(crate) const FIRST_USER: u32 = 1_879_048_192;

/// Time limit for what takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Lower bound of temporary descriptors, above every number that a test uses.
const TEMPORARY: RawFd = 200;

/// Capabilities that containers may lack (linux/capability.h).
pub(crate) const CAP_SYS_ADMIN: libc::c_ulong = 21;
pub(crate) const CAP_SYS_RESOURCE: libc::c_ulong = 24;
pub(crate) const CAP_MKNOD: libc::c_ulong = 27;

/// A launch that is being prepared.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) document: Document,
    descriptors: Vec<(OwnedFd, RawFd)>,
    /// Passes the pipe on which the start is confirmed.
    pub(crate) passes_confirmation: bool,
    /// Capabilities that the launcher does not have.
    without: Vec<libc::c_ulong>,
}

/// The launcher, as its caller sees it.
#[derive(Debug)]
pub(crate) struct Launching {
    pub(crate) launcher: Child,
    pub(crate) report: PipeReader,
    /// The other end of the pipe on which the start is confirmed.
    pub(crate) confirm: PipeWriter,
    pub(crate) input: PipeWriter,
    pub(crate) output: PipeReader,
}

/// The launcher, and the program if it has started.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) report: Result<Launched, LaunchError>,
    pub(crate) launcher: u32,
    /// Closing it ends a script that reads from standard input.
    input: PipeWriter,
    output: PipeReader,
}

/// What is left of a launch.
#[derive(Debug)]
pub(crate) struct Finished {
    /// How the program's process ended.
    pub(crate) program: WaitStatus,
    /// Its standard output and error.
    pub(crate) output: String,
    pub(crate) launched: Launched,
}

/// Folders of the system, as far as this host has them.
pub(crate) fn system() -> Vec<PathBuf> {
    let folders = ["/bin", "/lib", "/lib32", "/lib64", "/sbin", "/usr"];
    folders.into_iter().map(PathBuf::from).filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// The shell's file, behind all links.
pub(crate) fn shell() -> PathBuf {
    fs::canonicalize("/bin/sh").unwrap()
}

impl Start {
    /// A program with the walls of a VM: `/usr` readable, `/dev/null` and `/proc`.
    pub(crate) fn new(program: &Path, args: &[&str]) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests need root\nhint: sudo -E env PATH=\"$PATH\" cargo test"
        );
        let args = args.iter().map(|&arg| arg.to_owned()).collect();
        let mut document = Document::new(FIRST_INHERITED, args, FIRST_USER + 7, FIRST_USER + 8, Filter::Vm);
        document.env = vec!["PATH=/usr/bin:/bin".to_owned(), "LC_ALL=C".to_owned()];
        document.root.system = system();
        document.root.devices = vec![Device { path: "/dev/null".into(), major: 1, minor: 3, mode: 0o600 }];
        document.root.proc = true;
        document.landlock.execute = vec!["/usr".into()];
        document.landlock.read = vec!["/proc".into()];
        document.landlock.devices = vec!["/dev".into()];
        // A kernel may be older, but nothing else may be missing.
        document.may_lack = Wall::NEWER_THAN_LINUX_6_1.into();
        let mut start =
            Self { document, descriptors: Vec::new(), passes_confirmation: true, without: Vec::new() };
        assert_eq!(start.inherit(File::open(program).unwrap()), FIRST_INHERITED);
        start
    }

    /// A script of the shell.
    pub(crate) fn script(text: &str) -> Self {
        Self::new(&shell(), &["sh", "-c", text])
    }

    /// Passes a descriptor to the launcher and returns its number.
    pub(crate) fn inherit(&mut self, descriptor: impl Into<OwnedFd>) -> RawFd {
        let number = FIRST_INHERITED + RawFd::try_from(self.descriptors.len()).unwrap();
        self.descriptors.push((descriptor.into(), number));
        number
    }

    /// Passes a descriptor to the program and returns its number.
    pub(crate) fn keep(&mut self, descriptor: impl Into<OwnedFd>) -> RawFd {
        let number = self.inherit(descriptor);
        self.document.keep.push(number);
        number
    }

    /// Takes a capability away from the launcher, as a container does.
    pub(crate) fn without(mut self, capability: libc::c_ulong) -> Self {
        self.without.push(capability);
        self
    }

    /// Starts the launcher and reads its report.
    pub(crate) fn start(&self) -> Running {
        self.start_with(&self.document.to_bytes().unwrap())
    }

    /// The same with any bytes as document.
    pub(crate) fn start_with(&self, document: &[u8]) -> Running {
        let Launching { report: pipe, confirm, mut launcher, input, output } = self.spawn(document, &[]);
        let waiting = read_waiting(&pipe, PATIENCE);
        let report = waiting.and_then(|waiting| waiting.finish(confirm.into(), &pipe, PATIENCE));
        // Without a pid namespace of its own the program is the launcher's process.
        let is_program = report.as_ref().is_ok_and(|launched| launched.pid == launcher.id());
        if !is_program {
            let is_sound = report.as_ref().map_or_else(|error| error.pid().is_some(), |_| true);
            assert_eq!(launcher.wait().unwrap().success(), is_sound);
        }
        Running { report, launcher: launcher.id(), input, output }
    }

    /// Starts the launcher and returns once its process waits to be confirmed.
    pub(crate) fn start_unconfirmed(&self) -> (Launching, Waiting) {
        let launching = self.spawn(&self.document.to_bytes().unwrap(), &[]);
        let waiting = read_waiting(&launching.report, PATIENCE).unwrap();
        (launching, waiting)
    }

    /// Starts the launcher.
    pub(crate) fn spawn(&self, document: &[u8], args: &[&str]) -> Launching {
        let (report, report_end) = std::io::pipe().unwrap();
        let (confirmed, confirm) = std::io::pipe().unwrap();
        let (stdin, input) = std::io::pipe().unwrap();
        let (output, stdout) = std::io::pipe().unwrap();
        let mut moved: Vec<(OwnedFd, RawFd)> = Vec::new();
        let mut add = |descriptor: &OwnedFd, number| {
            moved.push((fcntl_dupfd_cloexec(descriptor, TEMPORARY).unwrap(), number));
        };
        add(&memory(document), DOCUMENT_FD);
        add(&report_end.into(), REPORT_FD);
        if self.passes_confirmation {
            add(&confirmed.into(), CONFIRM_FD);
        }
        for (descriptor, number) in &self.descriptors {
            add(descriptor, *number);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_taut-launch"));
        command.args(args).stdin(stdin).stdout(stdout.try_clone().unwrap()).stderr(Stdio::from(stdout));
        let without = self.without.clone();
        let in_child = move || {
            rustix::process::setsid()?;
            for &capability in &without {
                // SAFETY: this option of prctl takes a number and accesses no memory.
                if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            for (descriptor, number) in &moved {
                // SAFETY: dup2 accesses no memory. Nothing else in this single-threaded child uses
                // the number: all others are close-on-exec and not used before.
                if unsafe { libc::dup2(descriptor.as_raw_fd(), *number) } < 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: between fork and exec the closure only makes system calls. It neither allocates
        // nor takes a lock, and what it reads was allocated before the fork.
        unsafe { command.pre_exec(in_child) };
        let launcher = command.spawn().unwrap();
        // Its copies of the pipes would keep the report from ending.
        drop(command);
        Launching { launcher, report, confirm, input, output }
    }

    /// Starts the program and waits for its end.
    pub(crate) fn run(&self) -> Finished {
        self.start().finish()
    }
}

impl Running {
    /// Ends the program's standard input and waits for its end.
    pub(crate) fn finish(self) -> Finished {
        let launched = self.report.unwrap_or_else(|error| panic!("{error}\nhint: {}", error.hint()));
        drop(self.input);
        let mut output = String::new();
        let mut reader = self.output;
        reader.read_to_string(&mut output).unwrap();
        Finished { program: wait(launched.pid), output, launched }
    }

    /// Returns the error of a launch that failed, after waiting for what is left of it.
    pub(crate) fn failed(self) -> LaunchError {
        let error = self.report.expect_err("the launch fails");
        if let Some(pid) = error.pid() {
            assert_eq!(wait(pid).exit_status(), Some(1));
        }
        assert_nothing_left(self.launcher);
        error
    }

    /// Lets a script that waits for a line go on.
    pub(crate) fn write_line(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }
}

/// Fails if a process of a launcher's session is left. All that it has started has this session, or
/// has left a zombie.
pub(crate) fn assert_nothing_left(launcher: u32) {
    for process in fs::read_dir("/proc").unwrap() {
        let stat = fs::read_to_string(process.unwrap().path().join("stat")).unwrap_or_default();
        let session = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(3));
        assert_ne!(session, Some(launcher.to_string().as_str()), "a process is left: {stat}");
    }
}

/// Waits for a child of this process.
pub(crate) fn wait(pid: u32) -> WaitStatus {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
    status
}

/// A file in memory with these bytes.
pub(crate) fn memory(bytes: &[u8]) -> OwnedFd {
    let file = memfd_create("document", MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(file);
    file.write_all(bytes).unwrap();
    file.into()
}

/// Makes a skeleton and returns the descriptor of its mount namespace. Its process has ended.
pub(crate) fn skeleton(system: Vec<PathBuf>) -> Result<OwnedFd, LaunchError> {
    let start = Start::script("");
    let document = Skeleton { system }.to_bytes().unwrap();
    let Launching { report, launcher: mut process, input, .. } = start.spawn(&document, &["--skeleton"]);
    let reported = read_skeleton_report(report.as_fd(), PATIENCE);
    let namespace = File::open(format!("/proc/{}/ns/mnt", process.id()));
    drop(input);
    assert_eq!(process.wait().unwrap().success(), reported.is_ok());
    reported.map(|()| namespace.unwrap().into())
}

/// CPU time of a process and of what it has waited for, when it has ended.
pub(crate) fn cpu_time(pid: u32) -> Duration {
    // SAFETY: `rusage` is plain data for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    // SAFETY: both pointers are valid for writing during the call.
    let waited = unsafe { libc::wait4(pid.cast_signed(), &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, pid.cast_signed());
    assert_eq!(status, 0, "process {pid} failed");
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.cast_unsigned()) + Duration::from_micros(time.tv_usec.cast_unsigned())
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Gives the calling thread a mount namespace of its own.
pub(crate) fn copy_mounts() {
    // SAFETY: the call is unsafe only with `FILES`.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
}
