//! Uplinks: admission, and interfaces that are attached to ports and given back.

use std::time::Duration;

use taut_api::event::Level;
use taut_api::fabric::PortId;
use taut_api::fabric::message::Attachment;
use taut_api::uplink::UplinkSpec;
use taut_api::{ApiError, MacAddr, Name};
use taut_plan::admission::uplinks::admit_uplink;
use taut_plan::facts::UplinkSeen;
use taut_plan::{Desired, Owner};

use super::Reconciler;
use crate::uplink::{self, Received};

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

impl Reconciler {
    /// Attaches an uplink's interface to its port. What is about to be changed is in the store
    /// first.
    pub(super) fn attach_uplink(&self, name: &Name, port: PortId) -> Result<bool, ApiError> {
        if !self.store.state().desired.uplinks.contains_key(name) {
            return Ok(false);
        }
        let before = self.board.lock().observed.uplinks.get(name).cloned();
        let mut seen = uplink::prepare(name, before.as_ref())?;
        self.note_uplink(name, &seen)?;
        let socket = uplink::attach(name, &mut seen)?;
        seen.lost = None;
        self.note_uplink(name, &seen)?;
        self.fabric.attach(port, Attachment::Packet(socket.setup), vec![socket.fd, socket.carrier]);
        Ok(true)
    }

    /// Records an uplink in the store and on the board.
    fn note_uplink(&self, name: &Name, seen: &UplinkSeen) -> Result<(), ApiError> {
        self.store.remember(&Owner::Uplink(name.clone()).document(), seen)?;
        self.board.lock().observed.uplinks.insert(name.clone(), seen.clone());
        Ok(())
    }

    /// Gives an uplink's interface back as it was.
    pub(super) fn detach_uplink(&mut self, name: &Name) {
        let Some(seen) = self.board.lock().observed.uplinks.get(name).cloned() else { return };
        let detached = uplink::detach(&seen);
        self.forget(&Owner::Uplink(name.clone()), "uplink", detached);
    }

    /// Looks once a second at the interfaces of uplinks: whether they are still there, up and with
    /// a carrier, and how many frames the kernel has dropped. An interface that somebody has set
    /// down is left so. A socket that receives nothing any more is replaced.
    pub(super) fn look_at_uplinks(&mut self) {
        const SUBJECT: &str = "uplink";
        if !self.retries.is_due(SUBJECT) {
            return;
        }
        self.retries.delay(SUBJECT, LOOK);
        let names: Vec<Name> = self.board.lock().observed.uplinks.keys().cloned().collect();
        for name in names {
            let owner = Owner::Uplink(name.clone());
            // An error is no evidence.
            let Ok(found) = uplink::interface(&name) else { continue };
            let speed = uplink::speed(&name);
            let port = self.store.state().desired.numbers.port(&owner);
            let socket = port.and_then(|port| self.fabric.device(port));
            let Received { all, lost: lost_frames, more } =
                socket.and_then(|socket| uplink::received(&*socket).ok()).unwrap_or_default();
            let mut board = self.board.lock();
            let attached = port.is_some_and(|port| board.observed.attached(port));
            let Some(seen) = board.observed.uplinks.get_mut(&name) else { continue };
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
                self.store.event(Level::Warning, &owner.document(), "uplink.lost", &lost);
            }
        }
    }
}
