//! Tests whether KVM runs guest code on this host, and at the speed of the hardware.
//!
//! Opening `/dev/kvm` is no proof: some hosts, mostly nested ones, create VMs and then run their
//! code by instruction emulation. There firmware starts, but an operating system does not. The
//! probe therefore starts a vCPU that enters 64-bit mode with paging, as an operating system does,
//! and counts down a loop. Hardware takes a tenth of a second for the loop, an instruction emulator
//! takes minutes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use taut_api::host::{Accelerator, AcceleratorKind, QemuInfo};

/// Time limit of the probe guest, including the start of QEMU. Hardware needs a fraction of a
/// second.
const DEADLINE: Duration = Duration::from_secs(3);

/// Number of turns of the probe guest's loop (the operand at `CODE[0xa0]`).
const TURNS: u32 = 200_000_000;

/// Exit status of QEMU after the guest wrote [`DONE`] to the exit device: `2 × value + 1`.
const DONE_STATUS: i32 = 2 * DONE as i32 + 1;
const DONE: u8 = 0x10;

/// The probe guest, placed at 0xf_0000 and 0xffff_0000.
#[rustfmt::skip]
const CODE: [u8; 0xd6] = [
    // 16-bit: load the descriptor table, enter protected mode.
    0xfa,                                       // 00 cli
    0xbb, 0xd0, 0x00,                           // 01 mov  $gdtr, %bx
    0x2e, 0x66, 0x0f, 0x01, 0x17,               // 04 lgdtl %cs:(%bx)
    0x0f, 0x20, 0xc0,                           // 09 mov  %cr0, %eax
    0x0c, 0x01,                                 // 0c or   $1, %al
    0x0f, 0x22, 0xc0,                           // 0e mov  %eax, %cr0
    0x66, 0xea, 0x19, 0x00, 0xff, 0xff, 0x08, 0x00, // 11 ljmpl $8, $0xffff0019
    // 32-bit: page tables at 0x1000 that map the first 4 GiB to themselves in 2 MiB pages.
    0x66, 0xb8, 0x10, 0x00,                     // 19 mov  $0x10, %ax
    0x8e, 0xd8,                                 // 1d mov  %ax, %ds
    0x8e, 0xc0,                                 // 1f mov  %ax, %es
    0xbf, 0x00, 0x10, 0x00, 0x00,               // 21 mov  $0x1000, %edi
    0x31, 0xc0,                                 // 26 xor  %eax, %eax
    0xb9, 0x00, 0x18, 0x00, 0x00,               // 28 mov  $0x1800, %ecx
    0xf3, 0xab,                                 // 2d rep stosl
    0xc7, 0x05, 0x00, 0x10, 0x00, 0x00, 0x03, 0x20, 0x00, 0x00, // 2f movl $0x2003, 0x1000
    0xbf, 0x00, 0x20, 0x00, 0x00,               // 39 mov  $0x2000, %edi
    0xb8, 0x03, 0x30, 0x00, 0x00,               // 3e mov  $0x3003, %eax
    0xb9, 0x04, 0x00, 0x00, 0x00,               // 43 mov  $4, %ecx
    0x89, 0x07,                                 // 48 mov  %eax, (%edi)
    0x05, 0x00, 0x10, 0x00, 0x00,               // 4a add  $0x1000, %eax
    0x83, 0xc7, 0x08,                           // 4f add  $8, %edi
    0xe2, 0xf4,                                 // 52 loop 48
    0xbf, 0x00, 0x30, 0x00, 0x00,               // 54 mov  $0x3000, %edi
    0xb8, 0x83, 0x00, 0x00, 0x00,               // 59 mov  $0x83, %eax
    0xb9, 0x00, 0x08, 0x00, 0x00,               // 5e mov  $2048, %ecx
    0x89, 0x07,                                 // 63 mov  %eax, (%edi)
    0x05, 0x00, 0x00, 0x20, 0x00,               // 65 add  $0x200000, %eax
    0x83, 0xc7, 0x08,                           // 6a add  $8, %edi
    0xe2, 0xf4,                                 // 6d loop 63
    // Long mode: physical address extension, the tables, EFER.LME, paging.
    0xb8, 0x20, 0x00, 0x00, 0x00,               // 6f mov  $0x20, %eax
    0x0f, 0x22, 0xe0,                           // 74 mov  %eax, %cr4
    0xb8, 0x00, 0x10, 0x00, 0x00,               // 77 mov  $0x1000, %eax
    0x0f, 0x22, 0xd8,                           // 7c mov  %eax, %cr3
    0xb9, 0x80, 0x00, 0x00, 0xc0,               // 7f mov  $0xc0000080, %ecx
    0x0f, 0x32,                                 // 84 rdmsr
    0x0d, 0x00, 0x01, 0x00, 0x00,               // 86 or   $0x100, %eax
    0x0f, 0x30,                                 // 8b wrmsr
    0x0f, 0x20, 0xc0,                           // 8d mov  %cr0, %eax
    0x0d, 0x00, 0x00, 0x00, 0x80,               // 90 or   $0x80000000, %eax
    0x0f, 0x22, 0xc0,                           // 95 mov  %eax, %cr0
    0xea, 0x9f, 0x00, 0xff, 0xff, 0x18, 0x00,   // 98 ljmpl $0x18, $0xffff009f
    // 64-bit: the loop, then the exit device.
    0xb9, 0x00, 0xc2, 0xeb, 0x0b,               // 9f mov  $200000000, %ecx
    0x48, 0xff, 0xc9,                           // a4 dec  %rcx
    0x75, 0xfb,                                 // a7 jnz  a4
    0xb0, DONE,                                 // a9 mov  $DONE, %al
    0xe6, 0xf4,                                 // ab out  %al, $0xf4
    0xf4,                                       // ad hlt
    0xeb, 0xfd,                                 // ae jmp  ad
    // b0: descriptors: null, 32-bit code, data, 64-bit code.
    0, 0, 0, 0, 0, 0, 0, 0,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9b, 0xcf, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x93, 0xcf, 0x00,
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9b, 0xaf, 0x00,
    // d0: size and address of the table.
    0x1f, 0x00, 0xb0, 0x00, 0xff, 0xff,
];

/// The first instruction of the processor: `ljmp $0xf000, $0`.
const RESET: [u8; 5] = [0xea, 0x00, 0x00, 0x00, 0xf0];
const RESET_AT: usize = 0xfff0;
const ROM_SIZE: usize = 0x1_0000;

/// Finds the accelerator of this host by running a probe guest. Takes up to three seconds, so
/// callers should keep the answer. When `stop` is set, the guest is killed and the answer is
/// meaningless.
pub fn accelerator(qemu: &QemuInfo, stop: &AtomicBool) -> Accelerator {
    match try_kvm(Path::new(&qemu.path), stop) {
        Ok(took) => Accelerator {
            kind: AcceleratorKind::Kvm,
            why: format!(
                "KVM runs guests at the processor's speed: a test guest ({} million loop turns in 64-bit \
                 mode) took {} ms, including the start of QEMU",
                TURNS / 1_000_000,
                took.as_millis()
            ),
        },
        Err(why) => Accelerator { kind: AcceleratorKind::Tcg, why },
    }
}

/// Runs the probe guest under KVM. Returns the time that it took, or the reason why KVM does not
/// work.
fn try_kvm(qemu: &Path, stop: &AtomicBool) -> Result<Duration, String> {
    let device = Path::new("/dev/kvm");
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open(device) {
        return Err(format!("cannot open /dev/kvm: {error}"));
    }
    run(qemu, &["-accel", "kvm", "-cpu", "host"], DEADLINE, stop)
}

/// Runs the probe guest with the given options for the accelerator.
fn run(qemu: &Path, accelerator: &[&str], deadline: Duration, stop: &AtomicBool) -> Result<Duration, String> {
    let rom = rom_file().map_err(|error| format!("cannot write the probe guest: {error}"))?;
    let start = Instant::now();
    let mut child = child_of(std::process::id(), qemu)
        .args(accelerator)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-m", "16"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=1", "-no-reboot", "-bios"])
        .arg(format!("/proc/{}/fd/{}", std::process::id(), rom.as_raw_fd()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("QEMU does not start: {error}"))?;
    let ended = wait(&mut child, start + deadline, stop);
    let took = start.elapsed();
    match ended {
        Some(status) if status.code() == Some(DONE_STATUS) => Ok(took),
        Some(status) => Err(format!("KVM does not run guests: {}", last_words(&mut child, status))),
        None => Err(format!(
            "KVM is emulated here, as on some hosts that are VMs themselves: a test guest that takes a tenth \
             of a second on hardware ({} million loop turns) had not ended after {} s",
            TURNS / 1_000_000,
            deadline.as_secs()
        )),
    }
}

/// Shell script that executes its remaining arguments if its parent process has the ID in its first
/// argument.
const UNLESS_ORPHANED: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// A command that is killed when the thread that starts it ends. The thread belongs to process
/// `parent`. Otherwise a guest that never ends would outlive a killed daemon.
///
/// The command needs `setpriv` of util-linux; without it, the guest may outlive the daemon. If the
/// daemon is killed before `setpriv` has taken effect, it is no longer the parent of the shell, and
/// the shell does not start the program.
fn child_of(parent: u32, program: &Path) -> Command {
    let Some(setpriv) = super::find("setpriv") else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--", "/bin/sh", "-c", UNLESS_ORPHANED]);
    command.arg(parent.to_string()).arg(program);
    command
}

/// Waits for the exit status; `None` if the child was killed at the deadline or because of `stop`.
fn wait(child: &mut Child, deadline: Instant, stop: &AtomicBool) -> Option<ExitStatus> {
    while Instant::now() < deadline && !stop.load(Ordering::Relaxed) {
        match child.try_wait() {
            Ok(None) => sleep(Duration::from_millis(5)),
            Ok(status) => return status,
            Err(_) => break,
        }
    }
    // An error means that the child ended in the meantime.
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// The first line of QEMU's error output, or its exit status.
fn last_words(child: &mut Child, status: ExitStatus) -> String {
    let mut said = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let _ = stderr.take(4096).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    match (said.lines().find(|line| !line.trim().is_empty()), status.signal()) {
        (Some(line), _) => line.trim().to_owned(),
        (None, Some(signal)) => format!("QEMU was killed by signal {signal}"),
        (None, None) => format!("QEMU ended with {status}"),
    }
}

/// Writes the probe guest as a firmware image to a file without a name, which is never left behind.
fn rom_file() -> std::io::Result<File> {
    let mut rom = vec![0; ROM_SIZE];
    rom[..CODE.len()].copy_from_slice(&CODE);
    rom[RESET_AT..RESET_AT + RESET.len()].copy_from_slice(&RESET);
    let mut file = File::from(rustix::fs::memfd_create("taut-probe", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(&rom)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_counts_the_turns_that_the_messages_name() {
        assert_eq!(CODE[0xa0..0xa4], TURNS.to_le_bytes());
    }

    /// The result of `run` for a QEMU that is this shell script.
    fn outcome(script: &str, deadline: Duration) -> Result<Duration, String> {
        run(Path::new("/bin/sh"), &["-c", script], deadline, &AtomicBool::new(false))
    }

    #[test]
    fn only_the_status_of_the_exit_device_is_success() {
        let ample = Duration::from_secs(60);
        assert!(outcome("exit 33", ample).is_ok());
        assert_eq!(
            outcome("echo 'no such luck' >&2; exit 1", ample).unwrap_err(),
            "KVM does not run guests: no such luck"
        );
        assert!(outcome("exit 0", ample).unwrap_err().contains("exit status: 0"));
        assert!(outcome("kill -6 $$", ample).unwrap_err().contains("signal 6"));
    }

    #[test]
    fn a_guest_that_is_too_slow_is_killed_and_reported() {
        let why = outcome("exec sleep 600", Duration::from_millis(20)).unwrap_err();
        assert!(why.starts_with("KVM is emulated here"), "{why}");
    }

    #[test]
    fn a_stopped_probe_kills_its_guest() {
        let hour = Duration::from_secs(3600);
        let stopped = AtomicBool::new(true);
        assert!(run(Path::new("/bin/sh"), &["-c", "exec sleep 7200"], hour, &stopped).is_err());
    }

    #[test]
    fn a_guest_is_not_started_without_its_parent() {
        let mut there = child_of(std::process::id(), Path::new("/bin/sh"));
        assert_eq!(there.args(["-c", "exit 5"]).status().unwrap().code(), Some(5));
        let mut gone = child_of(std::process::id() + 1, Path::new("/bin/sh"));
        assert_eq!(gone.args(["-c", "exit 5"]).status().unwrap().code(), Some(1));
    }
}
