//! Memory for the rings and buffers of a micro VM's devices.
//!
//! Each device of a micro VM has the VM's memory for itself. Its driver allocates all buffers when
//! it starts, and stays down without room for them.

use taut_api::vm::{NicSpec, VmKind, VmSpec};
use taut_api::{ApiError, Bytes, Mtu};

use crate::error::invalid;

/// Bytes of a receive buffer of a card with offloads, which takes a part of a frame.
const MERGEABLE: u64 = 16 << 10;
/// Bytes of a receive buffer of another card: the longest frame, with its headers.
const WHOLE: u64 = 12 + 14 + *Mtu::RANGE.end() as u64;
/// Bytes of a transmit buffer of a card.
const SENT: u64 = 4 << 10;
/// Buffers in each ring of a VMCI device.
const SOCKET_BUFFERS: u64 = 256;
/// Bytes of its buffers: of one for reception, and of one for the longest packet.
const SOCKET_RECEIVED: u64 = 4 << 10;
const SOCKET_SENT: u64 = 64 << 10;
/// Most bytes of a ring: of each entry, with the header of a packet before its buffer, and of three
/// parts that begin with pages of their own.
const ENTRY: u64 = 32 + 64;
const PAGES: u64 = 3 * 4096;

/// Checks that the memory has room for the rings and buffers of each device of a micro VM.
///
/// # Errors
/// [`taut_api::error::ErrorKind::Invalid`] for the first device without room, with its numbers.
pub(super) fn check(spec: &VmSpec) -> Result<(), ApiError> {
    if spec.kind != VmKind::Micro {
        return Ok(());
    }
    for (index, nic) in spec.nics.iter().enumerate() {
        let (received, sent) = buffers_of(nic);
        fit(spec.memory, &format!("nic {index}"), received, sent, ", or smaller `rings`")?;
    }
    match &spec.vmci {
        Some(_) => {
            fit(spec.memory, "vmci", (SOCKET_BUFFERS, SOCKET_RECEIVED), (SOCKET_BUFFERS, SOCKET_SENT), "")
        }
        None => Ok(()),
    }
}

/// Number and bytes of the buffers of a device's receive ring, or of its transmit ring.
type Buffers = (u64, u64);

fn buffers_of(nic: &NicSpec) -> (Buffers, Buffers) {
    let bytes = if nic.offloads { MERGEABLE } else { WHOLE };
    ((nic.rings.rx.into(), bytes), (nic.rings.tx.into(), SENT))
}

fn fit(memory: Bytes, device: &str, received: Buffers, sent: Buffers, or: &str) -> Result<(), ApiError> {
    let ring = |(count, bytes): Buffers| count * (bytes + ENTRY) + PAGES;
    let needed = Bytes((ring(received) + ring(sent)).next_multiple_of(VmSpec::MEMORY_STEP.0));
    if needed <= memory {
        return Ok(());
    }
    let named = |(count, bytes): Buffers, kind: &str| format!("{count} {kind} buffers of {}", Bytes(bytes));
    Err(invalid(
        format!(
            "{device}: {} and {} need memory = {needed}, but the micro VM has {memory}",
            named(received, "receive"),
            named(sent, "transmit")
        ),
        format!("use memory = \"{needed}\" or more{or}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), String> {
        let spec: VmSpec = serde_json::from_str(text).unwrap();
        check(&spec).map_err(|error| format!("{} ({})", error.message, error.hint))
    }

    #[test]
    fn a_micro_vm_has_memory_for_the_buffers_of_each_device() {
        let nic = |memory: &str, rings: &str, offloads: bool| {
            checked(&format!(
                r#"{{"kind": "micro", "memory": "{memory}", "nic": [{{"portgroup": "lan"}},
                    {{"portgroup": "lan", "rings": {rings}, "offloads": {offloads}}}]}}"#
            ))
        };
        let large = r#"{"rx": 1024, "tx": 1024}"#;
        assert_eq!(
            nic("20MiB", large, true).unwrap_err(),
            "nic 1: 1024 receive buffers of 16KiB and 1024 transmit buffers of 4KiB need memory = 22MiB, but the \
             micro VM has 20MiB (use memory = \"22MiB\" or more, or smaller `rings`)"
        );
        assert_eq!(nic("22MiB", large, true), Ok(()));
        assert_eq!(nic("16MiB", large, false), Ok(()), "whole frames need less");
        assert_eq!(nic("16MiB", r#"{"rx": 512, "tx": 512}"#, true), Ok(()));
        let vmci = |memory: &str| {
            checked(&format!(r#"{{"kind": "micro", "memory": "{memory}", "vmci": {{"domains": ["a"]}}}}"#))
        };
        let error = vmci("16MiB").unwrap_err();
        assert!(error.starts_with("vmci: 256 receive buffers of 4KiB"), "{error}");
        assert!(error.contains("memory = 18MiB"), "{error}");
        assert_eq!(vmci("18MiB"), Ok(()));
        let qemu = format!(r#"{{"memory": "64MiB", "nic": [{{"portgroup": "lan", "rings": {large}}}]}}"#);
        assert_eq!(checked(&qemu), Ok(()));
    }
}
