//! Waiting for the caller, which records the process before its program starts.

use std::fs::File;
use std::io::Read as _;

use taut_launch::{CONFIRM_FD, Step};

use crate::failure::{Failed, Within as _};
use crate::sys::inherited;

/// The reading end of the pipe on which the caller confirms the start.
#[derive(Debug)]
pub(crate) struct Confirmation(File);

impl Confirmation {
    /// Takes over the inherited pipe. It is closed when the program starts.
    ///
    /// A `tautd` of an earlier version passes none, so the error is one of descriptors, whose hint
    /// names the versions.
    pub(crate) fn take() -> Result<Self, Failed> {
        let pipe = inherited::take(CONFIRM_FD);
        let pipe = pipe.within(Step::Descriptors, || format!("descriptor {CONFIRM_FD} (confirmation)"))?;
        Ok(Self(File::from(pipe)))
    }

    /// Waits for the caller's byte, as long as the caller holds the other end. The kernel closes
    /// that end when the caller is killed, so the process cannot wait for ever.
    pub(crate) fn wait(mut self) -> Result<(), Failed> {
        let confirmed = self.0.read_exact(&mut [0]);
        confirmed.within(Step::Confirm, || "the caller has not confirmed the start".to_owned())
    }
}
