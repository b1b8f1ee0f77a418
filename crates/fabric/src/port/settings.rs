//! Settings of ports: shaping, moderation, captures, reservations and network I/O control.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use taut_api::Coalescing;
use taut_api::fabric::counters::PortWord;
use taut_api::shaping::Shaping;

use super::Port;
use super::capture::Captures;
use super::end::{RxEnd, TxEnd};
use super::network_io::{NetworkIo, NetworkIoSetup};
use super::paced::Paced;
use super::reservation::{Budget, Reservation, Sent};
use crate::net::queue::PairIdx;
use crate::shaping::shaper::Shaper;
use crate::sys::lock::lock;

impl Port {
    /// Puts a shaping into force.
    ///
    /// The first shaping of a direction allocates memory. The caller then has workers look at the
    /// port: waiting frames may be allowed earlier now.
    pub fn shape(&self, shaping: &Shaping, now: Instant) {
        if shaping.to_switch.is_some() || self.to_switch.get().is_some() {
            lock(self.to_switch.get_or_init(Mutex::default)).set(shaping.to_switch, now);
        }
        if shaping.to_guest.is_none() && self.to_guest.get().is_none() {
            return;
        }
        let shaper = self.to_guest.get_or_init(Arc::default);
        lock(shaper).set(shaping.to_guest, now);
        for pair in PairIdx::all(self.pairs()) {
            self.rx(pair).paced.get_or_insert_with(|| Box::new(Paced::new(Arc::clone(shaper))));
        }
    }

    /// Tells whether frames to this port may have to wait for their rate.
    #[inline]
    pub fn is_paced(&self) -> bool {
        self.to_guest.get().is_some()
    }

    /// Puts network I/O control of an uplink into force, or ends it. If there is one, the caller
    /// then has workers look at the port: those that wait for their turns may send.
    pub fn set_network_io(&self, wanted: Option<NetworkIoSetup>, now: Instant) {
        let mut slot = self.rx(PairIdx::FIRST);
        self.has_network_io.store(wanted.is_some(), Relaxed);
        match (wanted, &mut slot.network_io) {
            (Some(wanted), Some(network_io)) => network_io.set(wanted, now),
            (Some(wanted), none) => *none = Some(Box::new(NetworkIo::new(wanted, now))),
            // Those that wait ask again by themselves.
            (None, some) => *some = None,
        }
    }

    /// Tells whether senders have to ask whether they may send to this uplink.
    #[inline]
    pub fn has_network_io(&self) -> bool {
        self.has_network_io.load(Relaxed)
    }

    /// Replaces the captures of the port's frames. They take effect with the next switch.
    pub fn set_captures(&self, captures: Captures) {
        *lock(&self.captures) = captures;
    }

    /// The captures of the port's frames.
    pub fn captures(&self) -> Captures {
        lock(&self.captures).clone()
    }

    /// Sets what the port has reserved on uplinks, for itself and together with its class. What the
    /// port sends counts from now on. Workers learn with the next plan whether the port has a
    /// reservation.
    pub fn reserve(&self, own: Option<Budget>, class: Option<Arc<Mutex<Budget>>>) {
        *lock(&self.reservation) = Reservation::new(own, class, self.sent());
    }

    /// Tells whether the port has a reservation on an uplink.
    pub fn has_reservation(&self) -> bool {
        lock(&self.reservation).is_some()
    }

    /// Tells whether the port has sent less to uplinks than is reserved.
    pub fn is_behind_reservation(&self, now: Instant) -> bool {
        lock(&self.reservation).as_ref().is_some_and(|reservation| reservation.is_behind(now))
    }

    /// Counts what the port has sent since the last time towards its reservation: what went to
    /// uplinks or, if the port `came_first` for its reservation, everything.
    pub fn count_reserved(&self, came_first: bool, now: Instant) {
        if let Some(reservation) = &mut *lock(&self.reservation) {
            reservation.count(self.sent(), came_first, now);
        }
    }

    /// Returns the bytes that the port has ever sent.
    fn sent(&self) -> Sent {
        let [outside, all] = [PortWord::WireTxBytes, PortWord::TxBytes].map(|word| self.counters.get(word));
        Sent { outside, all }
    }

    /// The shaper of the frames that the port sends; `None` if they were never shaped.
    #[inline]
    pub fn to_switch(&self) -> Option<&Mutex<Shaper>> {
        self.to_switch.get()
    }

    /// Changes the moderation of running and future rings. The caller then has workers look at the
    /// port.
    pub fn moderate(&self, coalescing: Coalescing) {
        *lock(&self.coalescing) = coalescing;
        for pair in PairIdx::all(self.pairs()) {
            if let Some(RxEnd::Vnic(end)) = &mut self.rx(pair).end {
                end.notifier().moderate(coalescing);
            }
            if let Some(TxEnd::Vnic(end)) = &mut self.tx(pair).end {
                end.moderate(coalescing);
            }
        }
    }
}
