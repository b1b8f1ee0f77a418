//! Commands that talk to the agent inside a VM.

use std::time::Duration;

use taut_api::route::Vm;
use taut_bench::agent::protocol::{Answer, Interface, Request};

use crate::agent::{self, PATIENCE};
use crate::output::{self, Format, Outcome};

/// Prints the interfaces as the guest sees them.
pub(crate) fn addresses(vm: &Vm, format: Format) -> Outcome {
    let mut guest = agent::of_vm(vm, PATIENCE)?;
    match guest.call(Request::Addresses, PATIENCE) {
        Ok(Answer::Addresses(interfaces)) => {
            output::print(format, &interfaces, |interfaces| table(interfaces));
            Ok(())
        }
        Ok(_) => Err(agent::failed(&guest.confused())),
        Err(error) => Err(agent::failed(&error)),
    }
}

/// Waits until the agent answers, for at most `patience`.
pub(crate) fn wait(vm: &Vm, patience: Duration) -> Outcome {
    agent::of_vm(vm, patience).map(drop)
}

fn table(interfaces: &[Interface]) -> String {
    let rows: Vec<_> = interfaces
        .iter()
        .map(|interface| {
            let ips: Vec<_> = interface.ips.iter().map(ToString::to_string).collect();
            [
                interface.name.clone(),
                interface.mac.clone(),
                ips.join(" "),
                if interface.carrier { "up" } else { "down" }.to_owned(),
                interface.carrier_changes.to_string(),
            ]
        })
        .collect();
    output::table(["INTERFACE", "MAC", "IP", "LINK", "CHANGES"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_shown_as_the_guest_sees_them() {
        let interface = |name: &str, ips: &[&str], carrier| Interface {
            name: name.into(),
            mac: "02:74:61:00:00:01".into(),
            ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
            carrier,
            carrier_changes: 2,
        };
        let interfaces =
            [interface("eth0", &["10.0.0.1/24", "10.1.0.1/16"], true), interface("eth1", &[], false)];
        insta::assert_snapshot!(table(&interfaces), @r"
        INTERFACE  MAC                IP                       LINK  CHANGES
        eth0       02:74:61:00:00:01  10.0.0.1/24 10.1.0.1/16  up          2
        eth1       02:74:61:00:00:01                           down        2
        ");
    }
}
