//! Tests of what users see of an address that a guest's driver has set.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt as _;

use taut_api::MacAddr;
use taut_api::fabric::PortId;
use taut_api::fabric::counters::{PortWord, port_base};
use taut_plan::facts::{MachineSeen, SetAddress};

use super::*;

#[test]
fn an_accepted_address_that_the_fabric_refuses_is_told_with_the_port_and_with_its_vm() {
    let server = Server::with_lan();
    server
        .put("/v1/portgroups/lan", &json!({ "vswitch": "sw", "security": { "mac_changes": true } }))
        .is(200);
    server.create("m", "kind = \"micro\"\n[[nic]]\nportgroup = \"lan\"\n").is(201);
    let set = SetAddress { mac: MacAddr([2, 0x66, 0, 0, 0, 1]), order: 1 };
    let machine = MachineSeen { addresses: vec![Some(set)], ..MachineSeen::default() };
    let process = Some(Process { machine, ..Process::default() });
    let seen = VmSeen { process, ..VmSeen::default() };
    server.app.board.lock().observed.vms.insert("m".parse().unwrap(), seen);
    let told = || {
        let port = server.get("/v1/ports").is(200)[0].clone();
        let card = server.get("/v1/vms/m").is(200)["status"]["nics"][0].clone();
        for seen in [&port, &card] {
            assert_eq!(seen["effective_mac"], "02:66:00:00:00:01");
            assert_eq!(seen["mac_rejected"], false);
        }
        (
            port["port"].as_u64().unwrap() as u16,
            [&port, &card].map(|seen| seen["mac_taken"].as_bool().unwrap()),
        )
    };
    let (port, refused) = told();
    assert_eq!(refused, [false; 2]);
    let counters = OpenOptions::new().write(true).open(server.dir.path().join("counters")).unwrap();
    let at = (port_base(PortId(port)) + PortWord::AddressRefused as usize) * 8;
    counters.write_all_at(&1_u64.to_le_bytes(), at as u64).unwrap();
    assert_eq!(told().1, [true; 2]);
}
