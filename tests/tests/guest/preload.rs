//! `libtaut_vmci.so` in guests: a TCP program over the kernel's `AF_VSOCK`, and Redis from VM to
//! VM.

use std::path::{Path, PathBuf};
use std::process::Command;

use taut_tests::{Image, Taut, any_image, bin_dir, eventually, image};

/// Makes kernel and initial RAM file system of a guest with Redis, the library, a map, and a script
/// that it runs.
pub(crate) fn guest_with(
    taut: &Taut,
    image: &Path,
    name: &str,
    [map, script]: [&str; 2],
    programs: &[PathBuf],
) -> PathBuf {
    let out = taut.dir().join(name);
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tools/make-redis.sh");
    let library = bin_dir().join("libtaut_vmci.so");
    let (map, script) =
        (taut.file(&format!("{name}.map"), map), taut.file(&format!("{name}.script"), script));
    let mut command = Command::new(tool);
    command
        .arg(image.parent().unwrap())
        .arg(image.file_name().unwrap())
        .args([&library, &map, &script, &out]);
    assert!(command.args(programs).status().unwrap().success());
    out
}

pub(crate) fn vm_file(image: &Path, more: &str) -> String {
    let image = image.display();
    format!(
        "memory = \"512MiB\"\n[boot]\nkernel = \"{image}/vmlinuz\"\ninitrd = \"{image}/initrd\"\n{more}\n"
    )
}

/// Waits until a guest's console contains one of these texts, and returns all of it.
pub(crate) fn printed(taut: &Taut, vm: &str, wanted: &[&str]) -> String {
    eventually(&format!("{vm} says one of {wanted:?}"), || {
        let log = taut.ok(["vm", "log", vm]);
        wanted.iter().any(|wanted| log.contains(wanted)).then_some(log)
    })
}

/// Both ends of each scenario run in one guest, connected by the kernel's loopback for `AF_VSOCK`
/// (CID 1).
#[test]
fn a_tcp_program_sees_the_same_over_af_vsock() {
    const MAP: &str = "127.0.0.1:* -> cid 1\n[::1]:* -> cid 1\nlisten 127.0.0.1:*\nlisten [::1]:*\nlisten *\npatience 5000 ms\n";
    const SCRIPT: &str = r#"
for scenario in $(tcp_program); do
  expected=$(tcp_program $scenario 2>/dev/null)
  for gather in 1 0; do
    # Without gathering, TCP_CORK has no effect.
    if [ $scenario-$gather = corked-0 ]; then continue; fi
    got=$(TAUT_VMCI_GATHER=$gather TAUT_VMCI_LOG=1 LD_PRELOAD=/usr/local/lib/libtaut_vmci.so tcp_program $scenario 2>/tmp/said)
    if [ "$got" != "$expected" ]; then break; fi
  done
  if [ "$got" != "$expected" ]; then
    cat /tmp/said; echo "$got"; echo "not: $expected"; echo "differs: $scenario."
  elif grep -q ': cid 1 port [0-9]*$' /tmp/said; then echo "same by vmci: $scenario."
  else echo "same by tcp: $scenario."
  fi
done
"#;
    // Scenarios without a connection, or with one that has to be TCP.
    const TCP: [&str; 18] = [
        "locks_are_denied",
        "number_of_a_locked_file",
        "select_while_all_numbers_are_used",
        "poll_of_too_many",
        "accept_is_cancelled",
        "connect_is_cancelled",
        "everything_else_is_closed_by_system_calls",
        "one_duplicate_is_shut_down",
        "accept_is_interrupted",
        "accepted_by_a_ring",
        "connect_is_interrupted",
        "not_looked_at",
        "one_process_listens",
        "nobody_listens_and_nobody_waits",
        "shutdown_wakes_accept",
        "listener_is_a_tcp_socket",
        "watched_twice",
        "signals_wanted",
    ];
    let program = bin_dir().join("examples/tcp_program");
    let scenarios = Command::new(&program).output().expect("`make test-guest` builds it").stdout;
    let scenarios = String::from_utf8(scenarios).unwrap();
    let programs = [program, "/bin/true".into(), "/bin/echo".into()];
    let taut = Taut::start();
    let guests = Image::CLOUD.into_iter().filter_map(image).map(|image| {
        let vm = image.file_name().unwrap().to_str().unwrap().replace('.', "-");
        let guest = guest_with(&taut, &image, &vm, [MAP, SCRIPT], &programs);
        (vm, vm_file(&guest, ""))
    });
    let guests: Vec<_> = guests.collect();
    taut.boot_all(guests.clone());
    for (vm, _) in guests {
        for scenario in scenarios.lines() {
            let log = printed(
                &taut,
                &vm,
                &["same by vmci", "same by tcp", "differs"]
                    .map(|word| format!("{word}: {scenario}."))
                    .each_ref()
                    .map(String::as_str),
            );
            let way = if TCP.contains(&scenario) { "tcp" } else { "vmci" };
            assert!(log.contains(&format!("same by {way}: {scenario}.")), "{vm}, {scenario}: {log}");
        }
        taut.ok(["vm", "stop", &vm]);
    }
}

/// The two VMs have no vNIC, so they can talk over VMCI only.
#[test]
fn redis_serves_another_vm_without_a_network() {
    const MAP: &str = "10.0.0.7:* -> cid 101\n10.0.0.8:* -> cid 102\nlisten *:6379\npatience 5000 ms\n";
    const SERVER: &str = r#"
LD_PRELOAD=/usr/local/lib/libtaut_vmci.so redis-server --bind 0.0.0.0 --protected-mode no &
until redis-cli ping | grep -q PONG; do sleep 0.2; done
redis-cli config set maxclients 200
echo "server: up."
"#;
    const CLIENT: &str = r#"
export LD_PRELOAD=/usr/local/lib/libtaut_vmci.so
until LD_PRELOAD=/usr/local/lib/libtaut_vmci.so redis-cli -h 10.0.0.7 ping
do sleep 0.5; done
redis-cli -h 10.0.0.7 set key value
TAUT_VMCI_GATHER=1 LD_PRELOAD=/usr/local/lib/libtaut_vmci.so redis-cli -h 10.0.0.7 ping
echo "client: got $(redis-cli -h 10.0.0.7 get key)."
echo "client: $(redis-cli -h 10.0.0.7 client list)"
redis-benchmark -h 10.0.0.7 -n 2000 -c 20 -t set,get --csv
echo "client: done."
"#;
    for line in crate::guide::commands_for("tests/tests/guest/preload.rs") {
        assert!(SERVER.contains(&line) || CLIENT.contains(&line), "not executed: {line}");
    }
    let taut = Taut::start();
    let image = any_image();
    taut.boot_all([("server", 101, SERVER), ("client", 102, CLIENT)].map(|(name, cid, script)| {
        let guest = guest_with(&taut, &image, name, [MAP, script], &[]);
        (name, vm_file(&guest, &format!("[vmci]\ncid = {cid}\ndomains = [\"shop\"]")))
    }));
    printed(&taut, "server", &["server: up."]);
    printed(&taut, "client", &["client: got"]);
    let log = printed(&taut, "client", &["client: done."]);
    assert!(log.contains("client: got value."), "{log}");
    let list = log.lines().find(|line| line.contains("client: id=")).unwrap_or_else(|| panic!("{log}"));
    assert!(list.contains(" addr=10.0.0.8:") && list.contains(" laddr="), "{list}");
    assert_eq!(
        log.lines().filter(|line| line.starts_with("\"SET\"") || line.starts_with("\"GET\"")).count(),
        2,
        "{log}"
    );
}

/// One guest sends small writes to another one for a second each, with and without gathering.
/// Prints the rates.
#[test]
fn small_writes_are_gathered_between_guests() {
    const MAP: &str = "10.0.0.7:* -> cid 101\n10.0.0.8:* -> cid 102\nlisten *:7000\npatience 5000 ms\n";
    const SERVER: &str = r"
LD_PRELOAD=/usr/local/lib/libtaut_vmci.so tcp_program speed server 0.0.0.0:7000
";
    const CLIENT: &str = r#"
export LD_PRELOAD=/usr/local/lib/libtaut_vmci.so
until tcp_program speed client 10.0.0.7:7000 4096 1; do sleep 0.5; done
for size in 64 256 1024; do
  for gather in 0 1; do
    echo "gather $gather: $(TAUT_VMCI_GATHER=$gather tcp_program speed client 10.0.0.7:7000 $size 1)"
  done
done
echo "client: done."
"#;
    let program = bin_dir().join("examples/tcp_program");
    for image in Image::CLOUD.into_iter().filter_map(image) {
        let taut = Taut::start();
        taut.boot_all([("server", 101, SERVER), ("client", 102, CLIENT)].map(|(name, cid, script)| {
            let guest = guest_with(&taut, &image, name, [MAP, script], std::slice::from_ref(&program));
            (name, vm_file(&guest, &format!("[vmci]\ncid = {cid}\ndomains = [\"shop\"]")))
        }));
        let log = printed(&taut, "client", &["client: done."]);
        let lines: Vec<_> =
            log.lines().filter(|line| line.contains("gather ") && line.contains("speed:")).collect();
        println!("{}:\n{}", image.display(), lines.join("\n"));
        // The server has counted the bytes, and each request was answered.
        assert_eq!(lines.len(), 6, "{log}");
        taut.ok(["vm", "stop", "client"]);
    }
}

/// The same by queue pairs: iperf3 in both directions, and Redis with a value of some megabytes.
#[test]
fn unmodified_programs_use_queue_pairs() {
    const MAP: &str = "10.0.0.7:* -> cid 103\n10.0.0.8:* -> cid 104\nlisten *\nrings on\npatience 5000 ms\n";
    const WAIT: &str = "until [ -c /dev/dax0.0 ]; do sleep 0.2; done\n\
                        export TAUT_VMCI_LOG=1 LD_PRELOAD=/usr/local/lib/libtaut_vmci.so\n";
    const SERVER: &str = r#"
redis-server --bind 0.0.0.0 --protected-mode no --save "" &
iperf3 -s -p 5201 &
echo "server: up."
"#;
    const CLIENT: &str = r#"
until redis-cli -h 10.0.0.7 ping && iperf3 -c 10.0.0.7 -p 5201 -n 1K; do sleep 0.5; done
for how in "" -R --bidir; do iperf3 -c 10.0.0.7 -p 5201 -n 64M -l 128K $how && echo "iperf3: ended $how."; done
redis-cli -h 10.0.0.7 -x set big </bin/redis-server
{ cat /bin/redis-server; echo; } | sha1sum
redis-cli -h 10.0.0.7 --raw get big | sha1sum
redis-benchmark -h 10.0.0.7 -n 5000 -c 20 -t set,get --csv
echo "client: done."
"#;
    let taut = Taut::start();
    let image = any_image();
    let programs = ["/usr/bin/iperf3", "/usr/bin/sha1sum"].map(PathBuf::from);
    let vms = [("rings-server", 103, SERVER), ("rings-client", 104, CLIENT)];
    taut.boot_all(vms.map(|(name, cid, script)| {
        let script = format!("{WAIT}{script}");
        let guest = guest_with(&taut, &image, name, [MAP, &script], &programs);
        let vmci = format!("[vmci]\nqueue_pairs = \"16MiB\"\ncid = {cid}\ndomains = [\"rings\"]");
        (name, vm_file(&guest, &vmci))
    }));
    printed(&taut, "rings-server", &["server: up."]);
    let log = printed(&taut, "rings-client", &["client: done."]);
    assert!(log.contains(": in channel "), "{log}");
    assert!(taut.ok(["vm", "log", "rings-server"]).contains(": in channel "));
    for how in ["", "-R", "--bidir"] {
        assert!(log.contains(&format!("iperf3: ended {how}.")), "{how}: {log}");
    }
    let sums: Vec<&str> = log.lines().filter_map(|line| line.trim().strip_suffix("  -")).collect();
    assert!(matches!(sums[..], [sent, got] if sent == got), "{sums:?}: {log}");
    let results = log.lines().filter(|line| line.starts_with("\"SET\"") || line.starts_with("\"GET\""));
    assert_eq!(results.count(), 2, "{log}");
}
