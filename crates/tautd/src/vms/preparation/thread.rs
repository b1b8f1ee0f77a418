//! The thread of one start: opens the files that the VM's description names, waits for the order,
//! launches the process, records it, and waits for the loop to confirm it.
//!
//! The thread has a table of descriptors of its own ([`own_table`](crate::process::own_table)) and
//! closes the files itself, because closing may block, too.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};

use rustix::fs::fstat;
use rustix::thread::{Pid, gettid};
use taut_api::error::ErrorKind;
use taut_api::vm::VmKind;
use taut_api::{ApiError, Bytes, Name};
use taut_vm::launch::{self, DiskChain};

use super::boot_files::{BootFiles, copy_all};
use super::progress::{Progress, cancelled};
use super::{Decision, Order, Request, Tools};
use crate::access::files;
use crate::confine::{self, Program, Started, Walls};
use crate::console::Console;
use crate::inbox::{Inbox, Message};
use crate::process::{OomScore, write_record};
use crate::vms::budget::Room;
use crate::vms::chain::{OpenChain, open_chain};
use crate::vms::copies::{Copies, FileState, InUse};
use crate::vms::descriptors::{Files, OVERLAYS, open_all};
use crate::vms::inspector::Inspectors;
use crate::vms::queue_pairs::QueuePairFile;
use crate::vms::record::{Facts, ImageFile, Record};

/// Step of the launch, followed by the file that it may wait for.
const STARTING: &str = "starting its process with";

/// What the thread works on.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) vm: Name,
    pub(super) request: Request,
    pub(super) progress: Arc<Progress>,
    pub(super) tools: Tools,
    pub(super) reports: Reports,
    /// Disconnected when the start is given up.
    pub(super) orders: Receiver<(Order, Receiver<Decision>)>,
}

/// What the thread tells the reconcile loop.
#[derive(Debug)]
pub(super) enum Report {
    /// All files are open, and the thread waits for its order.
    Prepared(Prepared),
    /// The process is recorded, and waits behind its walls to be confirmed.
    Waiting(Box<Record>),
    /// The program runs.
    Started,
    /// The start has failed, and has left neither process nor record.
    Failed(ApiError),
    /// The thread has ended.
    Ended,
}

/// The disk chain and the copies made from a VM's files.
#[derive(Debug, Default)]
pub(in crate::vms) struct Prepared {
    /// The images of its disk.
    pub(in crate::vms) chain: DiskChain,
    /// The files of these images, for users.
    pub(in crate::vms) images: Vec<ImageFile>,
    /// Copies of its kernel and initrd, each with its number in the thread's table.
    pub(super) copies: Vec<(FileState, RawFd)>,
    /// The thread.
    pub(super) thread: Option<Pid>,
}

impl Prepared {
    /// Returns the size of the VM's kernel; 0 if it has none.
    pub(in crate::vms) fn kernel_size(&self) -> Bytes {
        // The kernel is the first file that is copied.
        self.copies.first().map_or(Bytes(0), |(state, _)| state.size())
    }

    /// Begins a use of each copy, which the thread has open.
    pub(super) fn share(&self, copies: &Copies) -> io::Result<Vec<InUse>> {
        let Some(thread) = self.thread else { return Ok(Vec::new()) };
        self.copies.iter().map(|(state, number)| copies.share(*state, thread, *number)).collect()
    }
}

/// Sends a start's reports to the reconcile loop. Dropping it sends [`Report::Ended`].
#[derive(Debug)]
pub(super) struct Reports {
    pub(super) start: u64,
    pub(super) sender: Sender<(u64, Report)>,
    pub(super) inbox: Inbox,
}

impl Reports {
    fn send(&self, report: Report) {
        // The loop may have ended.
        let _ = self.sender.send((self.start, report));
        self.inbox.send(Message::Wake);
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.send(Report::Ended);
    }
}

/// Does the work of a start.
pub(super) fn run(job: &Job) {
    let (files, prepared, room) = match prepare(job) {
        Ok(opened) => opened,
        Err(error) => return job.reports.send(Report::Failed(error)),
    };
    job.reports.send(Report::Prepared(prepared));
    let Ok((order, decision)) = job.orders.recv() else { return };
    let mut opened = Vec::new();
    let report = match launch(job, order, &decision, files, &mut opened) {
        Ok(()) => {
            // The process uses the copies now.
            drop(room);
            Report::Started
        }
        Err(error) => Report::Failed(error),
    };
    // Only then are the files closed, for which their file system may need long.
    job.reports.send(report);
}

/// Opens the files that a VM's description names, with the rights of its owner.
fn prepare(job: &Job) -> Result<(Files, Prepared, Option<Room>), ApiError> {
    let Job { request: Request { spec, owner }, progress, tools, .. } = job;
    if !owner.are_roots() {
        for file in files::named(spec) {
            progress.begin_with("opening", &file)?;
            files::check_owner(owner, &file)?;
        }
    }
    let (mut files, mut prepared) = (Files::default(), Prepared::default());
    if spec.kind != VmKind::Qemu {
        return Ok((files, prepared, None));
    }
    let BootFiles { copies, room } = copy_all(&job.request, progress, tools)?;
    for (path, state, copy) in copies {
        prepared.copies.push((state, copy.as_raw_fd()));
        files.copies.insert(path, (state, copy));
    }
    if let Some(disk) = &spec.disk {
        let inspectors = Inspectors { confiner: &tools.confiner, libexec: &tools.libexec };
        let OpenChain { chain, files: images, names } = open_chain(disk, owner, &inspectors, progress)?;
        prepared.chain = chain;
        let named = names.into_iter().zip(&images);
        prepared.images = named.map(|(name, image)| ImageFile { name, file: identity(image) }).collect();
        if disk.snapshot {
            let name = format!("the file for discarded writes in {OVERLAYS}");
            prepared.images.push(ImageFile { name, file: None });
        }
        files.images = images;
    }
    prepared.thread = Some(gettid());
    Ok((files, prepared, room))
}

fn identity(image: &OwnedFd) -> Option<(u64, u64)> {
    let found = fstat(image).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Launches the process, records it, and lets its program run once the loop has confirmed it. What
/// was opened for it stays in `opened`.
fn launch(
    job: &Job,
    order: Order,
    decision: &Receiver<Decision>,
    mut files: Files,
    opened: &mut Vec<OwnedFd>,
) -> Result<(), ApiError> {
    let Job { vm, request: Request { spec, .. }, progress, tools, .. } = job;
    if let Some(file) = files::named(spec).pop() {
        progress.begin_with(STARTING, &file)?;
    } else {
        let begun = progress.begin(STARTING, "the launcher", Path::new(""));
        begun.map_err(|error| cancelled(&error))?;
    }
    let failed = |what: &str, error: &io::Error| {
        ApiError::new(
            ErrorKind::Unavailable,
            format!("{what} for VM `{vm}` failed"),
            confine::hint(error).unwrap_or("remove the cause, then start it again"),
        )
        .because(error)
    };
    // Starts that were prepared at the same time may have copied the same file.
    for (state, copy) in files.copies.values_mut() {
        if let Some(shared) = tools.copies.find(*state) {
            *copy = shared;
        }
    }
    let Order { start, paths, user, devices, locks_memory, threads, facts } = order;
    *opened = open_all(&start.sources, files)?;
    let output = Console::output(&paths).map_err(|error| failed("keeping its output", &error))?;
    let queue_pairs = QueuePairFile::among(&start.sources, opened)
        .map_err(|error| failed("looking at the memory for queue pairs", &error))?;
    let program = Program {
        path: &start.program,
        args: &start.args,
        descriptors: opened.iter().zip(launch::FIRST..).map(|(fd, at)| (fd.as_fd(), at)).collect(),
        input: None,
        output: &output,
        errors: &output,
        user,
        oom: OomScore::VM,
        devices,
        locks_memory,
        threads,
        walls: Walls::Vm,
        run_dir: paths.dir(),
    };
    let record = |started: &Started| {
        let Started { process, user, missing } = started;
        let missing_walls = missing.clone();
        let facts = Facts { user: *user, missing_walls, queue_pairs, waiting: true, ..facts };
        let record = Record { identity: process.identity(), facts };
        // Without its record no daemon could adopt it.
        write_record(&paths.pid(), &record)
            .map_err(|error| io::Error::new(error.kind(), format!("recording its process: {error}")))?;
        job.reports.send(Report::Waiting(Box::new(record)));
        decision.recv().unwrap_or_else(|_| Err(io::Error::other("the start was cancelled")))
    };
    tools.confiner.start(&program, record).map(drop).map_err(|error| {
        // The file may not have been written.
        let _ = fs::remove_file(paths.pid());
        failed(&format!("starting `{}`", start.program.display()), &error)
    })
}
