//! Powering the guest off from inside.

use std::io;
use std::path::Path;
use std::process::Command;

use rustix::system::{RebootCommand, reboot};

use super::failed;
use crate::agent::protocol::{AgentError, Kind};

/// Powers the guest off, through its service manager if it has one.
pub(super) fn run(kind: Kind) -> Result<(), AgentError> {
    if kind != Kind::Guest {
        return Err(AgentError::new("this agent does not run in a guest", "only guests are powered off"));
    }
    let ended = if Path::new("/run/systemd/system").exists() {
        match Command::new("systemctl").arg("poweroff").status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(io::Error::other(format!("systemctl: {status}"))),
            Err(error) => Err(error),
        }
    } else {
        rustix::fs::sync();
        reboot(RebootCommand::PowerOff).map_err(io::Error::from)
    };
    ended.map_err(|error| failed("the guest could not be powered off", &error))
}
