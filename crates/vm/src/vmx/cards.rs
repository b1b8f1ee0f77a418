//! `ethernetN.*`: virtual network cards.

use taut_api::coalescing::NicCoalescing;
use taut_api::link::WantedLink;
use taut_api::network_io::NetworkAllocation;
use taut_api::shaping::OwnShaping;
use taut_api::vm::{NicModel, NicSpec, Rings};
use taut_api::{ApiError, Coalescing, MacAddr, Name, QueuePairs};

use super::file::{VmxFile, shortened};
use super::machine::usable_name;
use crate::error::invalid;

/// Reads the cards that are present, in their order.
pub(super) fn read(file: &mut VmxFile, default_portgroup: Option<&Name>) -> Result<Vec<NicSpec>, ApiError> {
    let mut nics = Vec::new();
    for number in file.numbers("ethernet") {
        let card = Card { prefix: format!("ethernet{number}"), field: format!("nic[{}]", nics.len()) };
        if file.is_true(&card.key("present")) {
            nics.push(card.read(file, default_portgroup)?);
        } else {
            file.report_all(&card.key(""), "the card is not present");
        }
    }
    Ok(nics)
}

/// The prefix of a card's keys in the file, and its field in the spec.
struct Card {
    prefix: String,
    field: String,
}

impl Card {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.field)
    }

    fn read(&self, file: &mut VmxFile, default_portgroup: Option<&Name>) -> Result<NicSpec, ApiError> {
        file.understood(&self.key("present"), &self.field);
        Ok(NicSpec {
            portgroup: self.portgroup(file, default_portgroup)?,
            link: self.link(file),
            mac: self.mac(file)?,
            model: self.model(file),
            ip: None,
            gateway: None,
            rings: Rings::default(),
            offloads: true,
            queues: QueuePairs::default(),
            shaping: OwnShaping::default(),
            uplink_allocation: NetworkAllocation::default(),
            coalescing: self.coalescing(file),
            lro: None,
        })
    }

    /// Reads whether the card is connected when the VM starts.
    fn link(&self, file: &mut VmxFile) -> WantedLink {
        let key = self.key("startconnected");
        if file.get(&key).is_none() {
            return WantedLink::Up;
        }
        file.understood(&key, self.field("link"));
        if file.is_true(&key) { WantedLink::Up } else { WantedLink::Down }
    }

    /// Reads interrupt coalescing. It takes effect once the card's model is virtio: QEMU interrupts
    /// the guest for emulated cards.
    fn coalescing(&self, file: &mut VmxFile) -> NicCoalescing {
        let (scheme, params) = (self.key("coalescingscheme"), self.key("coalescingparams"));
        let Some(name) = file.get(&scheme) else { return NicCoalescing::HostDefault };
        // The older name.
        let name = if name.eq_ignore_ascii_case("calibrate") { "adapt" } else { name };
        match Coalescing::of(name, file.get(&params).unwrap_or_default()) {
            Ok(own) => {
                for key in [&scheme, &params] {
                    let note = format!("{own}: takes effect once the card has model = \"virtio\"");
                    file.mapped(key, self.field("coalescing"), note);
                }
                NicCoalescing::Own(own)
            }
            Err(error) => {
                for key in [&scheme, &params] {
                    file.reported(key, format!("{error}; the host's default applies"));
                }
                NicCoalescing::HostDefault
            }
        }
    }

    fn portgroup(&self, file: &mut VmxFile, default: Option<&Name>) -> Result<Name, ApiError> {
        let key = self.key("networkname");
        let field = self.field("portgroup");
        let Some(network) = file.get(&key).map(str::to_owned) else {
            return default.cloned().ok_or_else(|| {
                invalid(
                    format!("{} is on no network: it has no networkName", self.prefix),
                    "give the port group for such cards with --portgroup NAME",
                )
            });
        };
        if let Ok(name) = network.parse() {
            file.understood(&key, field);
            return Ok(name);
        }
        let name = default.cloned().or_else(|| usable_name(&network)).ok_or_else(|| {
            invalid(
                format!(
                    "{} is on the network \"{}\", which is not a valid name of a port group",
                    self.prefix,
                    shortened(&network)
                ),
                "give the port group for such cards with --portgroup NAME",
            )
        })?;
        file.mapped(&key, field, format!("{name}: names consist of letters, digits, `-`, `_` and `.`"));
        Ok(name)
    }

    fn mac(&self, file: &mut VmxFile) -> Result<Option<MacAddr>, ApiError> {
        let (fixed, generated) = (self.key("address"), self.key("generatedaddress"));
        let kind = file.get(&self.key("addresstype")).map(str::to_ascii_lowercase);
        let prefers_generated = matches!(kind.as_deref(), Some("generated" | "vpx"));
        let keys = if prefers_generated { [&generated, &fixed] } else { [&fixed, &generated] };
        let Some(key) = keys.into_iter().find(|key| file.get(key).is_some()) else { return Ok(None) };
        let mac = file.parsed(key, "an Ethernet address")?;
        file.understood(key, self.field("mac"));
        Ok(mac)
    }

    /// Reads the model. The guest keeps the card that it has a driver for.
    fn model(&self, file: &mut VmxFile) -> NicModel {
        let key = self.key("virtualdev");
        let Some(model) = file.get(&key).map(str::to_ascii_lowercase) else {
            let sixty_four = file.get("guestos").is_some_and(|os| os.to_ascii_lowercase().ends_with("-64"));
            let (model, name) =
                if sixty_four { (NicModel::E1000, "e1000") } else { (NicModel::Vlance, "vlance") };
            let note = format!("with model = {name}, the default of ESX for such guests without virtualDev");
            file.mapped(&self.key("present"), &self.field, note);
            return model;
        };
        let (model, note) = match model.as_str() {
            "vmxnet3" => (NicModel::Vmxnet3, EMULATED),
            "e1000" => (NicModel::E1000, EMULATED),
            "e1000e" => (NicModel::E1000e, EMULATED),
            "vlance" => (NicModel::Vlance, EMULATED),
            "flexible" => {
                (NicModel::Vlance, "vlance: a flexible card is one until the vmxnet driver takes it over")
            }
            "vmxnet" | "vmxnet2" => (
                NicModel::Vlance,
                "vlance: only ESX has vmxnet and vmxnet2 cards; most guests with one also have a driver for vlance",
            ),
            _ => (
                NicModel::E1000,
                "e1000: the value is not a card of ESX; most guests have a driver for e1000",
            ),
        };
        file.mapped(&key, self.field("model"), note);
        model
    }
}

const EMULATED: &str = "the same card, emulated by QEMU: the guest has the driver for it. model = \"virtio\" is much faster \
                        once the guest has a virtio driver";
