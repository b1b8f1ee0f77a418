//! Microguests on the vSwitch: created, measured, stopped like any VM.

use taut_tests::{Taut, eventually};

/// Returns the file of a microguest.
pub(crate) fn micro(ip: &str) -> String {
    format!("kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\nip = \"{ip}/24\"\n")
}

#[test]
fn microguests_are_measured_like_vms() {
    let taut = Taut::start().with_lan();
    taut.boot("m1", &micro("10.71.0.1"));
    taut.boot("m2", &micro("10.71.0.2"));
    for name in ["m1", "m2"] {
        assert_eq!(taut.json(["vm", "show", name])["status"]["phase"], "running");
        // The agent answers before the fabric reports that the rings run.
        eventually("its link is up", || {
            (taut.json(["vm", "show", name])["status"]["nics"][0]["link"] == "up").then_some(())
        });
    }
    for args in [vec!["ping"], vec!["rr"], vec!["stream", "--pattern", "bulk"]] {
        let json = taut.dir().join("result.json");
        let svg = taut.dir().join("result.svg");
        let mut command = vec!["bench"];
        command.extend(&args);
        command.extend([
            "m1",
            "m2",
            "--duration",
            "1",
            "--json",
            json.to_str().unwrap(),
            "--svg",
            svg.to_str().unwrap(),
        ]);
        let table = taut.ok(&command);
        let result: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert!(result.is_object(), "{result}");
        assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
        assert!(table.lines().count() > 3, "{table}");
    }
    taut.ok(["vm", "stop", "m1"]);
    taut.ok(["vm", "delete", "--force", "m2"]);
    assert_eq!(taut.json(["vm", "list"]).as_array().unwrap().len(), 1);
}
