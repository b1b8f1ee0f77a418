//! Documents of the API: VM files, changes and networks as JSON, and quantities as text.
//!
//! Input: 1 byte for the kind, then the text. A VM file: see `vm_file`.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use taut_api::coalescing::{Coalescing, NicCoalescing};
use taut_api::network::{ExternalPortSpec, NetnsSpec, PortGroupSpec};
use taut_api::passthrough::PciAddress;
use taut_api::patch::{Domains, VmPatch};
use taut_api::placement::Numbers;
use taut_api::resources::{CpuReservation, MemoryReservation};
use taut_api::route::{ChangeHostSettings, CreateVm, SetPower, VmFormat};
use taut_api::shaping::Shape;
use taut_api::shares::{CpuLimit, MemoryLimit, Shares};
use taut_api::tune::TuneThreshold;
use taut_api::units::BitRate;
use taut_api::vm::VmDesired;
use taut_api::{Bytes, MacAddr, Name, QueuePairs, Vlan};

use crate::input::Input;
use crate::vm_file::read_within_rules;
use crate::{Budget, Target};

/// This target.
pub const TARGET: Target = Target { name: "document", run, budget: Budget::of(50, 4) };

fn run(data: &[u8]) {
    let mut input = Input(data);
    let kind = input.u8();
    let text = String::from_utf8_lossy(input.0);
    match kind % 32 {
        0 => json::<VmPatch>(&text),
        1 => json::<VmDesired>(&text),
        2 => json::<CreateVm>(&text),
        3 => json::<PortGroupSpec>(&text),
        4 => json::<NetnsSpec>(&text),
        5 => json::<ExternalPortSpec>(&text),
        6 => json::<ChangeHostSettings>(&text),
        7 => json::<SetPower>(&text),
        8 => quantity::<Bytes>(&text),
        9 => quantity::<BitRate>(&text),
        10 => quantity::<Vlan>(&text),
        11 => quantity::<MacAddr>(&text),
        12 => quantity::<Name>(&text),
        13 => quantity::<Numbers>(&text),
        14 => quantity::<Coalescing>(&text),
        15 => quantity::<NicCoalescing>(&text),
        16 => quantity::<Shares>(&text),
        17 => quantity::<CpuLimit>(&text),
        18 => quantity::<MemoryLimit>(&text),
        19 => quantity::<CpuReservation>(&text),
        20 => quantity::<MemoryReservation>(&text),
        21 => quantity::<QueuePairs>(&text),
        22 => quantity::<PciAddress>(&text),
        23 => quantity::<TuneThreshold>(&text),
        24 => _ = text.parse::<Domains>(),
        25 => shape(&text),
        _ => _ = read_within_rules(input.0, VmFormat::Toml),
    }
}

/// Reads a document. What is accepted is written and read unchanged.
fn json<T: Serialize + DeserializeOwned + Debug + PartialEq>(text: &str) {
    let Ok(document) = serde_json::from_str::<T>(text) else { return };
    let again = serde_json::to_string(&document).expect("a document that was read can be written");
    assert_eq!(serde_json::from_str::<T>(&again).expect("and read"), document);
}

/// Reads a quantity. What is accepted is written and read unchanged; an error says something.
fn quantity<T: FromStr<Err: Display> + Display + Debug + PartialEq>(text: &str) {
    match text.parse::<T>() {
        Ok(quantity) => match quantity.to_string().parse::<T>() {
            Ok(again) => assert_eq!(again, quantity),
            Err(error) => panic!("{quantity:?} is written as `{quantity}`: {error}"),
        },
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn shape(text: &str) {
    if let Ok(shape) = text.parse::<Shape>() {
        assert!(shape.check().is_ok());
    }
}
