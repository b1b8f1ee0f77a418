//! Uplinks and interfaces on port groups: admission, attachment to ports, and giving back.

use std::time::Duration;

use taut_api::error::ErrorKind;
use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_api::netdev::NetdevSpec;
use taut_api::uplink::UplinkSpec;
use taut_api::{ApiError, MacAddr, Name};
use taut_plan::admission::netdevs::admit_netdev;
use taut_plan::admission::uplinks::admit_uplink;
use taut_plan::facts::InterfaceSeen;
use taut_plan::{Desired, Owner};

use super::Reconciler;
use crate::uplink::{self, Received, Role};

pub(crate) use crate::uplink::learned_address;

/// Time between two looks at the interfaces.
const LOOK: Duration = Duration::from_secs(1);
/// Number of looks in a row at which a socket has received nothing but lost frames although its
/// ring is empty, after which it is replaced. After a frame that a virtio-net header cannot
/// describe, the kernel never uses that slot of the ring again, nor any behind it (seen with Linux
/// 6.18).
const STALLED_LOOKS: u32 = 2;

/// Decides whether an interface may be an uplink, as the host is now. The same holds for one that
/// is an uplink already: it has to exist, and the host must not use it.
pub(crate) fn admit_interface(desired: &Desired, name: &Name, spec: &UplinkSpec) -> Result<(), ApiError> {
    admit_uplink(desired, name, spec, uplink::candidate(name)?.as_ref())
}

/// Decides whether an interface may be on a port group, as the host is now.
pub(crate) fn admit_netdev_interface(
    desired: &Desired,
    name: &Name,
    spec: &NetdevSpec,
) -> Result<(), ApiError> {
    admit_netdev(desired, name, spec, uplink::candidate(name)?.as_ref())
}

impl Reconciler {
    /// Attaches an uplink's interface to its port. What is about to be changed is in the store
    /// first.
    pub(super) fn attach_uplink(&self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        if !self.store.state().desired.uplinks.contains_key(name) {
            return Ok(false);
        }
        let observed = self.board.lock().observed.clone();
        if observed.netdevs.contains_key(name) {
            // It has to be given back first.
            return Ok(false);
        }
        let before = observed.uplinks.get(name).cloned();
        self.attach_interface(&Owner::Uplink(name.clone()), Role::Uplink, name, before.as_ref(), port)
    }

    /// Attaches an interface on a port group to its port. Another interface that has the name by
    /// now belongs to somebody else.
    pub(super) fn attach_netdev(&self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        if !self.store.state().desired.netdevs.contains_key(name) {
            return Ok(false);
        }
        let observed = self.board.lock().observed.clone();
        if observed.uplinks.contains_key(name) {
            // It has to be given back first.
            return Ok(false);
        }
        let before = observed.netdevs.get(name).cloned();
        if let (Some(before), Ok(Some(found))) = (&before, uplink::interface(name))
            && !uplink::is_about(before, &found)
        {
            return Err(ApiError::new(
                ErrorKind::Unavailable,
                format!("the interface `{name}` is another one than before"),
                format!(
                    "give it up (taut netdev detach {name}), and attach the new one if it is the right one"
                ),
            ));
        }
        self.attach_interface(&Owner::Netdev(name.clone()), Role::Port, name, before.as_ref(), port)
    }

    fn attach_interface(
        &self,
        owner: &Owner,
        role: Role,
        name: &Name,
        before: Option<&InterfaceSeen>,
        port: PortId,
    ) -> Result<bool, ApiError> {
        let mut seen = uplink::prepare(name, role, before)?;
        self.note_interface(owner, name, &seen)?;
        let socket = uplink::attach(name, role, &mut seen)?;
        seen.lost = None;
        self.note_interface(owner, name, &seen)?;
        self.fabric.attach(port, Attachment::Packet(socket.setup), vec![socket.fd, socket.carrier]);
        Ok(true)
    }

    /// Records an interface in the store and on the board.
    fn note_interface(&self, owner: &Owner, name: &Name, seen: &InterfaceSeen) -> Result<(), ApiError> {
        self.store.remember(&owner.document(), seen)?;
        let observed = &mut self.board.lock().observed;
        let table =
            if matches!(owner, Owner::Uplink(_)) { &mut observed.uplinks } else { &mut observed.netdevs };
        table.insert(name.clone(), seen.clone());
        Ok(())
    }

    /// Gives an interface on a port group back as it was.
    pub(super) fn detach_netdev(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.netdevs.get(name).cloned() else { return };
        let detached = uplink::detach(&seen);
        self.forget(&Owner::Netdev(name.clone()), "netdev", detached);
    }

    /// Gives an uplink's interface back as it was.
    pub(super) fn detach_uplink(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.uplinks.get(name).cloned() else { return };
        let detached = uplink::detach(&seen);
        self.forget(&Owner::Uplink(name.clone()), "uplink", detached);
    }

    /// Looks once a second at the interfaces of uplinks and on port groups: whether they are still
    /// there, up and with a carrier, and how many frames the kernel has dropped. An interface that
    /// somebody has set down is left so. A socket that receives nothing any more is replaced.
    pub(super) fn look_at_interfaces(&mut self) {
        const SUBJECT: &str = "interfaces";
        if !self.retries.is_due(SUBJECT) {
            return;
        }
        self.retries.delay(SUBJECT, LOOK);
        let owners: Vec<(Name, Owner)> = {
            let observed = &self.board.lock().observed;
            let uplinks = observed.uplinks.keys().map(|name| (name.clone(), Owner::Uplink(name.clone())));
            let netdevs = observed.netdevs.keys().map(|name| (name.clone(), Owner::Netdev(name.clone())));
            uplinks.chain(netdevs).collect()
        };
        for (name, owner) in owners {
            // An error is no evidence.
            let Ok(found) = uplink::interface(&name) else { continue };
            let speed = uplink::speed(&name);
            let port = self.store.state().desired.numbers.port(&owner);
            let socket = port.and_then(|port| self.fabric.device(port));
            let Received { all, lost: lost_frames, more } =
                socket.and_then(|socket| uplink::received(&*socket).ok()).unwrap_or_default();
            let mut board = self.board.lock();
            let attached = port.is_some_and(|port| board.observed.attached(port));
            let is_uplink = matches!(owner, Owner::Uplink(_));
            let observed = &mut board.observed;
            let table = if is_uplink { &mut observed.uplinks } else { &mut observed.netdevs };
            let Some(seen) = table.get_mut(&name) else { continue };
            seen.stalled_looks =
                if more || all > lost_frames { 0 } else { seen.stalled_looks + u32::from(all > 0) };
            let lost = match &found {
                Some(found) if found.index != seen.index => Some("another interface has its name now"),
                Some(_) if seen.stalled_looks >= STALLED_LOOKS => {
                    Some("its socket receives nothing any more")
                }
                Some(_) => None,
                None => Some("its interface is gone"),
            };
            seen.is_up = found.as_ref().is_some_and(|found| found.is_up);
            let had_carrier = seen.has_carrier;
            seen.has_carrier = found.as_ref().is_some_and(|found| found.has_carrier);
            let carrier = (seen.is_known && had_carrier != seen.has_carrier).then_some(seen.has_carrier);
            seen.is_known = true;
            if found.as_ref().is_some_and(|found| found.index == seen.index) {
                seen.speed_mbit = speed.filter(|_| seen.has_carrier);
            }
            if let Some(found) = found {
                (seen.mtu, seen.mac) = (found.mtu, found.mac.map(MacAddr));
            }
            seen.lost_frames += lost_frames;
            let lost = lost.filter(|_| attached).map(str::to_owned);
            let is_new = lost.is_some() && seen.lost != lost;
            seen.lost.clone_from(&lost);
            drop(board);
            match carrier {
                Some(true) => self.store.event(Level::Info, &owner.document(), "uplink.up", "the link is up"),
                Some(false) => {
                    self.store.event(Level::Warning, &owner.document(), "uplink.down", "the link is down");
                }
                None => {}
            }
            if let Some(lost) = lost.filter(|_| is_new) {
                self.store.event(
                    Level::Warning,
                    &owner.document(),
                    if is_uplink { "uplink.lost" } else { "netdev.lost" },
                    &lost,
                );
            }
        }
    }
}
