//! Messages to the reconcile loop.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};

use taut_api::fabric::PortId;
use taut_api::fabric::capture::Directions;
use taut_api::link::WantedLink;
use taut_api::machine::DiskLimits;
use taut_api::route::UpgradedFabric;
use taut_api::{ApiError, MacAddr, Name};
use tokio::sync::oneshot;

/// A message to the reconcile loop. Any message makes it observe and plan at once.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something has changed.
    Wake,
    /// A user asked for the start of a VM, possibly after a failure.
    Start,
    /// A user asked to put back everything that was changed on the host.
    RestoreHost(oneshot::Sender<Result<(), ApiError>>),
    /// QEMU has set these limits for a VM's disk.
    DiskLimited(Name, DiskLimits),
    /// QEMU shows the guest this link on the card with this index.
    LinkSet(Name, usize, WantedLink),
    /// Adding memory for queue pairs to a VM has ended; the number is that of its process.
    QueuePairsAdded(Name, u32, AddResult),
    /// The guest's drivers have set these addresses, by card; the number is that of the process.
    Addresses(Name, u32, Vec<Option<MacAddr>>),
    /// The QEMU of a VM has finished starting; this is its process.
    Ready(Name, u32),
    /// A user asked to kill a VM's process.
    Kill(Name),
    /// A user asked for the frames of a port.
    Capture(CaptureRequest),
    /// A user asked for another fabric to take over from the running one.
    UpgradeFabric(oneshot::Sender<Result<UpgradedFabric, ApiError>>),
    /// A user asked the daemon to end.
    Shutdown {
        /// Ends VMs, attachments and the fabric first.
        everything: bool,
        /// Completes when all of it has ended.
        done: oneshot::Sender<()>,
    },
}

/// A capture that the fabric is to begin. It answers over the socket.
#[derive(Debug)]
pub(crate) struct CaptureRequest {
    /// Port of the frames.
    pub(crate) port: PortId,
    /// Longest part of a frame that is captured, in bytes.
    pub(crate) snaplen: u32,
    /// Directions of the frames.
    pub(crate) directions: Directions,
    /// The fabric's end of the socket.
    pub(crate) socket: OwnedFd,
    /// Completes when the fabric was asked, or cannot be.
    pub(crate) done: oneshot::Sender<Result<(), ApiError>>,
}

/// The result of adding memory for queue pairs to a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AddResult {
    /// The process has it, with this descriptor.
    There(i32),
    /// The process does not have it, and nobody has refused it: an attempt ended before, or it is
    /// no longer wanted.
    Absent,
    /// The memory was refused for this reason, and QEMU is as before. A later attempt may succeed.
    Refused(String),
    /// QEMU has refused the device for this reason, and is as before. This process never gets it.
    NoDevice(String),
    /// The daemon does not know whether the process has the memory, for this reason.
    Unclear(String),
}

/// The sending end of the loop's messages.
#[derive(Debug, Clone)]
pub(crate) struct Inbox(Sender<Message>);

impl Inbox {
    /// Creates an inbox and its receiving end.
    pub(crate) fn new() -> (Self, Receiver<Message>) {
        let (sender, receiver) = channel();
        (Self(sender), receiver)
    }

    /// Sends a message. A message to a loop that has ended is dropped.
    pub(crate) fn send(&self, message: Message) {
        let _ = self.0.send(message);
    }
}
