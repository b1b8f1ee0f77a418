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
    let most = taut.refused(["vm", "start", "huge"]);
    let most = most.split_once("give it at most ").unwrap().1.split(' ').next().unwrap();
    let vm = taut.json(["vm", "show", "huge"]);
    assert_eq!((&vm["spec"]["power"], &vm["status"]["phase"]), (&"off".into(), &"stopped".into()));

    // The hint works, and a VM that runs is told as such.
    taut.ok(["vm", "set", "huge", "--memory", most]);
    taut.ok(["vm", "start", "huge", "--wait"]);
    let said = taut.refused(["vm", "set", "huge", "--memory", "32TiB"]);
    assert!(said.contains("VM `huge` runs, and could not be started again with this memory: "), "{said}");
    assert!(
        said.contains(&format!("whole host has: {most}\nhint: give it at most {most} of memory")),
        "{said}"
    );
}
