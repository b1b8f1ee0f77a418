//! `taut vm log`: the log of the serial console, or why it is empty.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use taut_api::route::Vm;

use super::without;
use crate::commands::console;
use crate::output::{Format, Outcome};

/// Prints the log. Says on standard error if there is nothing in it.
pub(super) fn print(vm: &Vm, follow: bool, format: Format) -> Outcome {
    let log = vm.status.console_log.as_ref().ok_or_else(|| without(vm, "console log"))?;
    let log = Path::new(log);
    if format == Format::Table && log.metadata().is_ok_and(|log| log.len() == 0) {
        eprintln!("{}", silence(vm));
    }
    console::log(log, follow, format)
}

/// Says why the console may be silent.
fn silence(vm: &Vm) -> String {
    let spec = &vm.spec.vm;
    let nothing = format!("{}: the guest has written nothing to its serial console yet", vm.name);
    match (&spec.boot, &spec.disk) {
        (None, None) => format!("{nothing}; it has neither a kernel nor a disk, so it has nothing to boot"),
        (None, Some(disk)) if is_empty(Path::new(&disk.path)) => {
            format!("{nothing}; its disk {} is empty, so it has nothing to boot", disk.path)
        }
        _ => format!("{nothing}; Linux does so with `console=ttyS0` on its kernel command line"),
    }
}

/// Returns whether nothing was ever written to an image.
fn is_empty(image: &Path) -> bool {
    image.metadata().is_ok_and(|image| image.is_file() && image.blocks() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(spec: &serde_json::Value) -> String {
        let status = serde_json::json!({ "phase": "running" });
        let vm = serde_json::json!({ "name": "db1", "revision": 1, "spec": spec, "status": status });
        silence(&serde_json::from_value(vm).unwrap())
    }

    #[test]
    fn a_guest_without_anything_to_boot_is_told_from_one_that_is_silent() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        let disk = serde_json::json!({ "disk": { "path": image } });
        std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
        assert!(said(&disk).ends_with("disk.img is empty, so it has nothing to boot"), "{}", said(&disk));
        std::fs::write(&image, "a boot sector").unwrap();
        assert!(said(&disk).ends_with("`console=ttyS0` on its kernel command line"), "{}", said(&disk));
        let none = said(&serde_json::json!({}));
        assert_eq!(
            none,
            "db1: the guest has written nothing to its serial console yet; it has neither a kernel nor a \
             disk, so it has nothing to boot"
        );
    }
}
