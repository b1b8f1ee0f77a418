//! `create` and `attach` refuse a name that exists, and change nothing.

use taut_tests::{RawPort, Taut};

/// A microguest on the port group `lan`.
const MICRO: &str = "kind = \"micro\"\nmemory = \"64MiB\"\n[[nic]]\nportgroup = \"lan\"\n";

#[test]
fn a_name_that_exists_is_refused_and_its_settings_stay() {
    let taut = Taut::start().with_lan();
    taut.ok(["portgroup", "create", "web", "--vswitch", "sw", "--vlan", "10", "--promiscuous"]);
    let port = RawPort::attach(&taut, "ext", "web", [2, 0x11, 0, 0, 0, 1]);
    let file = taut.file("m.toml", MICRO);
    let file = file.to_str().unwrap();
    taut.ok(["vm", "create", "-f", file, "--name", "m"]);
    let documents = || {
        let lists = [["vswitch", "list"], ["portgroup", "list"], ["vm", "list"]];
        let all = lists.map(|list| taut.json(list));
        all.map(|list| list.as_array().unwrap().iter().map(|one| one["spec"].clone()).collect::<Vec<_>>())
    };
    let before = (documents(), port.info(&taut)["portgroup"].clone());
    let refuses = |command: &str, hint: &str| {
        let said = taut.refused(command.split(' '));
        assert!(said.contains("exists already"), "{said}");
        assert!(said.split_once("\nhint: ").unwrap().1.contains(hint), "{said}");
    };
    refuses("portgroup create web --vswitch sw", "taut portgroup set web");
    refuses("vswitch create sw", "taut vswitch set sw");
    refuses(&format!("vm create -f {file} --name m"), "taut vm set m");
    refuses("port attach ext --portgroup lan --path /tmp/none.sock", "taut port detach ext");
    assert_eq!((documents(), port.info(&taut)["portgroup"].clone()), before);
    // The hint works.
    taut.ok(["portgroup", "set", "web", "--vlan", "11"]);
    let groups = taut.json(["portgroup", "list"]);
    let web = groups.as_array().unwrap().iter().find(|group| group["name"] == "web").unwrap();
    assert_eq!(web["spec"]["vlan"].to_string().trim_matches('"'), "11");
    assert_eq!(web["spec"]["security"]["promiscuous"], true);
}
