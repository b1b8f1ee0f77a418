//! VC-G10: clients on the host that were made for Firecracker and Cloud Hypervisor: socat both
//! ways, a program that speaks the handshake itself, and SSH by a proxy command. The guest is
//! Debian's kernel with this system's socat and dropbear.

use std::path::PathBuf;

use super::guests::start_daemon;
use crate::figure::Bound;
use crate::lab::{Contents, Lab, NEWEST};
use crate::machine::Command;
use crate::reason::{Measured, require};
use crate::row::{Goal, Results, Row};

/// Bytes that are sent and come back.
const BYTES: usize = 4_000_000;

const BACK: &[Bound] = &[Bound::Exactly(4_000_000.0, "bytes there and back")];

/// What the guest runs.
const GUEST: &str = r#"socat VSOCK-LISTEN:5000,fork,reuseaddr EXEC:cat &
if [ -e /bin/dropbear ]; then
  mkdir -p /etc/dropbear /root
  echo 'root::0:0:root:/root:/bin/sh' >/etc/passwd
  echo /bin/sh >/etc/shells
  dropbearkey -t ed25519 -f /etc/dropbear/key >/dev/null 2>&1
  socat VSOCK-LISTEN:22,fork,reuseaddr EXEC:'dropbear -i -B -r /etc/dropbear/key' &
fi
until echo hello | socat -u - VSOCK-CONNECT:2:6000 2>/dev/null; do sleep 0.5; done
head -c 4000000 /dev/zero | socat -t 10 - VSOCK-CONNECT:2:6001 >/tmp/back
tr -d '\000' </tmp/back | wc -c >/tmp/wrong
echo "guest: $(wc -c </tmp/back) bytes, $(cat /tmp/wrong) wrong."
"#;

/// A program that speaks the handshake. It prints 1 for each step that is as it should be.
const PROGRAM: &str = r#"
import socket, sys
client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
client.connect(sys.argv[1])
client.sendall(b"CONNECT 5000\n")
answer = b""
while not answer.endswith(b"\n"):
    part = client.recv(1)
    if not part:
        break
    answer += part
client.sendall(b"ping")
client.shutdown(socket.SHUT_WR)
reply = b""
while part := client.recv(4096):
    reply += part
refused = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
refused.connect(sys.argv[1])
refused.sendall(b"CONNECT 4999\n")
print("connected", int(answer.startswith(b"OK ") and int(answer[3:]) >= 1024), end=", ")
print("echoed", int(reply == b"ping"), end=", ")
print("refused", int(refused.recv(64) == b""), end=".\n")
"#;

pub(super) const ROW: Row = Row {
    id: "VC-G10",
    what: "clients made for Firecracker and Cloud Hypervisor",
    on: "a QEMU guest with Debian's newest kernel",
    goals: &[
        Goal::new("VC-G10-guest-to-host", BACK),
        Goal::new("VC-G10-socat", BACK),
        Goal::new("VC-G10-program", &[Bound::Exactly(3.0, "steps right: connected, echoed, refused")]),
        Goal::new("VC-G10-ssh", &[Bound::Exactly(42.0, "from the guest's shell")]),
    ],
    run,
};

fn run(lab: &mut Lab, results: &mut Results) -> Measured<()> {
    for program in ["socat", "python3"] {
        lab.tool(program)?;
    }
    start_guest(lab)?;
    let socket = lab.vm_show("g10")?.text("status.vmci.socket")?;
    let outcome = guest_to_host(lab, results, &socket);
    results.settle(&["VC-G10-guest-to-host"], outcome);
    let outcome = host_to_guest(lab, results, &socket);
    results.settle(&["VC-G10-socat"], outcome);
    let outcome = handshake(lab, results, &socket);
    results.settle(&["VC-G10-program"], outcome);
    ssh(lab, results, &socket)
}

fn start_guest(lab: &mut Lab) -> Measured<()> {
    let mut programs: Vec<PathBuf> = ["socat", "head", "tr", "wc"].map(PathBuf::from).to_vec();
    if lab.tool("dropbear").is_ok() {
        programs.push("mkdir".into());
        programs.extend(["dropbear", "dropbearkey"].into_iter().filter_map(|name| lab.tool(name).ok()));
    }
    let contents = Contents { script: GUEST, programs, ..Contents::default() };
    let boot = lab.extend_image(NEWEST, "g10", &contents)?;
    start_daemon(lab, "")?;
    lab.start_vm("g10", &format!("memory = \"512MiB\"\n{boot}[vmci]\n"))
}

/// The guest connects to listeners on the host.
fn guest_to_host(lab: &mut Lab, results: &mut Results, socket: &str) -> Measured<()> {
    let hello = lab.folder().join("g10/hello");
    let to = format!("OPEN:{},creat,append", hello.display());
    let mut listeners = Vec::new();
    for (port, to) in [(6000, to), (6001, "EXEC:cat".to_owned())] {
        let listen = format!("UNIX-LISTEN:{socket}_{port},fork");
        let command = Command::new("socat").arg(listen).arg(to).session().record("socat-listener");
        listeners.push(lab.start(&command)?);
    }
    lab.until("the guest has its bytes back", 120, |lab| {
        Ok(lab.taut("vm log g10")?.stdout.contains("guest: "))
    })?;
    let log = lab.taut_command("vm log g10").record("log");
    let log = lab.run(&log)?.stdout;
    let (back, wrong) =
        (log.number_between("guest: ", " bytes")?, log.number_between(" bytes, ", " wrong.")?);
    for listener in listeners {
        lab.end(&listener);
    }
    results.record("VC-G10-guest-to-host", [back - wrong], "socat in the guest to socat on the host");
    Ok(())
}

/// socat on the host connects to socat in the guest, with the handshake by hand.
fn host_to_guest(lab: &mut Lab, results: &mut Results, socket: &str) -> Measured<()> {
    let sent = text(BYTES);
    let command = Command::new("socat")
        .args("-t 30 -")
        .arg(format!("UNIX-CONNECT:{socket}"))
        .input(&format!("CONNECT 5000\n{sent}"))
        .limit(120)
        .record("socat");
    let received = lab.run(&command)?.stdout;
    let (answer, back) = received.as_str().split_once('\n').unwrap_or_default();
    require(
        answer.starts_with("OK ") || lab.machine().takes_for_granted(),
        format!("the device answered `{answer}`"),
    )?;
    let same = alike(sent.as_bytes(), back.as_bytes());
    let extra = back.len().saturating_sub(sent.len());
    results.record("VC-G10-socat", [(same + extra) as f64], "socat on the host to socat in the guest");
    Ok(())
}

fn handshake(lab: &mut Lab, results: &mut Results, socket: &str) -> Measured<()> {
    let command = Command::new("python3").arg("-c").arg(PROGRAM).arg(socket).limit(120).record("handshake");
    let said = lab.run(&command)?.stdout;
    let steps = [("connected ", ","), ("echoed ", ","), ("refused ", ".")];
    let right: Measured<Vec<f64>> =
        steps.iter().map(|(before, after)| said.number_between(before, after)).collect();
    results.record("VC-G10-program", [right?.iter().sum::<f64>()], "a program that speaks the handshake");
    Ok(())
}

fn ssh(lab: &mut Lab, results: &mut Results, socket: &str) -> Measured<()> {
    for program in ["dropbear", "ssh"] {
        lab.tool(program)?;
    }
    let proxy = lab.folder().join("g10/proxy");
    let script = format!(
        "{{ printf 'CONNECT 22\\n'; cat; }} | socat - 'UNIX-CONNECT:{socket}' | {{ read -r ok; cat; }}\n"
    );
    lab.machine().write(&proxy, &script)?;
    let command = Command::new("ssh")
        .arg("-o")
        .arg(format!("ProxyCommand=sh {}", proxy.display()))
        .args("-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null")
        .args("-o PreferredAuthentications=none,password root@g10")
        .arg("echo answer $((6 * 7)).")
        .limit(120)
        .record("ssh");
    let answer = lab.run(&command)?.stdout.number_between("answer ", ".")?;
    results.record("VC-G10-ssh", [answer], "ssh with a proxy command");
    Ok(())
}

/// Length of the text's period, which no buffer's size is a multiple of.
const PERIOD: usize = 3989;

/// A text of so many bytes.
fn text(size: usize) -> String {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(b'a' + (state >> 24) as u8 % 26)
    };
    let period: String = (0..PERIOD).map(|_| next()).collect();
    let mut text = period.repeat(size.div_ceil(PERIOD));
    text.truncate(size);
    text
}

/// Number of bytes at the beginning that are alike.
fn alike(sent: &[u8], back: &[u8]) -> usize {
    sent.iter().zip(back).take_while(|(sent, back)| sent == back).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_ends_what_is_alike() {
        let sent = text(1000);
        assert_eq!(alike(sent.as_bytes(), sent.as_bytes()), 1000);
        let mut back = sent.clone().into_bytes();
        back[500] = b'0';
        assert_eq!(alike(sent.as_bytes(), &back), 500);
        assert_eq!(alike(sent.as_bytes(), &back[..300]), 300);
    }
}
