//! Proofs of an uplink's path that have arrived, until the control thread takes them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use taut_uplink::team::Proof;

use crate::sys::lock::lock;

/// Proofs, each once. Only expected ones come here, so their number is that of gateways and one
/// more.
#[derive(Debug, Default)]
pub struct Proofs(Mutex<BTreeSet<Proof>>);

impl Proofs {
    /// Adds a proof.
    pub fn add(&self, proof: Proof) {
        lock(&self.0).insert(proof);
    }

    /// Takes everything.
    pub fn take(&self) -> BTreeSet<Proof> {
        std::mem::take(&mut *lock(&self.0))
    }
}
