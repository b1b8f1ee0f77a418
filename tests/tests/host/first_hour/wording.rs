//! Messages that new users read twice.

use taut_tests::Taut;

#[test]
fn one_of_a_thing_is_singular_and_a_deleted_vm_names_its_disk_only_if_it_has_one() {
    let taut = Taut::start();
    let host = taut.ok(["host", "show"]);
    let topology = host.lines().find(|line| line.starts_with("topology")).unwrap();
    for part in topology.split_whitespace().collect::<Vec<_>>().windows(2) {
        assert!(part[0] != "1" || !part[1].trim_end_matches(',').ends_with('s'), "{topology}");
    }
    let file = taut.file("m.toml", "kind = \"micro\"\nmemory = \"64MiB\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "m"]);
    assert_eq!(taut.ok(["vm", "delete", "m"]), "VM m: deleted\n");
    let image = taut.file("d.img", &"\0".repeat(4096));
    let file = taut.file("d.toml", "memory = \"128MiB\"\n[disk]\npath = \"d.img\"\n");
    taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "d"]);
    let said = taut.ok(["vm", "delete", "d"]);
    assert_eq!(said, format!("VM d: deleted; its disk {} is kept\n", image.display()));
    assert!(image.exists());
}

#[test]
fn sizes_in_a_column_have_one_unit() {
    let taut = Taut::start();
    for (name, memory) in [("small", "64MiB"), ("large", "2GiB")] {
        let file = taut.file(&format!("{name}.toml"), &format!("kind = \"micro\"\nmemory = \"{memory}\"\n"));
        taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", name]);
    }
    let listed = taut.ok(["vm", "list"]);
    let columns: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(columns[0].windows(2).any(|words| words == ["MEMORY", "MIB"]), "{listed}");
    assert!(columns[1].contains(&"2048") && columns[2].contains(&"64"), "{listed}");
}
