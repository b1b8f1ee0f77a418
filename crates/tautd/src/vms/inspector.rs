//! Inspects images by a process of its own, which has nothing but the image and a pipe.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use taut_inspect::{Answer, Format, MAX_ANSWER};

use super::chain::Inspector;
use crate::confine::{Confiner, Devices, Program, Walls};
use crate::process::OomScore;

/// Maximum time for an answer. The process has one second of CPU time for it. A start that has made
/// no progress is given up before.
const PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of inspectors at a time. Their filter forbids them to create threads.
const THREADS: u64 = 64;
/// Maximum time for the process to end after its answer, or when it is killed.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

/// Starts an inspector for each image.
#[derive(Debug)]
pub(super) struct Inspectors<'a> {
    pub(super) confiner: &'a Confiner,
    /// Folder of taut's programs.
    pub(super) libexec: &'a Path,
}

impl Inspector for Inspectors<'_> {
    fn inspect(&self, image: BorrowedFd<'_>, format: Format) -> io::Result<Answer> {
        let (answer, output) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, nowhere) = (File::from(output), File::options().write(true).open("/dev/null")?);
        let path: PathBuf = self.libexec.join("taut-inspect");
        let program = Program {
            path: &path,
            args: &[format.to_string()],
            descriptors: Vec::new(),
            input: Some(image),
            output: &output,
            errors: &nowhere,
            user: self.confiner.users().inspector(),
            oom: OomScore::VM,
            devices: Devices::default(),
            locks_memory: false,
            threads: THREADS,
            walls: Walls::Inspector,
            run_dir: Path::new("/"),
        };
        // It ends with its answer, or with this daemon, and no other daemon looks for it.
        let started = self.confiner.start(&program, |_| Ok(()))?;
        drop(output);
        let text = read_all(File::from(answer));
        if !started.process.has_ended(ENDED_WITHIN) || text.is_err() {
            started.process.kill(ENDED_WITHIN);
            let late = || io::Error::new(io::ErrorKind::TimedOut, "the inspector did not end");
            return Err(text.err().unwrap_or_else(late));
        }
        let (text, status) = (text?, started.process.status());
        tracing::debug!(?status, "an image was inspected");
        Answer::read(text.as_slice(), format).map_err(io::Error::other)
    }
}

/// Reads until the other end is closed, within the time and the size of an answer.
fn read_all(mut pipe: File) -> io::Result<Vec<u8>> {
    let end = std::time::Instant::now() + PATIENCE;
    let mut text = Vec::new();
    loop {
        let left = end.saturating_duration_since(std::time::Instant::now());
        let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
        let ready = poll(&mut [PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN)], Some(&timeout));
        match ready {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        let mut part = [0; 4096];
        let count = pipe.read(&mut part)?;
        if count == 0 {
            return Ok(text);
        }
        text.extend_from_slice(&part[..count]);
        if text.len() > MAX_ANSWER {
            return Err(io::Error::other(format!("an answer of more than {MAX_ANSWER} bytes")));
        }
    }
}
