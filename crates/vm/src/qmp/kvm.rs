//! KVM's counters of a VM's vCPUs by QEMU's `query-stats`. Requires QEMU 7.1 and the kernel's
//! binary statistics, since Linux 5.14.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use taut_api::kvm::{COUNTERS, KvmVcpu};

use super::{Qmp, QmpError, shortened};

impl Qmp {
    /// The counters [`COUNTERS`] of each vCPU, ordered by vCPU. Empty where QEMU has none: under
    /// emulation and with older kernels.
    ///
    /// # Errors
    /// [`QmpError::Refused`] when QEMU does not know the command; otherwise as for every command.
    pub fn kvm_counters(&mut self) -> Result<Vec<KvmVcpu>, QmpError> {
        let wanted = json!({ "target": "vcpu", "providers": [{ "provider": "kvm", "names": COUNTERS }] });
        let stats = self.execute("query-stats", &wanted)?;
        let cpus = self.execute("query-cpus-fast", &Value::Null)?;
        let places = places(&cpus).ok_or_else(|| QmpError::Protocol(shortened(&cpus)))?;
        counters(&stats, &places).ok_or_else(|| QmpError::Protocol(shortened(&stats)))
    }
}

/// The vCPU of each path in QEMU's object tree; `None` when the answer is malformed.
fn places(cpus: &Value) -> Option<BTreeMap<&str, u32>> {
    let numbered = cpus.as_array()?.iter();
    numbered
        .map(|cpu| Some((cpu["qom-path"].as_str()?, cpu["cpu-index"].as_u64()?.try_into().ok()?)))
        .collect()
}

/// The counters by vCPU; `None` when the answer is malformed. A vCPU with an unknown path was just
/// added or removed and is skipped.
fn counters(stats: &Value, places: &BTreeMap<&str, u32>) -> Option<Vec<KvmVcpu>> {
    let wanted = BTreeSet::from(COUNTERS);
    let mut vcpus = BTreeMap::new();
    for of_vcpu in stats.as_array()? {
        let (path, list) = (of_vcpu["qom-path"].as_str()?, of_vcpu["stats"].as_array()?);
        if of_vcpu["provider"].as_str()? != "kvm" {
            continue;
        }
        let Some(&vcpu) = places.get(path) else { continue };
        let counters: &mut BTreeMap<_, _> = vcpus.entry(vcpu).or_default();
        for counter in list {
            let name = counter["name"].as_str()?;
            // Values of other counters may be lists or booleans.
            if wanted.contains(name) {
                counters.insert(name.to_owned(), counter["value"].as_u64()?);
            }
        }
    }
    Some(vcpus.into_iter().map(|(vcpu, counters)| KvmVcpu { vcpu, counters }).collect())
}
