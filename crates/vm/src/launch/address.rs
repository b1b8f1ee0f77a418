//! Addresses that guests' drivers have set for their cards.
//!
//! QEMU handles the control queue of a virtio card itself, and tells its monitor what the driver
//! has set there. Of emulated cards it tells nothing.

use std::time::Duration;

use serde_json::Value;
use taut_api::MacAddr;

use super::qemu::device_name;
use crate::qmp::{Qmp, QmpError};

/// Returns the address of each of the first `cards` cards; `None` for a card of which QEMU does not
/// tell it. Afterwards QEMU tells the next change ([`await_change`]).
///
/// # Errors
/// When QEMU does not answer, or with something else.
pub fn read(qmp: &mut Qmp, cards: usize) -> Result<Vec<Option<MacAddr>>, QmpError> {
    // Without a name, QEMU tells of all cards that have such filters.
    let answer = qmp.execute("query-rx-filter", &Value::Null)?;
    addresses(&answer, cards).ok_or_else(|| QmpError::unexpected(&answer))
}

/// Waits until QEMU tells that something may have changed since [`read`], at most for `patience`.
/// A reset of the VM restores the configured addresses.
///
/// # Errors
/// When the connection fails.
pub fn await_change(qmp: &mut Qmp, patience: Duration) -> Result<(), QmpError> {
    qmp.wait_for(|event| matches!(event.name.as_str(), "NIC_RX_FILTER_CHANGED" | "RESET"), patience)?;
    qmp.take_events();
    Ok(())
}

/// The addresses in QEMU's answer, by card; `None` when it is malformed. Names of other devices are
/// skipped.
fn addresses(answer: &Value, cards: usize) -> Option<Vec<Option<MacAddr>>> {
    let mut addresses = vec![None; cards];
    let names: Vec<_> = (0..cards).map(device_name).collect();
    for filter in answer.as_array()? {
        let index = names.iter().position(|name| filter["name"] == name.as_str());
        if let Some(index) = index {
            addresses[index] = Some(filter["main-mac"].as_str()?.parse().ok()?);
        }
    }
    Some(addresses)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_found_by_card() {
        let filter = |name: &str, mac: &str| json!({ "name": name, "main-mac": mac, "promiscuous": false });
        let mac = |last| Some(MacAddr([2, 0x66, 0, 0, 0, last]));
        let all = json!([
            filter("card2", "02:66:00:00:00:03"),
            filter("card0", "02:66:00:00:00:01"),
            filter("card9", "02:66:00:00:00:09"),
            { "main-mac": "02:66:00:00:00:0a" },
        ]);
        assert_eq!(addresses(&all, 3), Some(vec![mac(1), None, mac(3)]));
        assert_eq!(addresses(&all, 0), Some(vec![]));
        let group = json!([filter("card0", "ff:ff:ff:ff:ff:ff")]);
        assert_eq!(addresses(&group, 1), Some(vec![Some(MacAddr::BROADCAST)]), "a driver may set anything");
    }

    #[test]
    fn malformed_answers_have_no_addresses() {
        let of_card = |mac: Value| json!([{ "name": "card0", "main-mac": mac }]);
        let long = "02:".repeat(100_000);
        for mac in
            [json!(5), json!(""), json!("02:66"), json!(long), json!(["02:66:00:00:00:01"]), Value::Null]
        {
            assert_eq!(addresses(&of_card(mac.clone()), 1), None, "{mac}");
        }
        for answer in [json!({}), json!("card0"), Value::Null] {
            assert_eq!(addresses(&answer, 1), None, "{answer}");
        }
        assert_eq!(addresses(&json!([1, [], "x", {}]), 1), Some(vec![None]), "no cards at all");
    }
}
