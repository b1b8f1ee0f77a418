//! A VM file in either format: what the reader accepts keeps the rules of a document.
//!
//! Input: 1 byte that tells whether there is a name and a port group, then the text.

use taut_api::error::ErrorKind;
use taut_api::route::{CreateVm, VmFormat};
use taut_api::vm::{Power, VmSpec};
use taut_vm::definition::{check_changed, parse};
use taut_vm::parsed::Parsed;

use crate::input::Input;

/// Reads a file and checks the result. Returns text and result if it is accepted.
pub(crate) fn read_within_rules(data: &[u8], format: VmFormat) -> Option<(String, Parsed)> {
    let mut input = Input(data);
    let bits = input.u8();
    let name = |bit: u8, name: &str| (bits & bit != 0).then(|| name.parse().expect("a name"));
    let request = CreateVm {
        name: name(1, "vm1"),
        format,
        text: String::from_utf8_lossy(input.0).into_owned(),
        base_dir: "/vms".to_owned(),
        power: Power::default(),
        default_portgroup: name(2, "lan"),
    };
    let parsed = match parse(&request) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(!error.message.is_empty() && !error.hint.is_empty(), "{error:?}");
            return None;
        }
    };
    check(&parsed);
    Some((request.text, parsed))
}

fn check(parsed: &Parsed) {
    let spec = &parsed.spec;
    assert!(check_changed(spec).is_ok(), "a new document would be refused as a changed one");
    let boot = spec.boot.iter().flat_map(|boot| [Some(&boot.kernel), boot.initrd.as_ref()]).flatten();
    let paths: Vec<_> = boot.chain(spec.disk.iter().map(|disk| &disk.path)).collect();
    assert!(paths.iter().all(|path| path.starts_with('/')), "{paths:?}");
    assert!(parsed.name.is_none() || spec.nics.iter().all(|nic| nic.mac.is_some()));
    let text = serde_json::to_string(spec).expect("a document that was read can be written");
    assert_eq!(serde_json::from_str::<VmSpec>(&text).expect("and read"), *spec);
}
