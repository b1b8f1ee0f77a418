//! The ACPI power button, which the host presses to end the guest.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;

use rustix::system::{RebootCommand, reboot};

use crate::patience::eventually;

/// `EV_KEY` and `KEY_POWER` of the kernel's input events.
const KEY: u16 = 1;
const POWER: u16 = 116;
const PRESSED: i32 = 1;
/// `struct input_event`: two 64-bit words of time, type, code, value.
const EVENT: usize = 24;

/// Waits until the button is pressed, then powers the guest off.
pub(super) fn watch_button() -> io::Result<()> {
    let mut button = File::open(eventually(find, "the power button")?)?;
    loop {
        let mut event = [0; EVENT];
        button.read_exact(&mut event)?;
        if is_power_press(&event) {
            println!("taut guest: power button");
            rustix::fs::sync();
            reboot(RebootCommand::PowerOff)?;
        }
    }
}

/// Returns the input device that the kernel calls "Power Button".
fn find() -> io::Result<Option<PathBuf>> {
    let Ok(devices) = fs::read_dir("/sys/class/input") else { return Ok(None) };
    for device in devices {
        let device = device?;
        let name = fs::read_to_string(device.path().join("device/name")).unwrap_or_default();
        let file = PathBuf::from("/dev/input").join(device.file_name());
        if name.trim() == "Power Button" && file.exists() {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

fn is_power_press(event: &[u8; EVENT]) -> bool {
    let half = |at: usize| u16::from_ne_bytes([event[at], event[at + 1]]);
    let value = i32::from_ne_bytes([event[20], event[21], event[22], event[23]]);
    (half(16), half(18), value) == (KEY, POWER, PRESSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_press_of_the_power_key_counts() {
        let mut event = [0; EVENT];
        event[16..18].copy_from_slice(&KEY.to_ne_bytes());
        event[18..20].copy_from_slice(&POWER.to_ne_bytes());
        assert!(!is_power_press(&event), "a release");
        event[20..24].copy_from_slice(&PRESSED.to_ne_bytes());
        assert!(is_power_press(&event));
        event[18] = 30;
        assert!(!is_power_press(&event), "another key");
    }
}
