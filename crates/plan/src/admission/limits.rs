//! Limits of CPU and memory against the reservations of the same VM.

use taut_api::vm::VmSpec;
use taut_api::{ApiError, Name};

use super::refusal::invalid;
use crate::facts::HostSeen;
use crate::facts::reservation::{counted_pcpus, pcpus, reserved_cpu};

/// Refuses a limit below the reservation. `spec` is already valid in itself.
pub(super) fn admit_limits(host: &HostSeen, name: &Name, spec: &VmSpec) -> Result<(), ApiError> {
    let hint = "raise the limit, or reserve less";
    let reserved = reserved_cpu(spec, host);
    if let Some(limit) = spec.cpu.limit.thousandths(spec.vcpus, host.cpu_mhz)
        && limit < reserved
    {
        let (limit, reserved) = (pcpus(limit), counted_pcpus(reserved));
        return Err(invalid(format!("VM `{name}` reserves {reserved} and is limited to {limit}"), hint));
    }
    let reserved = spec.memory_reservation.of(spec.memory);
    match spec.memory_limit.of(spec.memory) {
        Some(limit) if limit < reserved => Err(invalid(
            format!("VM `{name}` reserves {reserved} of memory and is limited to {limit} of it"),
            hint,
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &serde_json::Value) -> VmSpec {
        let mut all = serde_json::json!({ "memory": "256MiB" });
        all.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_limit_below_the_reservation_is_refused_with_both() {
        let host = HostSeen { cpu_mhz: 2000, ..HostSeen::default() };
        let name = "a".parse().unwrap();
        let refused = |json: serde_json::Value| admit_limits(&host, &name, &spec(&json)).unwrap_err().message;
        let cpu =
            refused(serde_json::json!({ "vcpus": 2, "cpu": { "reservation": "full", "limit": "3000MHz" } }));
        assert_eq!(cpu, "VM `a` reserves 2 pCPUs and is limited to 1.5");
        let memory = refused(serde_json::json!({ "memory_reservation": "full", "memory_limit": "128MiB" }));
        assert_eq!(memory, "VM `a` reserves 256MiB of memory and is limited to 128MiB of it");
        let fine = spec(&serde_json::json!({
            "memory_reservation": "128MiB", "memory_limit": "128MiB",
            "cpu": { "reservation": "50%", "limit": "50%" },
        }));
        assert_eq!(admit_limits(&host, &name, &fine), Ok(()));
    }
}
