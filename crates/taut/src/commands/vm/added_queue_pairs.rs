//! `taut vm set --vmci-queue-pairs` of a running VM with room for them: waits until they are there.

use std::thread;
use std::time::{Duration, Instant};

use taut_api::error::ErrorKind;
use taut_api::route::Vm;
use taut_api::{ApiError, Bytes};

use super::get;
use crate::client::Client;

/// Longest wait. The daemon goes on, whatever happens here.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Waits while memory for queue pairs is being added to a VM. Returns it with the memory, or as it
/// is if there is nothing to wait for.
///
/// # Errors
/// [`ErrorKind::Unavailable`] with the daemon's reason if the memory was not added.
pub(super) fn wait(client: &Client, vm: Vm) -> Result<Vm, ApiError> {
    let end = Instant::now() + PATIENCE;
    let mut now = vm;
    while is_being_added(&now) {
        // Other reasons are those of the device.
        let told = reason(&now).filter(|told| told.contains("for queue pairs"));
        if let Some(told) = told {
            return Err(not_added(told));
        }
        if Instant::now() > end {
            return Err(not_added("the memory for queue pairs is not there yet"));
        }
        thread::sleep(PAUSE);
        now = get(client, &now.name)?;
    }
    Ok(now)
}

fn is_being_added(vm: &Vm) -> bool {
    let Some(status) = vm.status.vmci.as_ref().filter(|_| vm.status.pid.is_some()) else { return false };
    let wanted = vm.spec.vm.queue_pairs();
    let room: Bytes = status.queue_pairs_room.unwrap_or_default();
    status.queue_pairs.is_none() && wanted.0 > 0 && wanted <= room
}

fn reason(vm: &Vm) -> Option<&str> {
    vm.status.vmci.as_ref()?.reason.as_deref()
}

/// The error with the reason of the daemon, which ends with its hint.
fn not_added(reason: &str) -> ApiError {
    let (why, hint) = reason.split_once("; hint: ").unwrap_or((
        reason,
        "`taut vmci show` tells when it is there; the next start of the VM gives it in any case",
    ));
    ApiError::new(ErrorKind::Unavailable, why, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_the_reason_and_the_hint_of_the_daemon() {
        let error = not_added("16MiB were not added: QEMU refused object-add: no room; hint: free memory");
        assert_eq!(error.message, "16MiB were not added: QEMU refused object-add: no room");
        assert_eq!(error.hint, "free memory");
        assert!(not_added("it is slow").hint.contains("taut vmci show"));
    }
}
