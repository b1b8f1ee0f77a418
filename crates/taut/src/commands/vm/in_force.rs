//! The line that `taut vm set` prints: the settings that were changed, with their values now.

use serde_json::Value;
use taut_api::network_io::NetworkAllocation;
use taut_api::patch::VmPatch;
use taut_api::route::Vm;
use taut_api::shaping::OwnShape;

use super::sensitivity;

/// Renders the settings of an accepted request. The daemon applies all of them or none, so the
/// values of the request are those of the VM.
pub(super) fn in_force(patch: &VmPatch, after: &Vm) -> String {
    let mut parts = Vec::new();
    let patch = serde_json::to_value(patch).expect("our own types are JSON");
    collect(&patch, "", &mut parts);
    if patch.pointer("/latency/latency_sensitivity").is_some() {
        parts.retain(|part| !part.starts_with("latency sensitivity "));
        parts.push(format!("latency sensitivity {}", sensitivity::text(after)));
    }
    parts.join(", ")
}

/// Adds each setting below `value`. `of` is the thing that a setting's name needs before it.
fn collect(value: &Value, of: &str, parts: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let name = key.replace('_', " ");
        match (key.as_str(), value) {
            ("nics" | "latency" | "resources" | "machine" | "placement", Value::Object(_)) => {
                let of = if key == "nics" { "card " } else { "" };
                collect(value, of, parts);
            }
            ("vmci" | "halt", Value::Object(_)) => collect(value, &format!("{key} "), parts),
            ("to_switch" | "to_guest", shape) => parts.push(format!("{of}{name} {}", shape_of(shape))),
            ("uplink_allocation", part) => parts.push(format!("{of}{name} {}", allocation_of(part))),
            // A card's number.
            (_, Value::Object(_)) => collect(value, &format!("{of}{name} "), parts),
            ("present", Value::Bool(present)) => {
                parts.push(format!("vmci {}", if *present { "on" } else { "off" }));
            }
            _ => parts.push(format!("{of}{name} {}", text(key, value))),
        }
    }
}

/// Renders a shape, which is a table or a word.
fn shape_of(value: &Value) -> String {
    serde_json::from_value::<OwnShape>(value.clone()).map(|shape| shape.to_string()).unwrap_or_default()
}

/// Renders a part of uplinks, which is a table.
fn allocation_of(value: &Value) -> String {
    let read = serde_json::from_value::<NetworkAllocation>(value.clone());
    read.map(|allocation| allocation.to_string()).unwrap_or_default()
}

fn text(key: &str, value: &Value) -> String {
    match value {
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        // A size.
        Value::String(text) if text == "0" => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) if all.is_empty() => "none".to_owned(),
        Value::Array(all) => all.iter().map(|one| text("", one)).collect::<Vec<_>>().join(","),
        // Documents leave a limit or a default out; requests write 0 for it.
        Value::Number(number) if number.as_u64() == Some(0) => match key {
            "min_spin_us" | "cid" | "connections" | "half_open" => "default".to_owned(),
            _ => "none".to_owned(),
        },
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(patch: &str) -> String {
        let status = serde_json::json!({ "phase": "stopped" });
        let vm = serde_json::json!({ "name": "db1", "revision": 1, "spec": {}, "status": status });
        in_force(&serde_json::from_str(patch).unwrap(), &serde_json::from_value(vm).unwrap())
    }

    #[test]
    fn every_changed_setting_is_named_with_its_value() {
        let patch = r#"{"nics":{"0":{"lro":false,"coalescing":"adapt"}},"latency":{"cpu_reservation":"full"},
            "machine":{"halt":{"spin":"default","min_spin_us":0},"disk_iops":0},
            "vmci":{"present":true,"domains":["a","b"],"connections":0}}"#;
        insta::assert_snapshot!(line(patch), @"cpu reservation full, disk iops none, halt min spin us default, halt spin default, card 0 coalescing adapt, card 0 lro off, vmci connections default, vmci domains a,b, vmci on");
        assert_eq!(line(r#"{"vmci":{"present":false}}"#), "vmci off");
        assert_eq!(line(r#"{"vmci":{"domains":[]}}"#), "vmci domains none");
        assert_eq!(line(r#"{"vmci":{"group":"web"}}"#), "vmci group web");
        assert_eq!(line(r#"{"vmci":{"group":"none"}}"#), "vmci group none");
        assert_eq!(line(r#"{"vmci":{"present":true,"cid":7}}"#), "vmci cid 7, vmci on");
        assert_eq!(line(r#"{"vmci":{"queue_pairs":"16MiB"}}"#), "vmci queue pairs 16MiB");
        assert_eq!(line(r#"{"vmci":{"queue_pairs":"0"}}"#), "vmci queue pairs none");
        let shaped = r#"{"nics":{"1":{"to_guest":{"average":"10Mbit"},"to_switch":"default"}}}"#;
        assert_eq!(line(shaped), "card 1 to guest 10Mbit, card 1 to switch default");
    }
}
