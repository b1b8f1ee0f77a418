//! A disk image like a user's own, made by mmdebstrap, with taut's agent installed as a service.

use std::path::Path;
use std::process::Command;

use taut_tests::{Netns, Taut, bin_dir, eventually};

#[test]
fn a_debian_disk_boots_and_answers() {
    let taut = Taut::start().with_lan();
    let disk = taut.dir().join("debian.img");
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tools/make-disk.sh");
    let status = Command::new(tool).arg(bin_dir().join("taut-guest")).arg(&disk).status().unwrap();
    assert!(status.success());
    let disk = disk.display();
    let file = format!(
        "memory = \"512MiB\"\n[disk]\npath = \"{disk}\"\n[[nic]]\nportgroup = \"lan\"\nip = \"10.72.0.1/24\"\n"
    );
    taut.boot("own", &file);
    let a = Netns::attach(&taut, "a", "lan", "10.72.0.9");
    taut.ok(["bench", "ping", &format!("netns/{}", a.name), "own", "--duration", "1"]);

    // Runs iperf3 between the guest and the namespace, both ways.
    for direction in ["--bidir", "--reverse"] {
        let report = eventually("iperf3 measures", || {
            let output = a.run("iperf3", ["-c", "10.72.0.1", "-n", "24M", "-J", direction]);
            let report: serde_json::Value =
                serde_json::from_slice(&output.stdout).expect("iperf3 writes JSON");
            report["end"]["sum_received"]["bytes"].as_u64().map(|bytes| (bytes, report))
        });
        assert!(report.0 > 1 << 20, "{}", report.1);
    }
}
