//! The descriptors that the program inherits.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use taut_launch::{DOCUMENT_FD, Document, Step};

use crate::failure::{Failed, Within as _};
use crate::sys::calls::close_on_exec_from;
use crate::sys::inherited;

/// Descriptors that the launcher itself uses.
#[derive(Debug)]
pub(crate) struct Inherited {
    /// The program's file.
    pub(crate) program: BorrowedFd<'static>,
    /// The skeleton's mount namespace.
    pub(crate) skeleton: Option<OwnedFd>,
}

/// Has all descriptors closed when the program starts, but for the standard streams and those that
/// it keeps.
pub(crate) fn prepare(document: &Document) -> Result<Inherited, Failed> {
    let step = Step::Descriptors;
    close_on_exec_from(DOCUMENT_FD.cast_unsigned())
        .within(step, || "marking all descriptors to be closed".to_owned())?;
    for number in 0..DOCUMENT_FD {
        // A standard stream may be closed.
        if let Ok(stream) = inherited::find(number) {
            refuse_folder(stream, number)?;
        }
    }
    for &number in &document.keep {
        let kept = inherited::find(number).within(step, || format!("descriptor {number} (keep)"))?;
        refuse_folder(kept, number)?;
        fcntl_setfd(kept, FdFlags::empty()).within(step, || format!("keeping descriptor {number}"))?;
    }
    let named = |what: &str, number: RawFd| format!("descriptor {number} ({what})");
    let number = document.program;
    let program = inherited::find(number).within(step, || named("program", number))?;
    if file_type(program, number)? != FileType::RegularFile {
        return Err(Failed::new(step, format!("{} is not a regular file", named("program", number))));
    }
    let skeleton = document.root.skeleton.map(|number| {
        let skeleton = inherited::take(number);
        skeleton.within(step, || named("skeleton", number))
    });
    Ok(Inherited { program, skeleton: skeleton.transpose()? })
}

/// Refuses a folder of the host, from which a process could reach all others by `..`.
fn refuse_folder(descriptor: BorrowedFd<'_>, number: RawFd) -> Result<(), Failed> {
    if file_type(descriptor, number)? == FileType::Directory {
        return Err(Failed::new(
            Step::Descriptors,
            format!("descriptor {number} is a folder, which would open the host's files to the program"),
        ));
    }
    Ok(())
}

fn file_type(descriptor: BorrowedFd<'_>, number: RawFd) -> Result<FileType, Failed> {
    let stat: Result<_, Errno> = fstat(descriptor.as_fd());
    let stat = stat.within(Step::Descriptors, || format!("looking at descriptor {number}"))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}
