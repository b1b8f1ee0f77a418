//! Physical network cards: interfaces with a device.

use std::path::Path;

use taut_api::check::{Card, NetworkFacts};

use crate::kernel::netlink::Ethtool;
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
    let Ok(mut ethtool) = Ethtool::open() else { return };
    for card in cards {
        card.moderation = ethtool.moderation(&card.name).unwrap_or_default();
        card.lro = ethtool.merges(&card.name).unwrap_or_default();
    }
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
