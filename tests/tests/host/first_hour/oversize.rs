//! A VM that is larger than the host: its start is refused, and the exit status says so.

use taut_tests::Taut;

#[test]
fn the_start_of_a_vm_that_is_larger_than_the_host_fails() {
    let taut = Taut::start();
    let file = taut.file("vm.toml", "kind = \"micro\"\nmemory = \"32TiB\"\n");
    let create = ["vm", "create", "-f", file.to_str().unwrap(), "--name", "huge"];
    let mut starts = create.to_vec();
    starts.push("--start");
    let refused = |said: &str| {
        assert!(said.contains("its memory of 32TiB is more than the whole host has"), "{said}");
        assert!(said.contains("\nhint: give it at most "), "{said}");
    };
    refused(&taut.refused(starts));
    assert!(taut.json(["vm", "list"]).as_array().unwrap().is_empty(), "a refused creation leaves nothing");
    // A VM that stays off may be of any size.
    taut.ok(create);
    refused(&taut.refused(["vm", "start", "huge"]));
    let vm = taut.json(["vm", "show", "huge"]);
    assert_eq!((&vm["spec"]["power"], &vm["status"]["phase"]), (&"off".into(), &"stopped".into()));
}
