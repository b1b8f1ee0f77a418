//! Uplinks and interfaces on port groups: admission, attachment to ports, and giving back.

use std::collections::BTreeMap;
use std::time::Duration;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::netdev::NetdevSpec;
use taut_api::uplink::UplinkSpec;
use taut_api::{ApiError, MacAddr, Mtu, Name};
use taut_plan::admission::netdevs::admit_netdev;
use taut_plan::admission::uplinks::admit_uplink;
use taut_plan::facts::{InterfaceSeen, Observed};
use taut_plan::network::mtu::vswitch_of;
use taut_plan::{Desired, Owner};

use super::Reconciler;
use crate::interface::{self, Role, Way};

pub(crate) use crate::interface::learned_address;

/// Time until the next attempt to replace a socket or set an MTU.
const RETRY: Duration = Duration::from_secs(1);
/// Number of looks in a row at which a socket has received nothing but lost frames although its
/// ring is empty, after which it is replaced. After a frame that a virtio-net header cannot
/// describe, the kernel never uses that slot of the ring again, nor any behind it (seen with Linux
/// 6.18).
const STALLED_LOOKS: u32 = 2;
/// Reason that the socket of an interface must be replaced, also if the interface comes back: the
/// kernel has unbound it.
const GONE: &str = "its interface is gone";
/// The same if the queues of the interface are others than those that have XDP sockets.
const OTHER_QUEUES: &str = "the number of its receive queues has changed";

/// Decides whether an interface may be an uplink, as the host is now. The same holds for one that
/// is an uplink already: it has to exist, and the host must not use it.
pub(crate) fn admit_interface(desired: &Desired, name: &Name, spec: &UplinkSpec) -> Result<(), ApiError> {
    admit_uplink(desired, name, spec, interface::candidate(name)?.as_ref())
}

/// Decides whether an interface may be on a port group, as the host is now.
pub(crate) fn admit_netdev_interface(
    desired: &Desired,
    name: &Name,
    spec: &NetdevSpec,
) -> Result<(), ApiError> {
    admit_netdev(desired, name, spec, interface::candidate(name)?.as_ref())
}

/// Returns the owner of the port of an interface.
fn owner_of(role: Role, name: &Name) -> Owner {
    match role {
        Role::Uplink => Owner::Uplink(name.clone()),
        Role::Port => Owner::Netdev(name.clone()),
    }
}

/// Returns what is seen of the interfaces with this role.
fn seen_as(role: Role, observed: &mut Observed) -> &mut BTreeMap<Name, InterfaceSeen> {
    match role {
        Role::Uplink => &mut observed.uplinks,
        Role::Port => &mut observed.netdevs,
    }
}

/// Returns the first word of events about an interface.
fn word(role: Role) -> &'static str {
    match role {
        Role::Uplink => "uplink",
        Role::Port => "netdev",
    }
}

/// Returns whether another program has set an interface down that had XDP sockets until now. The
/// fabric has given them up, because they have frames that were to be sent long ago.
fn is_set_down(name: &Name, before: &InterfaceSeen) -> bool {
    let found = interface::find(name).ok().flatten();
    let is_down = found.is_some_and(|found| interface::is_about(before, &found) && !found.is_up);
    is_down && before.xdp.is_some() && before.lost.is_none()
}

/// Returns whether another program has set an interface that was set for an MTU to a smaller one.
fn lowers_below(seen: &InterfaceSeen, found: u32, mtu: Mtu) -> bool {
    let wanted = u32::from(mtu);
    seen.mtu_for == Some(mtu) && seen.mtu >= wanted && found < wanted
}

impl Reconciler {
    /// Attaches an uplink's interface to its port.
    pub(super) fn attach_uplink(&mut self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        let way = self.store.state().desired.uplinks.get(name).map(Way::from);
        let Some(way) = way else { return Ok(false) };
        let before = self.note_of(Role::Uplink, name);
        if way != Way::Packet {
            if !self.board.lock().report.cards.contains_key(name) {
                // The plan switches off what merges segments. That is noted before the kernel does
                // the same, and the interface gets it back.
                return Ok(false);
            }
            // An interface that is gone is told of later.
            self.fabric.check_xdp(interface::queues(name).unwrap_or(1))?;
            if before.as_ref().and_then(|before| before.lost.as_deref()) == Some(OTHER_QUEUES) {
                // The kernel gives each queue to one socket, and frees it a moment after its close.
                self.fabric.take_device(port);
                self.note_without_sockets(name);
                self.retries.delay(&Owner::Uplink(name.clone()).document(), RETRY);
                return Ok(false);
            }
            if before.as_ref().is_some_and(|before| is_set_down(name, before)) {
                return Err(ApiError::new(
                    ErrorKind::Unavailable,
                    format!("somebody has set the interface `{name}` down"),
                    format!("ip link set {name} up"),
                ));
            }
            let is_renamed = before.as_ref().is_some_and(|before| interface::is_renamed(name, before));
            if !is_renamed {
                // The interface may be in another network namespace, where the program would keep
                // taking its frames, or may have come back from there.
                self.fabric.detach_program(port);
            }
        }
        self.attach_interface(Role::Uplink, name, way, before.as_ref(), port)
    }

    /// Notes on the board that an uplink has no XDP sockets.
    fn note_without_sockets(&self, name: &Name) {
        if let Some(seen) = self.board.lock().observed.uplinks.get_mut(name) {
            (seen.lost, seen.xdp) = (None, None);
        }
    }

    /// Attaches an interface on a port group to its port. Another interface that has the name by
    /// now belongs to somebody else.
    pub(super) fn attach_netdev(&self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        if !self.store.state().desired.netdevs.contains_key(name) {
            return Ok(false);
        }
        let before = self.note_of(Role::Port, name);
        if let (Some(before), Ok(Some(found))) = (&before, interface::find(name))
            && !interface::is_about(before, &found)
        {
            return Err(ApiError::new(
                ErrorKind::Unavailable,
                format!("the interface `{name}` is another one than before"),
                format!(
                    "give it up (taut netdev detach {name}), and attach the new one if it is the right one"
                ),
            ));
        }
        self.attach_interface(Role::Port, name, Way::Packet, before.as_ref(), port)
    }

    /// Attaches an interface to its port. What is about to be changed is in the store first. An
    /// interface that has the other role still is given back before.
    fn attach_interface(
        &self,
        role: Role,
        name: &Name,
        way: Way,
        before: Option<&InterfaceSeen>,
        port: PortId,
    ) -> Result<bool, ApiError> {
        if self.note_of(role.other(), name).is_some() {
            return Ok(false);
        }
        let Some((vswitch, mtu)) = self.vswitch_of(role, name) else { return Ok(false) };
        let mut seen = interface::prepare(name, role, before)?;
        self.note_interface(role, name, &seen)?;
        if seen.mtu_for != Some(mtu) {
            // An interface with a smaller MTU is better than none. The plan sets it again, and
            // tells the reason if that fails.
            let _ = self.change_mtu(role, name, &mut seen, (&vswitch, mtu));
        }
        let socket = interface::attach(name, role, way, &mut seen)?;
        // A new XDP socket has lost nothing.
        (seen.lost, seen.lost_by_xdp) = (None, 0);
        self.note_interface(role, name, &seen)?;
        self.fabric.attach(port, socket.via, socket.fds);
        Ok(true)
    }

    /// Returns name and MTU of the vSwitch that an interface is on.
    fn vswitch_of(&self, role: Role, name: &Name) -> Option<(Name, Mtu)> {
        let desired = &self.store.state().desired;
        let vswitch = vswitch_of(desired, &owner_of(role, name))?;
        Some((vswitch.clone(), desired.vswitches.get(vswitch)?.mtu))
    }

    /// Sets the MTU of an attached interface for that of its vSwitch.
    pub(super) fn set_interface_mtu(&mut self, role: Role, name: &Name) {
        let owner = owner_of(role, name);
        let (subject, kind) = (format!("{owner}/mtu"), format!("{}.mtu", word(role)));
        let Some((before, (vswitch, mtu))) = self.note_of(role, name).zip(self.vswitch_of(role, name)) else {
            return;
        };
        if !self.retries.is_due(&subject) {
            return;
        }
        let mut seen = before.clone();
        match self.change_mtu(role, name, &mut seen, (&vswitch, mtu)) {
            Ok(()) => {
                self.retries.reset(&subject);
                self.board.lock().problems.remove(&subject);
                if seen.mtu != before.mtu {
                    let message = format!(
                        "its MTU is {} instead of {}: that of vSwitch `{vswitch}` is {mtu}",
                        seen.mtu, before.mtu
                    );
                    self.store.event(Level::Info, &owner.document(), &kind, &message);
                }
            }
            Err(error) => {
                self.retries.delay(&subject, RETRY);
                if self.board.is_new_problem(&subject, &error.to_string()) {
                    self.store.event(Level::Warning, &owner.document(), &kind, &error.to_string());
                }
            }
        }
    }

    /// Changes the MTU of an interface for that of its vSwitch. The change is in the store first.
    fn change_mtu(
        &self,
        role: Role,
        name: &Name,
        seen: &mut InterfaceSeen,
        vswitch: (&Name, Mtu),
    ) -> Result<(), ApiError> {
        interface::note_mtu(name, seen, vswitch)?;
        self.note_interface(role, name, seen)?;
        interface::set_mtu(name, seen, vswitch.1)?;
        self.note_interface(role, name, seen)
    }

    /// Returns the note of an interface with this role, if there is one.
    fn note_of(&self, role: Role, name: &Name) -> Option<InterfaceSeen> {
        seen_as(role, &mut self.board.lock().observed).get(name).cloned()
    }

    /// Records an interface in the store and on the board.
    fn note_interface(&self, role: Role, name: &Name, seen: &InterfaceSeen) -> Result<(), ApiError> {
        self.store.remember(&owner_of(role, name).document(), seen)?;
        seen_as(role, &mut self.board.lock().observed).insert(name.clone(), seen.clone());
        Ok(())
    }

    /// Gives an interface back as it was.
    pub(super) fn detach_interface(&mut self, role: Role, name: &Name) {
        let Some(seen) = self.note_of(role, name) else { return };
        let detached = interface::detach(&seen);
        self.forget(&owner_of(role, name), word(role), detached);
    }

    /// Looks at the interfaces of uplinks and on port groups: whether they are still there, up and
    /// with a carrier, and how many frames the kernel has dropped. An interface that somebody has
    /// set down is left so. A socket that receives nothing any more is replaced.
    ///
    /// Returns whether one has changed; frames do not count as a change.
    pub(super) fn look_at_interfaces(&mut self) -> bool {
        let mut has_changed = false;
        let interfaces: Vec<(Role, Name)> = {
            let observed = &mut self.board.lock().observed;
            let names =
                |role| seen_as(role, observed).keys().map(|name| (role, name.clone())).collect::<Vec<_>>();
            Role::ALL.into_iter().flat_map(names).collect()
        };
        for (role, name) in interfaces {
            let owner = owner_of(role, &name);
            let vswitch = self.vswitch_of(role, &name);
            // An error is no evidence.
            let Ok(found) = interface::find(&name) else { continue };
            let before = self.note_of(role, &name);
            let is_renamed =
                found.is_none() && before.as_ref().is_some_and(|before| interface::is_renamed(&name, before));
            let xdp = before.and_then(|before| before.xdp).filter(|xdp| xdp.queues > 0);
            let has_other_queues =
                xdp.is_some_and(|xdp| interface::queues(&name).is_ok_and(|queues| queues != xdp.queues));
            let speed = interface::speed(&name);
            let port = self.store.state().desired.numbers.port(&owner);
            let sockets = port.map(|port| self.fabric.interface_sockets(port)).unwrap_or_default();
            let received = interface::received(&sockets);
            let mut board = self.board.lock();
            let attached = port.is_some_and(|port| board.observed.attached(port));
            let Some(seen) = seen_as(role, &mut board.observed).get_mut(&name) else { continue };
            // An error is no evidence, such as that there is no socket at the moment.
            if let Ok(received) = received {
                received.count(seen);
            }
            let lost = match &found {
                Some(found) if found.index != seen.index => Some("another interface has its name now"),
                Some(_) if seen.stalled_looks >= STALLED_LOOKS => {
                    Some("its socket receives nothing any more")
                }
                Some(_) if seen.lost.as_ref().is_some_and(|lost| lost == GONE) => Some(GONE),
                Some(_) => has_other_queues.then_some(OTHER_QUEUES),
                None if is_renamed => Some("its interface has another name now"),
                None => Some(GONE),
            };
            let counted = seen.clone();
            if found.is_none() {
                seen.xdp = None;
            }
            seen.is_up = found.as_ref().is_some_and(|found| found.is_up);
            let had_carrier = seen.has_carrier;
            seen.has_carrier = found.as_ref().is_some_and(|found| found.has_carrier);
            let carrier = (seen.is_known && had_carrier != seen.has_carrier).then_some(seen.has_carrier);
            seen.is_known = true;
            if found.as_ref().is_some_and(|found| found.index == seen.index) {
                seen.speed_mbit = speed.filter(|_| seen.has_carrier);
            }
            let mut short = None;
            if let Some(found) = found {
                short = vswitch
                    .filter(|(_, mtu)| found.index == seen.index && lowers_below(seen, found.mtu, *mtu))
                    .map(|vswitch| (found.mtu, vswitch));
                (seen.mtu, seen.mac) = (found.mtu, found.mac.map(MacAddr));
            }
            let lost = lost.filter(|_| attached).map(str::to_owned);
            let is_new = lost.is_some() && seen.lost != lost;
            seen.lost.clone_from(&lost);
            has_changed |= *seen != counted;
            drop(board);
            if let Some(has_carrier) = carrier {
                let (level, state) = if has_carrier { (Level::Info, "up") } else { (Level::Warning, "down") };
                let kind = format!("{}.{state}", word(role));
                self.store.event(level, &owner.document(), &kind, &format!("the link is {state}"));
            }
            if let Some((mtu, (vswitch, wanted))) = short {
                let kind = format!("{}.mtu", word(role));
                let message = format!(
                    "somebody has set its MTU to {mtu}, below the {wanted} of vSwitch `{vswitch}`: longer packets are \
                     dropped; hint: ip link set {name} mtu {wanted}"
                );
                self.store.event(Level::Warning, &owner.document(), &kind, &message);
            }
            if let Some(lost) = lost.filter(|_| is_new) {
                let kind = format!("{}.lost", word(role));
                self.store.event(Level::Warning, &owner.document(), &kind, &lost);
            }
        }
        has_changed
    }
}
