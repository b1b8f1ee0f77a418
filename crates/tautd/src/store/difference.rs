//! The difference between two versions of a document, in words for the event log.

use serde_json::Value;

/// Maximum number of fields that are listed.
const MOST_FIELDS: usize = 12;
/// Maximum number of characters of a value that is shown.
const MOST_VALUE: usize = 60;

/// A field with its value before and after a write; `None` is a default that is left out.
type Field<'a> = (String, Option<&'a Value>, Option<&'a Value>);

/// Describes a write: the fields of a new document, or those that have changed. `null` stands for
/// a document that does not exist.
pub(super) fn describe(before: &Value, after: &Value) -> String {
    let mut fields = Vec::new();
    match (before, after) {
        (_, Value::Null) => return "deleted".to_owned(),
        (Value::Null, after) => {
            compare("", None, Some(after), &mut fields);
            return listed("created", &fields, |(path, _, value)| format!("{path} = {}", text(*value)));
        }
        (before, after) => compare("", Some(before), Some(after), &mut fields),
    }
    if fields.is_empty() {
        return "set again to the values that it had".to_owned();
    }
    listed("changed", &fields, |(path, before, after)| {
        format!("{path}: {} → {}", text(*before), text(*after))
    })
}

/// Lists the fields whose values differ. Tables and lists of tables are compared field by field.
fn compare<'a>(path: &str, before: Option<&'a Value>, after: Option<&'a Value>, into: &mut Vec<Field<'a>>) {
    if before == after {
        return;
    }
    match (before, after) {
        (Some(Value::Object(_)) | None, Some(Value::Object(_))) | (Some(Value::Object(_)), None) => {
            let table = |value: Option<&'a Value>| value.and_then(Value::as_object);
            let (before, after) = (table(before), table(after));
            let keys = before.into_iter().chain(after).flat_map(serde_json::Map::keys);
            let keys: std::collections::BTreeSet<_> = keys.collect();
            let of = |table: Option<&'a serde_json::Map<String, Value>>, key: &str| table?.get(key);
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(&path, of(before, key), of(after, key), into);
            }
        }
        (before, after) if is_list_of_tables(before) || is_list_of_tables(after) => {
            let list = |value: Option<&'a Value>| value.and_then(Value::as_array);
            let (before, after) = (list(before), list(after));
            let count = before.map_or(0, Vec::len).max(after.map_or(0, Vec::len));
            for index in 0..count {
                let of = |list: Option<&'a Vec<Value>>| list?.get(index);
                compare(&format!("{path}[{index}]"), of(before), of(after), into);
            }
        }
        _ => into.push((path.to_owned(), before, after)),
    }
}

fn is_list_of_tables(value: Option<&Value>) -> bool {
    value.and_then(Value::as_array).is_some_and(|list| list.first().is_some_and(Value::is_object))
}

fn listed<'a>(verb: &str, fields: &[Field<'a>], text: impl Fn(&Field<'a>) -> String) -> String {
    if fields.is_empty() {
        return verb.to_owned();
    }
    let shown: Vec<_> = fields.iter().take(MOST_FIELDS).map(text).collect();
    let more = match fields.len().saturating_sub(MOST_FIELDS) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{verb}: {}{more}", shown.join(", "))
}

fn text(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => return "default".to_owned(),
        Some(Value::String(text)) if text.is_empty() => "\"\"".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    match text.char_indices().nth(MOST_VALUE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_names_each_field_with_its_values() {
        let before =
            json!({ "vcpus": 1, "power": "off", "nic": [{ "portgroup": "lan", "ip": "10.0.0.1/24" }] });
        let after = json!({ "vcpus": 2, "power": "off", "memory_shares": "high",
            "nic": [{ "portgroup": "dmz", "ip": "10.0.0.1/24" }] });
        assert_eq!(
            describe(&before, &after),
            "changed: memory_shares: default → high, nic[0].portgroup: lan → dmz, vcpus: 1 → 2"
        );
        let without = json!({ "vcpus": 1, "power": "off", "nic": [] });
        assert_eq!(
            describe(&before, &without),
            "changed: nic[0].ip: 10.0.0.1/24 → default, nic[0].portgroup: lan → default"
        );
        assert_eq!(describe(&before, &before), "set again to the values that it had");
        assert_eq!(describe(&json!({ "a": [1] }), &json!({ "a": [1, 2] })), "changed: a: [1] → [1,2]");
    }

    #[test]
    fn a_new_document_is_described_by_its_fields_and_long_ones_are_shortened() {
        assert_eq!(describe(&Value::Null, &json!({})), "created");
        let group = json!({ "vswitch": "prod", "vlan": 10, "security": { "promiscuous": true } });
        assert_eq!(
            describe(&Value::Null, &group),
            "created: security.promiscuous = true, vlan = 10, vswitch = prod"
        );
        assert_eq!(describe(&group, &Value::Null), "deleted");
        let many: serde_json::Map<_, _> = (10..30).map(|key| (format!("k{key}"), json!("v"))).collect();
        let told = describe(&Value::Null, &Value::Object(many));
        assert!(told.starts_with("created: k10 = v, ") && told.ends_with(", and 8 more"), "{told}");
        let long = describe(&Value::Null, &json!({ "cmdline": "ä".repeat(100) }));
        assert_eq!(long, format!("created: cmdline = {}…", "ä".repeat(60)));
    }
}
