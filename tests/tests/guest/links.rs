//! Links of cards as a guest sees them.

use serde_json::json;
use taut_tests::{Image, Netns, Taut, any_image, eventually, image};

use crate::direct;

/// Takes the link of a card with this model down and up.
fn take_down_and_up(image: &std::path::Path, model: &str) {
    let taut = Taut::start().with_lan();
    let file =
        direct(image, &format!("ip = \"10.72.0.5/24\"\nmodel = \"{model}\"")).replace("128MiB", "256MiB");
    taut.boot("g", &file);
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
    eventually("the guest answers", || (a.pings("10.72.0.5", 1) == 1).then_some(()));
    let carrier = || {
        let interfaces = taut.json(["vm", "addresses", "g"]);
        let all = interfaces.as_array().unwrap();
        let card = all.iter().find(|card| card["mac"].as_str().unwrap().starts_with("02:")).unwrap();
        card["carrier"].clone()
    };
    assert_eq!(carrier(), json!(true), "{model}");
    taut.ok(["vm", "set", "g", "--link", "down"]);
    eventually("the guest has no carrier", || (carrier() == json!(false)).then_some(()));
    assert_eq!(a.pings("10.72.0.5", 1), 0, "{model}");
    assert_eq!(taut.json(["vm", "show", "g"])["status"]["phase"], "running");
    taut.ok(["vm", "set", "g", "--link", "up"]);
    eventually("the guest has carrier", || (carrier() == json!(true)).then_some(()));
    eventually("frames pass again", || (a.pings("10.72.0.5", 1) == 1).then_some(()));
}

#[test]
fn a_guest_sees_the_link_of_its_virtio_card_go_down_and_up() {
    take_down_and_up(&any_image(), "virtio");
}

#[test]
fn a_guest_sees_the_link_of_an_emulated_card_go_down_and_up() {
    let Some(image) = image(Image::DebianFull) else { return };
    take_down_and_up(&image, "e1000");
}

#[test]
fn vcpus_and_memory_are_those_of_the_next_start() {
    let taut = Taut::start().with_lan();
    taut.boot("g", &direct(&any_image(), "ip = \"10.72.0.5/24\""));
    taut.ok(["vm", "set", "g", "--vcpus", "2", "--memory", "192MiB"]);
    let threads = || {
        let tasks = format!("/proc/{}/task", taut.json(["vm", "show", "g"])["status"]["pid"]);
        let names = std::fs::read_dir(tasks)
            .unwrap()
            .filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.starts_with("CPU ")).count()
    };
    assert_eq!(threads(), 1, "it runs with what it was started with");
    for command in ["show", "explain"] {
        let told = taut.ok(["vm", command, "g"]);
        assert!(told.contains("2 vCPUs from its next start on; it runs with 1 vCPU"), "{told}");
        assert!(told.contains("192MiB of memory from its next start on"), "{told}");
    }
    taut.ok(["vm", "stop", "g"]);
    taut.ok(["vm", "start", "g", "--wait"]);
    assert_eq!(threads(), 2);
    assert!(!taut.ok(["vm", "show", "g"]).contains("next start"));
}
