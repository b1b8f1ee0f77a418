//! A file system in user space whose server answers strangers, or does not.
//!
//! It speaks the kernel's protocol over `/dev/fuse` itself (`include/uapi/linux/fuse.h`): a front
//! end that wants to harm its back end needs no more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// Requests (`enum fuse_opcode`).
mod opcode {
    pub(super) const LOOKUP: u32 = 1;
    pub(super) const FORGET: u32 = 2;
    pub(super) const GETATTR: u32 = 3;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const OPENDIR: u32 = 27;
    pub(super) const RELEASEDIR: u32 = 29;
    pub(super) const INTERRUPT: u32 = 36;
    pub(super) const BATCH_FORGET: u32 = 42;
}

/// Node of the root directory; the only file is the next one.
const ROOT: u64 = 1;
const FILE: u64 = 2;
/// Size of the file.
const SIZE: u64 = 1 << 20;
/// Length of a request's header.
const HEADER: usize = 40;
/// Most bytes of a write.
const WRITE: u32 = 1 << 16;
/// Buffer of a request: the kernel wants room for the longest write and its headers.
const BUFFER: usize = 2 * WRITE as usize;
const NOT_IMPLEMENTED: i32 = -38;

/// A mounted file system. Dropping it ends all waits of others for its answers.
#[derive(Debug)]
pub struct Fuse {
    folder: PathBuf,
    shared: Arc<Shared>,
    stop: Arc<OwnedFd>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    device: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Requests of other processes are not answered.
    withholds: bool,
    /// Neither are those that read or close a file.
    withholds_content: bool,
    /// Requests that were not answered.
    withheld: Vec<u64>,
}

impl Fuse {
    /// Mounts the file system at a new folder. Takes root.
    ///
    /// # Errors
    /// The kernel has no FUSE, or refuses the mount.
    pub fn mount(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options = "fd=0,rootmode=40000,user_id=0,group_id=0,allow_other";
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", "fuse", "-o", options, "taut-test"]).arg(folder);
        let output = mount.stdin(Stdio::from(device.try_clone()?)).output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let shared = Arc::new(Shared { device, state: Mutex::default() });
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (serving, stopped) = (Arc::clone(&shared), Arc::clone(&stop));
        let server = std::thread::spawn(move || serving.serve(&stopped));
        Ok(Self { folder: folder.to_owned(), shared, stop, server: Some(server) })
    }

    /// Opens the file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(&self) -> io::Result<OwnedFd> {
        let file = OpenOptions::new().read(true).write(true).open(self.folder.join("file"))?;
        Ok(file.into())
    }

    /// From now on requests of other processes are not answered.
    pub fn withhold(&self) {
        self.shared.state().withholds = true;
    }

    /// From now on files can be opened, but other processes can neither read nor close them.
    pub fn withhold_content(&self) {
        self.shared.state().withholds_content = true;
    }

    /// Number of requests that wait for an answer.
    pub fn waiting(&self) -> usize {
        self.shared.state().withheld.len()
    }

    /// Answers everything that was withheld, and from now on all requests.
    pub fn release(&self) {
        let withheld = {
            let mut state = self.shared.state();
            (state.withholds, state.withholds_content) = (false, false);
            std::mem::take(&mut state.withheld)
        };
        for request in withheld {
            self.shared.answer(request, 0, &[]);
        }
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        self.release();
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stop: &OwnedFd) {
        let mut request = vec![0; BUFFER];
        loop {
            let mut polled = [PollFd::new(&self.device, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            let polled_ok = poll(&mut polled, None).is_ok();
            if polled_ok && !polled[1].revents().is_empty() {
                return;
            }
            match (&self.device).read(&mut request) {
                Ok(got) if got >= HEADER => self.take(&request[..got]),
                Ok(_) => {}
                // A request that was withdrawn, or a signal.
                Err(error) if matches!(error.raw_os_error(), Some(2 | 4 | 11)) => {}
                Err(_) => return,
            }
        }
    }

    fn take(&self, request: &[u8]) {
        let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        let (code, unique, node, pid) = (word(4), long(8), long(16), word(32));
        if matches!(code, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
            return;
        }
        let own = Path::new(&format!("/proc/self/task/{pid}")).exists();
        {
            let mut state = self.state();
            // The kernel itself releases files, and waits for no answer.
            let withholds = match code {
                opcode::RELEASE | opcode::RELEASEDIR => false,
                opcode::READ | opcode::FLUSH => state.withholds || state.withholds_content,
                _ => state.withholds,
            };
            if withholds && !own {
                state.withheld.push(unique);
                return;
            }
        }
        match code {
            opcode::INIT => self.answer(unique, 0, &init()),
            opcode::LOOKUP => self.answer(unique, 0, &entry()),
            opcode::GETATTR => {
                let mut body = vec![0; 16];
                body.extend(attributes(node));
                self.answer(unique, 0, &body);
            }
            opcode::OPEN | opcode::OPENDIR => self.answer(unique, 0, &[0; 16]),
            opcode::READ => {
                let left = SIZE.saturating_sub(long(HEADER + 8)).min(word(HEADER + 16).into());
                self.answer(unique, 0, &vec![0; left as usize]);
            }
            opcode::FLUSH | opcode::RELEASE | opcode::RELEASEDIR => self.answer(unique, 0, &[]),
            _ => self.answer(unique, NOT_IMPLEMENTED, &[]),
        }
    }

    fn answer(&self, unique: u64, error: i32, body: &[u8]) {
        let len = (16 + body.len()) as u32;
        let header = [&len.to_ne_bytes()[..], &error.to_ne_bytes(), &unique.to_ne_bytes()].concat();
        // An error means that nobody waits any more.
        let _ = (&self.device).write(&[&header, body].concat());
    }
}

/// `struct fuse_init_out` of version 7.31.
fn init() -> Vec<u8> {
    let mut body: Vec<u8> = [7_u32, 31, 0, 0].map(u32::to_ne_bytes).concat();
    // Requests in the background, one number for two; bytes of a write; the grain of time.
    body.extend([16_u32 | 12 << 16, WRITE, 1].map(u32::to_ne_bytes).concat());
    body.resize(64, 0);
    body
}

/// `struct fuse_entry_out`: each name is the file.
fn entry() -> Vec<u8> {
    let mut body: Vec<u8> = [FILE, 0, 3600, 3600, 0].map(u64::to_ne_bytes).concat();
    body.extend(attributes(FILE));
    body
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (size, mode) = if node == ROOT { (0, 0o040_755) } else { (SIZE, 0o100_666) };
    let mut body: Vec<u8> = [node, size, size / 512, 0, 0, 0].map(u64::to_ne_bytes).concat();
    // Parts of times; mode, links, owner, group, device, block size and flags.
    body.extend([0_u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
    body
}
