//! QEMU's options for the memory of queue pairs: an NVDIMM, which Linux makes `/dev/dax0.0` of.
//!
//! QEMU opens the memory file again by its inherited descriptor. `memory-backend-memfd` would make
//! a file of its own, and all versions of QEMU open the path of `memory-backend-file` themselves,
//! so that `/dev/fdset` is not known there.

use taut_api::Bytes;
use taut_api::vm::VmSpec;
use taut_api::vmci::VmciSpec;

use super::{Tuning, memory};

/// ID of the memory.
pub(crate) const MEMORY: &str = "queuepairs";
/// ID of the device.
pub(crate) const DEVICE: &str = "queuepairs0";
/// Memory of a guest up to this size is below 4 GiB: the machine has the other addresses there.
const LOW_MEMORY: Bytes = Bytes::mib(2048);
/// Argument for the guest's kernel. Room for an NVDIMM is above 4 GiB, where Linux expects memory
/// that some devices cannot reach, and reserves 64 MiB below for them. These 4 MiB suffice where
/// all other memory is below 4 GiB anyway.
const BOUNCE_BUFFERS: &str = "swiotlb=2048";

/// Returns the size of the memory file; 0 for a VM without queue pairs.
fn file_size(spec: &VmSpec) -> Bytes {
    VmciSpec::nvdimm_of(spec.queue_pairs())
}

/// Returns the size of the device that the VM starts with, or of the largest one that can be added
/// later; 0 without either.
fn room(spec: &VmSpec) -> Bytes {
    VmciSpec::nvdimm_of(spec.queue_pairs().max(spec.queue_pairs_room()))
}

/// Adds to the machine and to the size of its memory what room for the device needs.
pub(super) fn make_room(spec: &VmSpec, machine: &mut String, memory: &mut String) {
    let room = room(spec);
    if room.0 > 0 {
        machine.push_str(",nvdimm=on");
        memory.push_str(&format!(",slots=1,maxmem={}M", Bytes(spec.memory.0 + room.0).as_mib()));
    }
}

/// The options that create the device. `number` is the descriptor of the memory file.
pub(super) fn options(spec: &VmSpec, tuning: &Tuning, number: i32) -> [(&'static str, String); 2] {
    let size = file_size(spec).0;
    let mut backend = format!(
        "memory-backend-file,id={MEMORY},mem-path=/proc/self/fd/{number},size={size},share=on,dump=off"
    );
    backend += &memory::allocation(tuning, 0);
    [("-object", backend), ("-device", format!("nvdimm,id={DEVICE},memdev={MEMORY}"))]
}

/// Returns the argument for the kernel of a guest that is booted directly and has queue pairs, or
/// room for them.
pub(super) fn kernel_argument(spec: &VmSpec) -> Option<&'static str> {
    (room(spec).0 > 0 && spec.memory <= LOW_MEMORY).then_some(BOUNCE_BUFFERS)
}
