//! The link of a card as the guest sees it.

use serde_json::json;
use taut_api::link::WantedLink;

use super::qemu::card_name;
use crate::qmp::{Qmp, QmpError};

/// Sets the link of a running VM's card. QEMU sets the link status in the configuration space of a
/// virtio card, sends its interrupt, and stops the card's rings while the link is down.
///
/// # Errors
/// When QEMU does not answer or refuses the command.
pub fn set(qmp: &mut Qmp, index: usize, link: WantedLink) -> Result<(), QmpError> {
    let arguments = json!({ "name": card_name(index), "up": link == WantedLink::Up });
    qmp.execute("set_link", &arguments).map(drop)
}
