//! The images that a VM's disk consists of, each opened here: QEMU follows no name in an image.
//!
//! The format of each image is told, by the VM's description or by the image above. A process of
//! its own reads the headers ([`Inspector`]). Names in images lead only to files below the folder
//! of the image that has the name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use taut_api::ApiError;
use taut_api::error::ErrorKind;
use taut_api::vm::{Disk, DiskFormat};
use taut_inspect::{Answer, AnswerError, Format, Image};
use taut_vm::launch::{DiskChain, DiskImage};
use taut_vm::named_file::NamedFile;

use super::preparation::Progress;
use crate::access::rights::Rights;

/// Maximum number of images of a chain.
const MOST_IMAGES: usize = 16;

/// Reads the header of an image, in a process of its own.
pub(super) trait Inspector {
    /// Returns what the image behind `file` consists of, or why it is refused.
    fn inspect(&self, file: BorrowedFd<'_>, format: Format) -> Result<Answer, io::Error>;
}

/// A chain, and its images as open files. The default is that of a VM without a disk.
#[derive(Debug, Default)]
pub(super) struct OpenChain {
    pub(super) chain: DiskChain,
    pub(super) files: Vec<OwnedFd>,
    /// Names of the files.
    pub(super) names: Vec<String>,
}

/// An image of a chain that is being opened.
struct Link {
    path: PathBuf,
    format: Format,
    file: OwnedFd,
}

/// Rights and access with which images are opened, and the progress to note.
struct OpenContext<'a> {
    owner: &'a Rights,
    progress: &'a Progress,
    /// Access to the image that the disk names.
    access: OFlags,
}

/// Opens the images of a disk, from the one that it names downwards, with the rights of the VM's
/// owner.
///
/// # Errors
/// [`ErrorKind::Unavailable`] if an image cannot be opened, [`ErrorKind::Refused`] if the inspector
/// refuses it. Each names the image.
pub(super) fn open_chain(
    disk: &Disk,
    owner: &Rights,
    inspector: &dyn Inspector,
    progress: &Progress,
) -> Result<OpenChain, ApiError> {
    let path = PathBuf::from(&disk.path);
    let access = if disk.snapshot { OFlags::RDONLY } else { OFlags::RDWR };
    begin(progress, "opening", &path)?;
    let image = || {
        let fits = |kind| matches!(kind, FileType::RegularFile | FileType::BlockDevice);
        NamedFile::find(&path)?.open(access, fits)
    };
    let file = owner.run_as(image).map_err(|error| cannot_open(&path, &error))?;
    let mut next = Some(Link { path, format: format_of(disk.format), file });
    let mut opened = OpenChain::default();
    let mut identities = Vec::new();
    while let Some(link) = next.take() {
        let found = File::from(link.file.try_clone().map_err(|error| cannot_open(&link.path, &error))?);
        let found = found.metadata().map_err(|error| cannot_open(&link.path, &error))?;
        let identity = (found.dev(), found.ino());
        if identities.contains(&identity) || identities.len() == MOST_IMAGES {
            let reason =
                if identities.contains(&identity) { "is based on itself" } else { "has too many bases" };
            let message = format!("the disk {} {reason}, at {}", disk.path, link.path.display());
            let hint =
                format!("look at it with `qemu-img info --backing-chain`; {MOST_IMAGES} images are possible");
            return Err(ApiError::new(ErrorKind::Refused, message, hint));
        }
        identities.push(identity);
        begin(progress, "inspecting", &link.path)?;
        let image = inspected(&link, inspector)?;
        if opened.files.is_empty() {
            opened.chain.virtual_size = image.virtual_size;
        }
        let is_device = FileType::from_raw_mode(found.mode()) == FileType::BlockDevice;
        let context = OpenContext { owner, progress, access };
        next = opened.add(link, &image, is_device, &context)?;
    }
    Ok(opened)
}

impl OpenChain {
    /// Adds an image. Returns the one that it is based on.
    fn add(
        &mut self,
        link: Link,
        image: &Image,
        is_device: bool,
        context: &OpenContext<'_>,
    ) -> Result<Option<Link>, ApiError> {
        if let Some(extent) = image.extents.first() {
            // The disk's bytes are in a raw file beside the descriptor, which is read no further.
            let path = link.path.with_file_name(&extent.name);
            let access = if self.files.is_empty() { context.access } else { OFlags::RDONLY };
            let file = context.open_below(&link.path, &extent.name, access)?;
            let length = fstat(&file).map(|found| found.st_size as u64).unwrap_or_default();
            let end = extent.offset.checked_add(extent.size);
            if end.is_none_or(|end| end > length) {
                let message =
                    format!("{} has {length} bytes, fewer than its descriptor says", path.display());
                return Err(ApiError::new(ErrorKind::Refused, message, "copy the whole disk again"));
            }
            let part = Some((extent.offset, extent.size));
            self.chain.images.push(DiskImage { format: DiskFormat::Raw, is_device: false, part });
            self.names.push(path.to_string_lossy().into_owned());
            self.files.push(file);
            return Ok(None);
        }
        let format = match link.format {
            Format::Raw => DiskFormat::Raw,
            Format::Qcow2 => DiskFormat::Qcow2,
            Format::Vmdk => DiskFormat::Vmdk,
        };
        self.chain.images.push(DiskImage { format, is_device, part: None });
        let below = image.backing.as_ref().map(|backing| {
            let path = link.path.with_file_name(&backing.name);
            let file = context.open_below(&link.path, &backing.name, OFlags::RDONLY)?;
            Ok(Link { path, format: backing.format, file })
        });
        self.names.push(link.path.to_string_lossy().into_owned());
        self.files.push(link.file);
        below.transpose()
    }
}

/// Has an image inspected through a descriptor that cannot write.
fn inspected(link: &Link, inspector: &dyn Inspector) -> Result<Image, ApiError> {
    let again = format!("/proc/thread-self/fd/{}", link.file.as_raw_fd());
    let file = open(again, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty());
    let file = file.map_err(|error| cannot_open(&link.path, &error.into()))?;
    match inspector.inspect(file.as_fd(), link.format) {
        Ok(Answer::Image(image)) => Ok(image),
        Ok(Answer::Refused(refused)) => Err(ApiError::new(
            ErrorKind::Refused,
            format!("the image {} is refused: {}", link.path.display(), refused.message),
            refused.hint,
        )),
        Err(error) => {
            let answer = error.get_ref().and_then(|error| error.downcast_ref::<AnswerError>());
            let usual = || "see the cause; `qemu-img check` tells whether the image is sound".to_owned();
            let message = format!("the image {} cannot be inspected", link.path.display());
            let hint = answer.map_or_else(usual, AnswerError::hint);
            Err(ApiError::new(ErrorKind::Unavailable, message, hint).because(&error))
        }
    }
}

impl OpenContext<'_> {
    /// Opens a regular file by its name in an image, below the folder of that image.
    fn open_below(&self, image: &Path, name: &str, access: OFlags) -> Result<OwnedFd, ApiError> {
        let folder = image.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let path = image.with_file_name(name);
        begin(self.progress, "opening", &path)?;
        let open = || NamedFile::find_below(folder, name)?.open(access, |kind| kind == FileType::RegularFile);
        self.owner.run_as(open).map_err(|error| cannot_open(&path, &error))
    }
}

fn begin(progress: &Progress, act: &'static str, image: &Path) -> Result<(), ApiError> {
    progress.begin(act, "its disk", image).map_err(|error| cannot_open(image, &error))
}

fn cannot_open(path: &Path, error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("its disk {} cannot be opened", path.display()),
        "check the path in the VM's description, and the file's type and permissions",
    )
    .because(error)
}

const fn format_of(format: DiskFormat) -> Format {
    match format {
        DiskFormat::Raw => Format::Raw,
        DiskFormat::Qcow2 => Format::Qcow2,
        DiskFormat::Vmdk => Format::Vmdk,
    }
}
