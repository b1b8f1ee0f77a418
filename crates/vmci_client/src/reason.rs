//! Reasons why a connection is not attached, so that its bytes go by packets.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use taut_queue_pair::memory::RegionError;
use taut_queue_pair::message::{AnswerError, Status};

/// Reason why a connection is not attached. An ordinary result: unless [`Self::is_unclear`], the
/// connection has not changed, and the program uses the socket as if it had not asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotAttached {
    /// The socket is not an `AF_VSOCK` stream socket that is connected.
    #[error("the socket is not a connected stream socket of AF_VSOCK")]
    NotAStream(#[source] Option<io::Error>),
    /// The machine has no device with memory for queue pairs.
    #[error("there is no device with memory for queue pairs")]
    NoDevice,
    /// The machine has such a device, but its kernel has no driver for it.
    #[error("the kernel has no driver for the memory for queue pairs")]
    NoDriver,
    /// The program may not open the device.
    #[error("{} may not be opened", path.display())]
    NotPermitted {
        /// The device.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The device is not usable: it cannot be opened, sized or mapped.
    #[error("{} cannot be used", path.display())]
    Device {
        /// The device.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The memory is for queue pairs, but not as this library knows them.
    #[error("{} has a header that is not accepted", path.display())]
    Region {
        /// The device.
        path: PathBuf,
        /// What is wrong with the header.
        source: RegionError,
    },
    /// The host does not offer queue pairs: its service cannot be reached.
    #[error("the host does not answer at the port of queue pairs")]
    NoService(#[source] io::Error),
    /// The host took the request and has not answered in time.
    #[error("the host has not answered within {0:?}")]
    Unanswered(Duration),
    /// The host has declined.
    #[error("the host declined: {0}")]
    Declined(Status),
    /// The host has answered something that is no answer.
    #[error("the host's answer has no meaning")]
    Answer(#[from] AnswerError),
    /// The host has named a channel that the region does not have.
    #[error("the host named channel {channel}, but the region has {channels}")]
    NoChannel {
        /// Index that the host named.
        channel: u32,
        /// Number of channels.
        channels: u32,
    },
    /// A system call failed.
    #[error("a system call failed")]
    System(#[from] io::Error),
}

impl NotAttached {
    /// Tells whether the host may have attached the end although this side has not. The program
    /// must then close the socket, since bytes may be missing.
    pub fn is_unclear(&self) -> bool {
        matches!(self, Self::Unanswered(_) | Self::Answer(_) | Self::NoChannel { .. })
    }

    /// The reason and its causes, in one line.
    pub fn with_causes(&self) -> String {
        let first: &dyn std::error::Error = self;
        let all = std::iter::successors(Some(first), |error| (*error).source());
        all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    /// Says in a line what a user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotAStream(_) => "attach a stream socket of AF_VSOCK after connect or accept",
            Self::NoDevice | Self::Declined(Status::NoRegion) => {
                "set queue_pairs = \"16MiB\" in the [vmci] table of the VM's file"
            }
            Self::NoDriver => {
                "load the modules nfit, nd_pmem, dax_pmem and device_dax, or use a kernel that has them"
            }
            Self::NotPermitted { .. } => {
                "run the program as root, or give its user the device by a udev rule"
            }
            Self::Device { .. } => "mount /sys if it is not mounted, and look for the device in `dmesg`",
            Self::Region { .. } => "use a library and a tautd of the same version",
            Self::NoService(_) => {
                "update taut on the host to a version with queue pairs, and run `taut daemon upgrade-fabric`"
            }
            Self::Unanswered(_) => {
                "connect again; if it happens again, look for the VM in `taut events` on the host"
            }
            Self::Declined(Status::Full) => "close attached connections, or give the VM a larger region",
            Self::Declined(Status::AttachedAlready) => "attach each socket once",
            Self::Answer(_) | Self::NoChannel { .. } | Self::Declined(Status::UnknownVersion) => {
                "use a library and a taut-fabric of the same version"
            }
            Self::Declined(_) => {
                "connect again, and look for the connection in `taut vmci list --connections` on the host"
            }
            Self::System(_) => "raise the limit that the error names, such as `ulimit -n`, and attach again",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_say_what_to_do() {
        let error = || io::Error::from_raw_os_error(5);
        let path = PathBuf::from;
        let reasons = [
            NotAttached::NotAStream(None),
            NotAttached::NoDevice,
            NotAttached::NoDriver,
            NotAttached::NotPermitted { path: path("/dev/dax0.0"), source: error() },
            NotAttached::Device { path: path("/dev/dax0.0"), source: error() },
            NotAttached::NoService(error()),
            NotAttached::Unanswered(Duration::from_secs(1)),
            NotAttached::NoChannel { channel: 9, channels: 2 },
            NotAttached::System(error()),
        ];
        let declined = Status::ALL.map(NotAttached::Declined);
        let actions = ["attach", "close", "connect", "load", "mount", "raise", "run", "set", "update", "use"];
        for reason in reasons.iter().chain(&declined) {
            let first = reason.hint().split(' ').next().unwrap();
            assert!(actions.contains(&first), "{reason}: {}", reason.hint());
        }
        assert_eq!(NotAttached::Declined(Status::NoRegion).hint(), NotAttached::NoDevice.hint());
    }
}
