//! Abilities that a running fabric of an earlier version lacks, and messages that it understands.
//!
//! A daemon that was upgraded finds the fabric of the version before, which serves on until
//! somebody replaces it. A message that it does not know would end the conversation.

use std::borrow::Cow;

use taut_api::fabric::config::{PortConfig, PortKind};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, PortId, ToFabric};

/// Reason that a fabric without uplinks does not serve a port.
const NO_UPLINKS: &str = "the running fabric is of an earlier version without uplinks; hint: to replace it while \
                          traffic goes on: taut daemon upgrade-fabric";

/// Abilities that a fabric has told of in its first message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// True if the fabric answers pings.
    pub(super) answers_pings: bool,
    /// True if the fabric serves uplinks.
    pub(super) has_uplinks: bool,
}

impl Abilities {
    /// Returns a message as the fabric understands it; `None` if it is about a port that the fabric
    /// cannot serve.
    pub(super) fn fit(self, message: &ToFabric) -> Option<Cow<'_, ToFabric>> {
        match message {
            _ if self.has_uplinks => Some(Cow::Borrowed(message)),
            ToFabric::Attach { via: Attachment::Packet(_), .. } => None,
            ToFabric::Configure(config) if config.ports.iter().any(is_uplink) => {
                let mut fitting = config.clone();
                fitting.ports.retain(|port| !is_uplink(port));
                Some(Cow::Owned(ToFabric::Configure(fitting)))
            }
            _ => Some(Cow::Borrowed(message)),
        }
    }

    /// Returns the ports of a configuration that the fabric cannot serve, each with the reason.
    pub(super) fn unfit(self, config: &FabricConfig) -> impl Iterator<Item = (PortId, String)> {
        let unfit = config.ports.iter().filter(move |port| !self.has_uplinks && is_uplink(port));
        unfit.map(|port| (port.id, NO_UPLINKS.to_owned()))
    }
}

fn is_uplink(port: &PortConfig) -> bool {
    port.kind == PortKind::Uplink
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::config::{FrontEndRules, SegmentId};
    use taut_api::fabric::message::{PacketRing, PacketSocket};
    use taut_api::network::Security;
    use taut_api::shaping::Shaping;
    use taut_api::vlan::Vlan;
    use taut_api::{Coalescing, MacAddr};

    use super::*;

    fn port(id: u16, kind: PortKind) -> PortConfig {
        PortConfig {
            id: PortId(id),
            owner: String::new(),
            kind,
            segment: SegmentId(1),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            vlan: Vlan::default(),
            security: Security::default(),
            shaping: Shaping::default(),
            mac_learning: None,
            coalescing: Coalescing::Disabled,
            lro: false,
            front_end: FrontEndRules::default(),
            team: None,
        }
    }

    #[test]
    fn an_earlier_fabric_hears_nothing_of_uplinks() {
        let ports = vec![port(1, PortKind::Stream), port(2, PortKind::Uplink)];
        let config = FabricConfig { ports: ports.clone(), ..FabricConfig::default() };
        let ring = PacketRing { slot: 256, slots_per_block: 1, block: 4096, blocks: 1 };
        let via = Attachment::Packet(PacketSocket { uso: true, ring });
        let attach = ToFabric::Attach { port: PortId(2), via };
        let configure = ToFabric::Configure(config.clone());

        let now = Abilities { answers_pings: true, has_uplinks: true };
        assert_eq!(now.fit(&configure).as_deref(), Some(&configure));
        assert_eq!(now.fit(&attach).as_deref(), Some(&attach));
        assert_eq!(now.unfit(&config).count(), 0);

        let earlier = Abilities { answers_pings: true, has_uplinks: false };
        let fitting = FabricConfig { ports: ports[..1].to_vec(), ..config.clone() };
        assert_eq!(earlier.fit(&configure).as_deref(), Some(&ToFabric::Configure(fitting)));
        assert_eq!(earlier.fit(&attach), None);
        assert_eq!(earlier.fit(&ToFabric::Ping).as_deref(), Some(&ToFabric::Ping));
        assert_eq!(earlier.unfit(&config).map(|(port, _)| port).collect::<Vec<_>>(), [PortId(2)]);
    }
}
