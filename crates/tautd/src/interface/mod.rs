//! Network interfaces of the host as uplinks and as ports.

mod socket;
mod xdp;

use std::collections::BTreeSet;
use std::io;

use taut_api::error::ErrorKind;
use taut_api::uplink::{UplinkBackend, UplinkSpec};
use taut_api::{ApiError, MacAddr, Mtu, Name};
use taut_host::kernel::netlink::{Interface, Links, ingress};
use taut_plan::admission::mtu::{MtuRange, check_mtu};
use taut_plan::admission::netdevs::check_netdev;
use taut_plan::admission::uplinks::{Candidate, check_interface};
use taut_plan::facts::InterfaceSeen;
use taut_plan::network::mtu::raise_mtu;

pub(crate) use socket::{Socket, end_membership, received};
pub(crate) use xdp::{detach_program, queues};

/// Role of an interface that a port of the fabric uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A way outside. The host's own stack gets none of its frames.
    Uplink,
    /// A port with one station at its other end. It may be in a bridge, which it does not reach
    /// meanwhile.
    Port,
}

impl Role {
    /// All roles.
    pub(crate) const ALL: [Self; 2] = [Self::Uplink, Self::Port];

    /// Returns the other role.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Uplink => Self::Port,
            Self::Port => Self::Uplink,
        }
    }
}

/// Way in which the fabric is to send and receive the frames of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// By a packet socket.
    Packet,
    /// By an XDP socket.
    Xdp {
        /// Without copies.
        zero_copy: bool,
    },
}

impl From<&UplinkSpec> for Way {
    fn from(spec: &UplinkSpec) -> Self {
        match spec.backend {
            UplinkBackend::Packet => Self::Packet,
            UplinkBackend::Xdp => Self::Xdp { zero_copy: spec.zero_copy },
        }
    }
}

/// Returns an interface with the uses that the host has for it, for admission; `None` if there is
/// none.
pub(crate) fn candidate(name: &Name) -> Result<Option<Candidate>, ApiError> {
    Ok(look(name)?.map(|(_, candidate)| candidate))
}

/// Returns an interface as it is now; `None` if there is none.
pub(crate) fn find(name: &Name) -> io::Result<Option<Interface>> {
    Links::open()?.interface(name.as_str())
}

/// Returns the MTUs that an interface has and can have; `None` if there is none.
pub(crate) fn mtu_range(name: &Name) -> Option<MtuRange> {
    let mut links = Links::open().ok()?;
    let found = links.interface(name.as_str()).ok()??;
    range_of(&mut links, &found).ok()
}

fn range_of(links: &mut Links, found: &Interface) -> io::Result<MtuRange> {
    Ok(MtuRange { now: found.mtu, most: links.largest_mtu(found)?, limit: None })
}

/// Returns the speed of an interface's link in Mbit/s; `None` if the interface states none, as one
/// without a carrier does.
pub(crate) fn speed(name: &Name) -> Option<u64> {
    // The kernel has -1 for an unknown speed.
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    text.trim().parse().ok().filter(|speed| *speed > 0)
}

/// Returns the address that the bridge of an interface has learned there, if it is a single one.
pub(crate) fn learned_address(name: &Name) -> Option<MacAddr> {
    let learned = taut_host::kernel::bridge::learned_addresses(name.as_str()).ok()?;
    // The bridge has an entry for each VLAN of an address.
    let mut distinct = BTreeSet::from_iter(learned).into_iter();
    distinct.next().filter(|_| distinct.next().is_none()).map(MacAddr)
}

fn look(name: &Name) -> Result<Option<(Interface, Candidate)>, ApiError> {
    let found = Links::open().and_then(|mut links| {
        let Some(found) = links.interface(name.as_str())? else { return Ok(None) };
        let candidate = Candidate {
            proper_name: (found.name != name.as_str()).then(|| found.name.clone()),
            is_ethernet: found.mac.is_some(),
            mtu: range_of(&mut links, &found)?,
            uses: links.uses(&found)?,
        };
        Ok(Some((found, candidate)))
    });
    found.map_err(|error| failed("asking what the host uses it for", name, &error))
}

/// Returns a note of what will be changed on the host for an interface, to be stored before.
/// `before` is the note of the last attachment. If another interface had the name then, that one is
/// given back. The MTU is noted by [`note_mtu`].
///
/// # Errors
/// The interface does not exist, or the host uses it; or the other one cannot be given back.
pub(crate) fn prepare(
    name: &Name,
    role: Role,
    before: Option<&InterfaceSeen>,
) -> Result<InterfaceSeen, ApiError> {
    let (found, candidate) = look(name)?.unzip();
    match role {
        Role::Uplink => check_interface(name, candidate.as_ref())?,
        Role::Port => check_netdev(name, candidate.as_ref())?,
    }
    let found = found.ok_or_else(|| failed("looking at it", name, &io::ErrorKind::NotFound.into()))?;
    let boot = boot();
    // Keep what was noted first: an earlier attachment has changed what the interface shows now.
    let same = before.filter(|before| before.index == found.index && is_of(before, &boot));
    if let (Some(other), None) = (before, same) {
        let given_back = detach(other);
        given_back.map_err(|error| failed("giving back the interface that had its name", name, &error))?;
    }
    let has_clsact = Links::open().and_then(|mut links| ingress::has_clsact(&mut links, found.index));
    let has_clsact = has_clsact.map_err(|error| failed("looking at its filters", name, &error))?;
    Ok(InterfaceSeen {
        boot,
        index: found.index,
        was_down: same.map_or(!found.is_up, |before| before.was_down),
        made_filters: same.map_or(!has_clsact, |before| before.made_filters),
        mac: found.mac.map(MacAddr),
        mtu: found.mtu,
        mtu_for: same.and_then(|before| before.mtu_for),
        raised: same.and_then(|before| before.raised),
        speed_mbit: same.and_then(|before| before.speed_mbit),
        lost: before.and_then(|before| before.lost.clone()),
        lost_frames: before.map_or(0, |before| before.lost_frames),
        lost_by_xdp: before.map_or(0, |before| before.lost_by_xdp),
        ..InterfaceSeen::default()
    })
}

/// Notes the change of an interface's MTU for a vSwitch of this name and MTU, to be stored before
/// [`set_mtu`].
///
/// # Errors
/// Another interface has the name now, or the interface cannot have this MTU. Nothing is noted
/// then.
pub(crate) fn note_mtu(
    name: &Name,
    seen: &mut InterfaceSeen,
    (vswitch, mtu): (&Name, Mtu),
) -> Result<(), ApiError> {
    let found = Links::open().and_then(|mut links| {
        let found = links.interface(name.as_str())?.filter(|found| is_about(seen, found));
        range_of(&mut links, &found.ok_or(io::ErrorKind::NotFound)?)
    });
    let range = found.map_err(|error| failed("looking at it", name, &error))?;
    check_mtu(name, range, vswitch, mtu)?;
    seen.raised = raise_mtu(range.now, seen.raised, mtu);
    (seen.mtu, seen.mtu_for) = (range.now, None);
    Ok(())
}

/// Makes the noted change of an interface's MTU, and notes in `seen` that this is done for that of
/// its vSwitch.
pub(crate) fn set_mtu(name: &Name, seen: &mut InterfaceSeen, mtu: Mtu) -> Result<(), ApiError> {
    if let Some(change) = seen.raised {
        if change.to != seen.mtu {
            let set = Links::open().and_then(|mut links| links.set_mtu(seen.index, change.to));
            set.map_err(|error| failed(&format!("setting its MTU to {}", change.to), name, &error))?;
        }
        (seen.mtu, seen.raised) = (change.to, change.made());
    }
    seen.mtu_for = Some(mtu);
    Ok(())
}

/// Sets the interface up, keeps its frames from the host's own network stack, and opens a socket.
/// Notes in `seen` what this kernel lacks.
pub(crate) fn attach(
    name: &Name,
    role: Role,
    way: Way,
    seen: &mut InterfaceSeen,
) -> Result<Socket, ApiError> {
    let prepare = || {
        let mut links = Links::open()?;
        ingress::hide(&mut links, seen.index)?;
        if role == Role::Port {
            ingress::silence(&mut links, seen.index)?;
        }
        links.set_up(seen.index)
    };
    let failed = |error| failed("setting it up", name, &error);
    prepare().map_err(failed)?;
    let socket = match way {
        Way::Packet => socket::open(name.as_str(), seen.index, role).map_err(failed)?,
        Way::Xdp { zero_copy } => xdp::open(name, seen.index, seen.mtu, zero_copy)?,
    };
    seen.missing.clone_from(&socket.missing);
    seen.xdp = socket.xdp;
    // An interface that was down had no carrier.
    let now = find(name).ok().flatten();
    seen.is_up = now.as_ref().is_some_and(|found| found.is_up);
    seen.has_carrier = now.is_some_and(|found| found.has_carrier);
    seen.speed_mbit = speed(name).filter(|_| seen.has_carrier);
    Ok(socket)
}

/// Gives the interface back as it was. An interface that is gone needs nothing, and neither does
/// one of an earlier boot. One that was renamed, or has another address, is the same one.
pub(crate) fn detach(seen: &InterfaceSeen) -> io::Result<()> {
    let mut links = Links::open()?;
    let Some(found) = links.interface_by_index(seen.index)?.filter(|_| is_of(seen, &boot())) else {
        return Ok(());
    };
    if seen.was_down {
        // Before the host would see its frames.
        links.set_down(seen.index)?;
    }
    ingress::show(&mut links, seen.index, seen.made_filters)?;
    // Last: a driver that refuses its MTU must not keep the host from its interface.
    let back = seen.raised.filter(|raised| raised.explains(found.mtu) && raised.from != found.mtu);
    back.map_or(Ok(()), |raised| links.set_mtu(seen.index, raised.from))
}

/// Returns whether a note is about an interface as it is now: of the same number, in the same boot
/// of the host.
pub(crate) fn is_about(seen: &InterfaceSeen, found: &Interface) -> bool {
    seen.index == found.index && is_of(seen, &boot())
}

/// Returns whether an interface has another name than this since it was noted. Its socket works on.
pub(crate) fn is_renamed(name: &Name, seen: &InterfaceSeen) -> bool {
    let found = Links::open().and_then(|mut links| links.interface_by_index(seen.index));
    found.ok().flatten().is_some_and(|found| is_about(seen, &found) && found.name != name.as_str())
}

/// Returns whether something was noted in this boot of the host. An earlier version did not note
/// the boot.
fn is_of(seen: &InterfaceSeen, boot: &str) -> bool {
    seen.boot.is_empty() || seen.boot == boot
}

/// Returns the kernel's name of the host's current boot.
fn boot() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.map(|boot| boot.trim().to_owned()).unwrap_or_default()
}

fn failed(step: &str, name: &Name, error: &io::Error) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("{step} failed for the interface `{name}`"),
        "see the cause; taut tries again each second",
    )
    .because(error)
}
