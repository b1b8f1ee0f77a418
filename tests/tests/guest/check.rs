//! `taut check guest VM`: the agent inside a QEMU guest collects the facts.

use serde_json::Value;
use taut_tests::{Taut, any_image};

#[test]
fn the_agent_checks_a_guest_from_inside() {
    let taut = Taut::start().with_lan();
    let image = any_image();
    let image = image.display();
    taut.boot(
        "g",
        &format!(
            "memory = \"128MiB\"\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n\
             [[nic]]\nportgroup = \"lan\"\nip = \"10.72.0.1/24\"\n"
        ),
    );
    let found = |report: &Value, id: &str| {
        let line = report["lines"].as_array().unwrap().iter().find(|line| line["id"] == id);
        line.unwrap()["found"].as_str().unwrap().to_owned()
    };
    let report = taut.json(["check", "guest", "g"]);
    assert_eq!(found(&report, "guest.nic-driver"), "eth0: virtio_net");
    assert!(found(&report, "guest.kernel").contains("cloud-amd64"), "{report}");
    assert_eq!(report["summary"]["bad"], 0);
    let judged = report["summary"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(judged as usize, report["lines"].as_array().unwrap().len());

    let text = taut.ok(["check", "guest", "g", "--profile", "throughput"]);
    assert!(text.contains("guest for throughput: "), "{text}");
}
