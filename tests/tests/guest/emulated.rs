//! Emulated vNICs on the same port groups (VN-7).

use taut_tests::{Image, Netns, Taut, eventually, image};

use crate::direct;

#[test]
fn emulated_cards_reach_the_same_port_group() {
    let Some(image) = image(Image::DebianFull) else { return };
    let vms = [("vmxnet3", 1), ("e1000", 2), ("e1000e", 3), ("vlance", 4)];
    let taut = Taut::start().with_lan();
    let file = |model: &str, number: u32| {
        let nic = format!("ip = \"10.72.0.{number}/24\"\nmodel = \"{model}\"");
        direct(&image, &nic).replace("128MiB", "256MiB")
    };
    taut.boot_all(vms.map(|(model, number)| (model, file(model, number))));
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
    for ip in vms.map(|(_, number)| format!("10.72.0.{number}")) {
        // The drivers of these vNICs take seconds to see their link.
        eventually("the guest answers", || (a.pings(&ip, 1) == 1).then_some(()));
        a.reaches(&ip, 5);
    }
}
