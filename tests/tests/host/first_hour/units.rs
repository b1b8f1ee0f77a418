//! Sizes: what was understood is printed, and what cannot be meant is refused.

use taut_tests::Taut;

#[test]
fn a_size_is_echoed_as_understood_and_bytes_for_mebibytes_are_refused() {
    let taut = Taut::start().with_lan();
    let text = |memory: &str| format!("kind = \"micro\"\nmemory = {memory}\n[[nic]]\nportgroup = \"lan\"\n");
    let file = taut.file("mb.toml", &text("\"64MB\""));
    let said = taut.ok(["vm", "create", "-f", file.to_str().unwrap(), "--name", "mb"]);
    assert_eq!(said, "created mb: 1 vCPU, 64MiB of memory, 1 network card\n");

    let file = taut.file("bytes.toml", &text("1024"));
    let said = taut.refused(["vm", "create", "-f", file.to_str().unwrap(), "--name", "bytes"]);
    assert!(said.contains("memory = 1KiB (1024 bytes) is outside 16MiB to 64TiB"), "{said}");
    assert!(said.contains("a number without a unit is bytes"), "{said}");

    let before = taut.json(["vm", "show", "mb"])["spec"].clone();
    for option in ["--memory-reservation", "--memory-limit"] {
        let said = taut.refused(["vm", "set", "mb", option, "1024"]);
        assert!(said.contains("= 1KiB (1024 bytes) is less than 1MiB"), "{said}");
        assert!(said.contains("such as \"512MiB\""), "{said}");
    }
    assert_eq!(taut.json(["vm", "show", "mb"])["spec"], before);
}
