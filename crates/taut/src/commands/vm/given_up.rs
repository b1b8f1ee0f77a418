//! What a VM gives up with its VMCI device, and the command that restores it.

use taut_api::Name;
use taut_api::vmci::VmciSpec;

/// Renders the settings of a device that was removed.
pub(super) fn vmci(vm: &Name, device: &VmciSpec) -> String {
    let VmciSpec { cid, domains, unrestricted, connections, half_open, group, queue_pairs, queue_pairs_room } =
        device;
    let mut what = Vec::new();
    let mut options = String::new();
    let mut setting = |text: String, option: &str, value: &str| {
        what.push(text);
        options += &format!(" {option} {value}");
    };
    if let Some(cid) = cid {
        setting(format!("context ID {cid}"), "--vmci-cid", &cid.to_string());
    }
    if !domains.is_empty() {
        let domains: Vec<_> = domains.iter().map(Name::as_str).collect();
        let noun = if domains.len() == 1 { "domain" } else { "domains" };
        setting(format!("{noun} {}", domains.join(", ")), "--vmci-domains", &domains.join(","));
    }
    if *unrestricted {
        setting("unrestricted".to_owned(), "--vmci-unrestricted", "on");
    }
    for (limit, name, option) in [
        (connections, "connections", "--vmci-connections"),
        (half_open, "half-open connections", "--vmci-half-open"),
    ] {
        if let Some(most) = limit {
            setting(format!("at most {most} {name}"), option, &most.to_string());
        }
    }
    if let Some(group) = group {
        setting(format!("group {group}"), "--vmci-group", group.as_str());
    }
    if let Some(size) = queue_pairs {
        setting(format!("{size} for queue pairs"), "--vmci-queue-pairs", &size.to_string());
    }
    if let Some(size) = queue_pairs_room {
        setting(format!("room for {size} of them"), "--vmci-queue-pairs-room", &size.to_string());
    }
    format!("given up: {}; `taut vm set {vm} --vmci on{options}` restores them", what.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_named_with_the_option_that_restores_it() {
        let name = "web1".parse().unwrap();
        let of = |json: &str| vmci(&name, &serde_json::from_str(json).unwrap());
        assert_eq!(
            of(r#"{"cid":7,"domains":["shop"]}"#),
            "given up: context ID 7; domain shop; \
             `taut vm set web1 --vmci on --vmci-cid 7 --vmci-domains shop` restores them"
        );
        let all = of(
            r#"{"cid":9,"domains":["a","b"],"unrestricted":true,"connections":10,"half_open":5,"group":"web",
                "queue_pairs":"16MiB","queue_pairs_room":"64MiB"}"#,
        );
        assert_eq!(
            all,
            "given up: context ID 9; domains a, b; unrestricted; at most 10 connections; at most 5 half-open \
             connections; group web; 16MiB for queue pairs; room for 64MiB of them; `taut vm set web1 --vmci on --vmci-cid 9 \
             --vmci-domains a,b --vmci-unrestricted on --vmci-connections 10 --vmci-half-open 5 --vmci-group web \
             --vmci-queue-pairs 16MiB --vmci-queue-pairs-room 64MiB` restores them"
        );
    }
}
