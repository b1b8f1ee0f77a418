//! A QEMU whose vCPUs never rest, started as a program other than taut would start it.

use std::path::Path;
use std::process::Command;

use crate::Background;

/// Memory of the machine.
const MEMORY: &str = "32M";
/// Place of the first sector in memory, by which its addresses are counted.
const ORIGIN: u16 = 0x7c00;
/// Place of the code of the other vCPUs: page 7, as the interrupt that starts them says.
const OTHERS: u16 = 0x7000;
/// A jump to itself.
const SPIN: [u8; 2] = [0xeb, 0xfe];

/// Starts a machine with so many vCPUs on pCPU 0. All of them jump in place. Its disk is a file in
/// this folder.
///
/// # Panics
/// If QEMU is not installed.
pub fn busy_machine(folder: &Path, name: &str, vcpus: u32) -> Background {
    let disk = folder.join(format!("{name}.img"));
    std::fs::write(&disk, sector()).expect("the test's folder can be written");
    let drive = format!("file={},format=raw", disk.display());
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-m", MEMORY]);
    command.args(["-smp", &vcpus.to_string(), "-display", "none", "-drive", &drive, "-nodefaults"]);
    command.args(["-name", &format!("guest={name},debug-threads=on")]);
    Background::start(&mut command)
}

/// Returns the boot sector: the first vCPU enters protected mode, in which it reaches its interrupt
/// controller (APIC), starts all others, and jumps in place.
fn sector() -> Vec<u8> {
    let [low, high] = OTHERS.to_le_bytes();
    // cli; xor ax, ax; mov ds, ax; mov word [OTHERS], SPIN
    let mut code = vec![0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0xc7, 0x06, low, high, SPIN[0], SPIN[1]];
    // lgdt [table]; mov eax, cr0; or al, 1; mov cr0, eax; jmp 8:protected
    let lgdt = code.len() + 3;
    code.extend([0x0f, 0x01, 0x16, 0, 0, 0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f, 0x22, 0xc0]);
    let jump = code.len() + 1;
    code.extend([0xea, 0, 0, 0x08, 0x00]);
    let protected = code.len();
    // mov ax, 16; mov ds, eax
    code.extend([0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd8]);
    // mov dword [0xfee00300], INIT to all others; wait
    code.extend([0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x00, 0x45, 0x0c, 0x00]);
    code.extend([0xb9, 0x80, 0x96, 0x98, 0x00, 0xe2, 0xfe]);
    // mov dword [0xfee00300], STARTUP of page 7 to all others
    code.extend([0xc7, 0x05, 0x00, 0x03, 0xe0, 0xfe, 0x07, 0x46, 0x0c, 0x00]);
    code.extend(SPIN);
    let table = code.len();
    // Descriptors: none; code and data, each of 4 GiB.
    code.extend([0; 8]);
    code.extend([0xff, 0xff, 0, 0, 0, 0x9a, 0xcf, 0]);
    code.extend([0xff, 0xff, 0, 0, 0, 0x92, 0xcf, 0]);
    let pointer = code.len();
    code.extend(23_u16.to_le_bytes());
    let address = |at: usize| ORIGIN + u16::try_from(at).expect("a sector is short");
    code.extend(u32::from(address(table)).to_le_bytes());
    code[lgdt..lgdt + 2].copy_from_slice(&address(pointer).to_le_bytes());
    code[jump..jump + 2].copy_from_slice(&address(protected).to_le_bytes());
    code.resize(510, 0);
    code.extend([0x55, 0xaa]);
    code
}
