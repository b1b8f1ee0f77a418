//! Physical network cards: interfaces with a device.

use std::path::Path;

use taut_api::check::{Card, Moderation, NetworkFacts};
use taut_api::pnic::{Offload, ParameterGroup, PnicParameter};

use crate::kernel::cards::Parameters;
use crate::kernel::netlink::ethtool::features;
use crate::kernel::netlink::{Ethtool, Links};
use crate::kernel::tree::Tree;

pub(super) fn read(tree: Tree<'_>) -> NetworkFacts {
    let mut cards: Vec<_> =
        tree.names("sys/class/net").into_iter().filter_map(|name| card(tree, name)).collect();
    // Only the running kernel can be asked, not that of a captured tree.
    if tree.0 == Path::new("/") {
        ask_drivers(&mut cards);
    }
    NetworkFacts {
        cards,
        busy_read: tree.knob("proc/sys/net/core/busy_read"),
        busy_poll: tree.knob("proc/sys/net/core/busy_poll"),
        iommu_groups: u32::try_from(tree.names("sys/kernel/iommu_groups").len()).unwrap_or(u32::MAX),
    }
}

/// Adds the facts that only the cards' drivers know. They stay unknown if the kernel or driver does
/// not answer.
fn ask_drivers(cards: &mut [Card]) {
    let (Ok(links), Ok(mut ethtool)) = (Links::open(), Ethtool::open()) else { return };
    for card in cards {
        let Ok(Some(index)) = links.index(&card.name) else { continue };
        let found = ethtool.parameters(index, ParameterGroup::Coalescing);
        card.moderation = found.ok().and_then(|found| moderation(&found));
        let found = ethtool.features(index);
        card.lro = found.ok().and_then(|found| features::offload(&found, Offload::Lro)).map(|lro| lro.on);
    }
}

/// Returns the moderation of received packets; none if the driver has none.
fn moderation(found: &Parameters) -> Option<Moderation> {
    let value = |parameter| found.get(&parameter).map(|facts| facts.value);
    let rx_us = value(PnicParameter::RxUsecs);
    let adaptive_rx = value(PnicParameter::AdaptiveRx).map(|on| on != 0);
    (rx_us.is_some() || adaptive_rx.is_some()).then_some(Moderation { rx_us, adaptive_rx })
}

fn card(tree: Tree<'_>, name: String) -> Option<Card> {
    let folder = format!("sys/class/net/{name}");
    let uevent = tree.text(&format!("{folder}/device/uevent"))?;
    let driver = uevent.lines().find_map(|line| line.strip_prefix("DRIVER=")).map(str::to_owned);
    let queues =
        tree.names(&format!("{folder}/queues")).iter().filter(|queue| queue.starts_with("rx-")).count();
    Some(Card {
        link: tree.text(&format!("{folder}/carrier")).map(|carrier| carrier == "1"),
        queues: u32::try_from(queues).unwrap_or(u32::MAX),
        throttle: driver
            .as_ref()
            .and_then(|driver| tree.text(&format!("sys/module/{driver}/parameters/InterruptThrottleRate"))),
        moderation: None,
        lro: None,
        gro_flush: tree.knob(&format!("{folder}/gro_flush_timeout")),
        deferred_irqs: tree.knob(&format!("{folder}/napi_defer_hard_irqs")),
        virtual_functions: tree.number(&format!("{folder}/device/sriov_totalvfs")).unwrap_or(0),
        name,
        driver,
    })
}

#[cfg(test)]
mod tests {
    use taut_api::pnic::ParameterFacts;

    use super::*;

    #[test]
    fn a_card_has_moderation_if_it_has_one_of_the_two_settings() {
        let of = |found: &[(PnicParameter, u32)]| {
            let facts = |value| ParameterFacts { value, max: None };
            moderation(&found.iter().map(|(parameter, value)| (*parameter, facts(*value))).collect())
        };
        let both = of(&[(PnicParameter::RxUsecs, 20), (PnicParameter::AdaptiveRx, 1)]);
        assert_eq!(both, Some(Moderation { rx_us: Some(20), adaptive_rx: Some(true) }));
        let fixed = of(&[(PnicParameter::RxUsecs, 0)]);
        assert_eq!(fixed, Some(Moderation { rx_us: Some(0), adaptive_rx: None }));
        assert_eq!(of(&[(PnicParameter::TxFrames, 1)]), None);
    }
}
