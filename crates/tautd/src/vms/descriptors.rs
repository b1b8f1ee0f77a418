//! Opens what a VM's process inherits, because it may open almost nothing itself.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::fs::OFlags;
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_vm::launch::Source;

use super::copies::FileState;
use super::queue_pairs;
use crate::external::connect_now;

/// Folder of files without a name that take the discarded writes to disks, as of QEMU's own.
pub(super) const OVERLAYS: &str = "/var/tmp";

/// The open files that a VM's description names.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The images of the disk's chain.
    pub(super) images: Vec<OwnedFd>,
    /// Copies of kernel and initrd, by path, each with the state of its file.
    pub(super) copies: BTreeMap<PathBuf, (FileState, OwnedFd)>,
}

/// Opens each source, in their order. `files` are those that the VM's description names.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with the path and the kernel's reason.
pub(super) fn open_all(sources: &[Source], files: Files) -> Result<Vec<OwnedFd>, ApiError> {
    let Files { images, copies } = files;
    let mut images: Vec<_> = images.into_iter().map(Some).collect();
    sources.iter().map(|source| open_one(source, &mut images, &copies)).collect()
}

fn open_one(
    source: &Source,
    images: &mut [Option<OwnedFd>],
    copies: &BTreeMap<PathBuf, (FileState, OwnedFd)>,
) -> Result<OwnedFd, ApiError> {
    let failed = |what: &str, hint: &str| {
        let (what, hint) = (what.to_owned(), hint.to_owned());
        move |error: io::Error| ApiError::new(ErrorKind::Unavailable, what, hint).because(&error)
    };
    match source {
        Source::Listener(path) => {
            let what = format!("the socket {} cannot be made", path.display());
            let listener = UnixListener::bind(path);
            let hint = "see whether the run directory exists and has room";
            Ok(listener.map_err(failed(&what, hint))?.into())
        }
        Source::Connection(path) => {
            let what = format!("the fabric does not answer at {}", path.display());
            connect_now(path).map_err(failed(&what, "start the VM again"))
        }
        Source::Image(level) => {
            let image = images.get_mut(*level).and_then(Option::take);
            let missing = || io::Error::new(io::ErrorKind::NotFound, format!("no image {level}"));
            let image = image.ok_or_else(missing);
            image.map_err(failed("its disk has too few images", "report this fault"))
        }
        Source::Copy(path) => {
            let missing = || io::Error::new(io::ErrorKind::NotFound, "it was not copied");
            // Kernel and initrd may be one file.
            let copy = copies.get(path).ok_or_else(missing).and_then(|(_, copy)| copy.try_clone());
            copy.map_err(failed(&format!("{} cannot be read", path.display()), "report this fault"))
        }
        Source::Overlay(size) => {
            let what = format!("no file can be made in {OVERLAYS} for writes that are discarded");
            let hint = "make room there, or write to the disk itself (snapshot = false)";
            overlay(*size).map_err(failed(&what, hint))
        }
        Source::QueuePairs(size) => {
            let what = format!("no memory file of {size} can be made for queue pairs");
            let hint = "make memory or descriptors free, or start the VM without queue pairs";
            queue_pairs::make(*size).map_err(failed(&what, hint))
        }
    }
}

/// Makes a file without a name, with an empty qcow2 image of this virtual size.
fn overlay(virtual_size: u64) -> io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    let mut file = File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(OVERLAYS)?;
    let image = taut_inspect::overlay::empty_qcow2(virtual_size).map_err(io::Error::other)?;
    io::Write::write_all(&mut file, &image)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_there_when_the_process_starts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let sources = [Source::Listener(path.clone()), Source::Connection(path.clone())];
        let opened = open_all(&sources, Files::default()).unwrap();
        assert_eq!(opened.len(), 2);
        drop(opened);
        let error = open_all(&sources[1..], Files::default()).unwrap_err().to_string();
        assert!(error.contains("agent.sock"), "{error}");
    }

    #[test]
    fn a_file_that_was_not_prepared_is_named() {
        for (source, word) in [(Source::Copy("/boot/k".into()), "/boot/k"), (Source::Image(0), "images")] {
            let error = open_all(&[source], Files::default()).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("hint: "), "{error}");
        }
    }
}
