//! Attachments: the reasons to refuse one, and those prepared before this process takes over.

use std::io;

use taut_api::fabric::ForeignFd;
use taut_api::fabric::message::Attachment;

use crate::vhost_user::{Session, SessionError};

/// Reasons why something cannot be attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    #[error("{got} descriptors came with an attachment that takes {wanted}")]
    Descriptors { got: usize, wanted: usize },
    #[error("{what} cannot be attached to {port}")]
    Kind { what: &'static str, port: &'static str },
    #[error("the descriptor cannot be used: {0}")]
    Descriptor(#[from] io::Error),
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// An attachment that is not served yet.
#[derive(Debug)]
pub(super) enum Prepared {
    /// A session whose memory is mapped.
    Session(Box<Session>),
    /// A device or a socket. Attaching it takes no time, so it is kept as it came.
    Other(Attachment, Vec<ForeignFd>),
}
