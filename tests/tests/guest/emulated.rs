//! Emulated vNICs on the same port groups (VN-7).

use taut_tests::{Image, Netns, Taut, eventually, image};

use crate::direct;

#[test]
fn emulated_cards_reach_the_same_port_group() {
    let Some(image) = image(Image::DebianFull) else { return };
    for (number, model) in ["vmxnet3", "e1000", "e1000e", "vlance"].into_iter().enumerate() {
        let taut = Taut::start().with_lan();
        let ip = format!("10.72.0.{}", number + 1);
        let file =
            direct(&image, &format!("ip = \"{ip}/24\"\nmodel = \"{model}\"")).replace("128MiB", "256MiB");
        taut.boot("g", &file);
        let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
        // The drivers of these vNICs take seconds to see their link.
        eventually("the guest answers", || (a.pings(&ip, 1) == 1).then_some(()));
        a.reaches(&ip, 5);
    }
}
