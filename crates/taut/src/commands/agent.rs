//! What `taut vm` asks the agent inside a VM.

use taut_api::route::Vm;
use taut_workload::agent::protocol::{Answer, Interface, Request};

use crate::Outcome;
use crate::agent;
use crate::commands::PATIENCE;
use crate::output::{self, Format};

/// Prints the interfaces as the guest sees them.
pub(crate) fn addresses(vm: &Vm, format: Format) -> Outcome {
    let mut agent = agent::of_vm(vm, agent::PATIENCE)?;
    let answer = agent.call(Request::Addresses, agent::PATIENCE).map_err(|error| agent::failed(&error))?;
    let Answer::Addresses(interfaces) = answer else { return Err(agent::failed(&agent.confused())) };
    output::print(format, &interfaces, |interfaces| {
        let rows: Vec<_> = interfaces.iter().map(row).collect();
        output::table(["INTERFACE", "MAC", "ADDRESSES", "LINK", "LINK CHANGES"], &rows)
    });
    Ok(())
}

/// Waits until the agent says hello.
pub(crate) fn wait(vm: &Vm) -> Outcome {
    agent::of_vm(vm, PATIENCE).map(drop)
}

fn row(interface: &Interface) -> [String; 5] {
    let ips: Vec<_> = interface.ips.iter().map(ToString::to_string).collect();
    [
        interface.name.clone(),
        interface.mac.clone(),
        ips.join(" "),
        if interface.carrier { "up" } else { "down" }.to_owned(),
        interface.carrier_changes.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_one_line() {
        let interface = Interface {
            name: "eth0".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            ips: vec!["10.0.0.1/24".parse().unwrap(), "10.1.0.1/16".parse().unwrap()],
            carrier: true,
            carrier_changes: 2,
        };
        assert_eq!(row(&interface).join("|"), "eth0|02:00:00:00:00:01|10.0.0.1/24 10.1.0.1/16|up|2");
    }
}
