//! Copies of a VM's kernel and initrd, made on the thread of its start.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{FileType, OFlags};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_vm::named_file::NamedFile;

use super::progress::{Progress, cancelled};
use super::{Request, Tools};
use crate::access::files::{self, Named};
use crate::access::rights::Rights;
use crate::vms::budget::Room;
use crate::vms::copies::{FileState, sealed_copy};

/// Copies of files, and the room that they take in memory until they are in use.
#[derive(Debug, Default)]
pub(super) struct BootFiles {
    pub(super) copies: Vec<(PathBuf, FileState, OwnedFd)>,
    pub(super) room: Option<Room>,
}

/// A file that is open, and not copied yet.
struct Opened {
    named: Named,
    file: File,
    state: FileState,
}

/// Copies the kernel and the initrd of a VM to memory, unless other VMs have the same copies.
pub(super) fn copy_all(
    request: &Request,
    progress: &Arc<Progress>,
    tools: &Tools,
) -> Result<BootFiles, ApiError> {
    let mut opened: Vec<Opened> = Vec::new();
    for named in files::named(&request.spec).into_iter().filter(|file| file.purpose != "disk") {
        // Both may be one file.
        if opened.iter().all(|other| other.named.path != named.path) {
            opened.push(open(named, &request.owner, progress)?);
        }
    }
    let Some(first) = opened.first() else { return Ok(BootFiles::default()) };
    let is_missing = |file: &&Opened| tools.copies.find(file.state).is_none();
    let bytes = opened.iter().filter(is_missing).map(|file| file.state.size().0).sum();
    progress.begin_with("waiting for memory for", &first.named)?;
    let room = tools.budget.take(request.owner.uid, bytes, progress).map_err(|error| cancelled(&error))?;
    let copied: Result<_, ApiError> = opened
        .into_iter()
        .map(|Opened { named, file, state }| {
            if let Some(copy) = tools.copies.find(state) {
                return Ok((named.path, state, copy));
            }
            progress.begin_with("reading", &named)?;
            let note = |bytes| {
                room.note_copied(bytes);
                progress.advance()
            };
            let copy = sealed_copy(&file, state, note).map_err(|error| cannot_read(&named, &error))?;
            Ok((named.path, state, copy))
        })
        .collect();
    Ok(BootFiles { copies: copied?, room: Some(room) })
}

fn open(named: Named, owner: &Rights, progress: &Progress) -> Result<Opened, ApiError> {
    progress.begin_with("opening", &named)?;
    let open = || NamedFile::find(&named.path)?.open(OFlags::RDONLY, |kind| kind == FileType::RegularFile);
    let opened = owner.run_as(open).and_then(|file| {
        let file = File::from(file);
        let state = FileState::of(&file)?;
        state.check_size()?;
        Ok((file, state))
    });
    match opened {
        Ok((file, state)) => Ok(Opened { named, file, state }),
        Err(error) => Err(cannot_read(&named, &error)),
    }
}

fn cannot_read(file: &Named, error: &io::Error) -> ApiError {
    let message = format!("{} cannot be read", file.path.display());
    ApiError::new(ErrorKind::Unavailable, message, "check the path in the VM's description").because(error)
}
