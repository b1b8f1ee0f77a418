//! IP addresses that ports of one vSwitch have stated, as workers and the control thread share them
//! (row VN-3).

use std::sync::{Mutex, MutexGuard, PoisonError};

use taut_api::fabric::PortId;
use taut_uplink::team::{Known, Statement};

/// Addresses that were heard. Workers add to them only by frames to groups on a vSwitch with an
/// uplink.
#[derive(Debug, Default)]
pub struct Heard(Mutex<Known<PortId>>);

impl Heard {
    /// Notes a statement in a VLAN: of the station of a port, or of any other one (`None`).
    pub fn hear(&self, port: Option<PortId>, vlan: u16, statement: &Statement) {
        self.known().hear(port, vlan, statement);
    }

    /// Returns the addresses, locked. No queue may be locked meanwhile: workers come here with one
    /// locked.
    pub fn known(&self) -> MutexGuard<'_, Known<PortId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
