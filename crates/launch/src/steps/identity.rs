//! User, groups, capabilities.

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use taut_launch::Step;

use crate::failure::{Failed, Within as _};

/// Becomes this user and gives up all privileges but `kept` for good. The process has one thread,
/// so what holds for the thread holds for the process.
pub(crate) fn change(uid: u32, gid: u32, kept: CapabilitySet) -> Result<(), Failed> {
    // First, because it needs CAP_SETPCAP.
    empty_bounding_set(kept)?;
    let step = Step::Identity;
    if !kept.is_empty() {
        set_keep_capabilities(true).within(step, || "keeping a capability".to_owned())?;
    }
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[]).within(step, || "giving up supplementary groups".to_owned())?;
    set_thread_res_gid(group, group, group).within(step, || format!("changing to group {gid}"))?;
    set_thread_res_uid(user, user, user).within(step, || format!("changing to user {uid}"))?;
    umask(Mode::RWXG | Mode::RWXO);
    let step = Step::Capabilities;
    clear_ambient_capability_set().within(step, || "emptying the ambient set".to_owned())?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    set_capabilities(None, sets).within(step, || "emptying all sets".to_owned())?;
    for capability in kept.iter() {
        // The program gets from its file none, but those of this set.
        configure_capability_in_ambient_set(capability, true)
            .within(step, || "passing a capability to the program".to_owned())?;
    }
    set_no_new_privs(true).within(Step::NoNewPrivileges, || "forbidding new privileges".to_owned())
}

/// Removes each capability but `kept` that the kernel knows, also those that are newer than this
/// program.
fn empty_bounding_set(kept: CapabilitySet) -> Result<(), Failed> {
    for number in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        if kept.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel does not know this one, nor those behind it.
            Err(Errno::INVAL) if number > 0 => return Ok(()),
            failed => return failed.within(Step::BoundingSet, || format!("removing capability {number}")),
        }
    }
    Ok(())
}
