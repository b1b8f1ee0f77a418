//! Abilities that a running fabric of an earlier version lacks, and messages that it understands.
//!
//! A daemon that was upgraded finds the fabric of the version before, which serves on until
//! somebody replaces it. A message that it does not know would end the conversation.

use std::borrow::Cow;
use std::net::IpAddr;

use taut_api::error::ErrorKind;
use taut_api::fabric::config::{PortConfig, PortKind};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{FabricConfig, PortId, ToFabric};
use taut_api::teaming::TeamPolicy;
use taut_api::{ApiError, PathProbe};

/// Reason that a fabric of an earlier version does not serve a port.
const UNKNOWN_KIND: &str = "the running fabric is of an earlier version that does not know such ports; hint: to \
                            replace it while traffic goes on: taut daemon upgrade-fabric";

/// Returns the refusal of an XDP socket by a fabric of an earlier version.
pub(super) fn no_xdp() -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        "the running fabric is of an earlier version that does not know XDP sockets",
        "replace it while traffic goes on: taut daemon upgrade-fabric",
    )
}

/// Abilities that a fabric has told of in its first message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// True if the fabric answers pings.
    pub(super) answers_pings: bool,
    /// True if the fabric serves uplinks.
    pub(super) has_uplinks: bool,
    /// True if the fabric moves ports away from busy uplinks.
    pub(super) balances_load: bool,
    /// True if the fabric serves interfaces on port groups.
    pub(super) has_netdevs: bool,
    /// True if the fabric captures frames.
    pub(super) has_captures: bool,
    /// True if the fabric has network I/O control. Another one ignores its configuration.
    pub(super) has_network_io: bool,
    /// True if the fabric asks gateways with IPv6 addresses.
    pub(super) asks_ipv6: bool,
    /// True if the fabric serves XDP sockets.
    pub(super) has_xdp: bool,
}

impl Abilities {
    /// Returns a message as the fabric understands it; `None` if it asks for what the fabric cannot
    /// do.
    pub(super) fn fit(self, message: &ToFabric) -> Option<Cow<'_, ToFabric>> {
        match message {
            ToFabric::Capture { .. } if !self.has_captures => None,
            ToFabric::Attach { via: Attachment::Packet(_), .. } if !self.has_uplinks => None,
            ToFabric::Attach { via: Attachment::Xdp(_), .. } if !self.has_xdp => None,
            _ if self.has_uplinks && self.balances_load && self.has_netdevs && self.asks_ipv6 => {
                Some(Cow::Borrowed(message))
            }
            ToFabric::Configure(config) => {
                let mut fitting = config.clone();
                fitting.ports.retain(|port| self.serves(port));
                // Such a team begins as one by port.
                let balanced = fitting.teams.iter_mut().filter(|team| team.policy == TeamPolicy::Load);
                if !self.balances_load {
                    balanced.for_each(|team| team.policy = TeamPolicy::PortId);
                }
                // A probe that it cannot read would cost the whole configuration.
                let is_strange =
                    |probe: PathProbe| matches!(probe, PathProbe::Gateway { ip: IpAddr::V6(_), .. });
                let strange = fitting.teams.iter_mut().filter(|team| is_strange(team.probe));
                if !self.asks_ipv6 {
                    strange.for_each(|team| team.probe = PathProbe::Off);
                }
                Some(Cow::Owned(ToFabric::Configure(fitting)))
            }
            _ => Some(Cow::Borrowed(message)),
        }
    }

    /// Returns the ports of a configuration that the fabric cannot serve, each with the reason.
    pub(super) fn unfit(self, config: &FabricConfig) -> impl Iterator<Item = (PortId, String)> {
        let unfit = config.ports.iter().filter(move |port| !self.serves(port));
        unfit.map(|port| (port.id, UNKNOWN_KIND.to_owned()))
    }

    /// Returns whether the fabric knows ports of this kind.
    fn serves(self, port: &PortConfig) -> bool {
        match port.kind {
            PortKind::Uplink => self.has_uplinks,
            PortKind::Netdev => self.has_netdevs,
            PortKind::VhostUser { .. } | PortKind::Tap { .. } | PortKind::Stream => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use taut_api::MacAddr;
    use taut_api::fabric::config::{SegmentId, TeamConfig};
    use taut_api::fabric::message::{PacketRing, PacketSocket, XdpMemory, XdpRing, XdpSocket};

    use super::*;

    fn port(id: u16, kind: PortKind) -> PortConfig {
        PortConfig::new(PortId(id), String::new(), kind, SegmentId(1), MacAddr([2, 0, 0, 0, 0, 1]))
    }

    #[test]
    fn an_earlier_fabric_hears_nothing_of_uplinks() {
        let ports = vec![port(1, PortKind::Stream), port(2, PortKind::Uplink)];
        let config = FabricConfig { ports: ports.clone(), ..FabricConfig::default() };
        let ring = PacketRing { slot: 256, slots_per_block: 1, block: 4096, blocks: 1 };
        let via = Attachment::Packet(PacketSocket { uso: true, ring });
        let attach = ToFabric::Attach { port: PortId(2), via };
        let configure = ToFabric::Configure(config.clone());

        let now = Abilities {
            answers_pings: true,
            has_uplinks: true,
            balances_load: true,
            has_netdevs: true,
            has_captures: true,
            has_network_io: true,
            asks_ipv6: true,
            has_xdp: true,
        };
        assert_eq!(now.fit(&configure).as_deref(), Some(&configure));
        assert_eq!(now.fit(&attach).as_deref(), Some(&attach));
        assert_eq!(now.unfit(&config).count(), 0);

        let earlier = Abilities { answers_pings: true, ..Abilities::default() };
        let fitting = FabricConfig { ports: ports[..1].to_vec(), ..config.clone() };
        assert_eq!(earlier.fit(&configure).as_deref(), Some(&ToFabric::Configure(fitting)));
        assert_eq!(earlier.fit(&attach), None);
        assert_eq!(earlier.fit(&ToFabric::Ping).as_deref(), Some(&ToFabric::Ping));
        assert_eq!(earlier.unfit(&config).map(|(port, _)| port).collect::<Vec<_>>(), [PortId(2)]);
    }

    #[test]
    fn a_fabric_that_asks_no_gateways_with_ipv6_probes_nothing() {
        let team = |probe: &str| TeamConfig {
            segment: SegmentId(1),
            policy: TeamPolicy::Explicit,
            active: vec![PortId(2)],
            standby: Vec::new(),
            failback: true,
            notify_switches: true,
            probe: probe.parse().unwrap(),
        };
        let configure = |probes: [&str; 3]| {
            ToFabric::Configure(FabricConfig { teams: probes.map(team).to_vec(), ..FabricConfig::default() })
        };
        let wanted = configure(["fe80::1", "10.0.0.1", "beacon"]);
        let earlier = Abilities { has_uplinks: true, balances_load: true, ..Abilities::default() };
        assert_eq!(earlier.fit(&wanted).as_deref(), Some(&configure(["off", "10.0.0.1", "beacon"])));
        let asking = Abilities { asks_ipv6: true, ..earlier };
        assert_eq!(asking.fit(&wanted).as_deref(), Some(&wanted));
    }

    #[test]
    fn a_fabric_without_xdp_sockets_gets_none() {
        let ring = XdpRing { entries: 16, producer: 0, consumer: 64, flags: 128, first: 192 };
        let memory = XdpMemory { chunk: 4096, receiving: 8, sending: 8, first: 8192 };
        let setup = XdpSocket { receive: ring, fill: ring, transmit: ring, completion: ring, memory };
        let attach = ToFabric::Attach { port: PortId(2), via: Attachment::Xdp(Box::new(setup)) };
        let earlier =
            Abilities { has_uplinks: true, balances_load: true, has_netdevs: true, ..Abilities::default() };
        assert_eq!(earlier.fit(&attach), None);
        assert_eq!(Abilities { has_xdp: true, ..earlier }.fit(&attach).as_deref(), Some(&attach));
    }

    #[test]
    fn a_fabric_that_does_not_balance_loads_chooses_uplinks_by_port() {
        let team = TeamConfig {
            segment: SegmentId(1),
            policy: TeamPolicy::Load,
            active: vec![PortId(2)],
            standby: Vec::new(),
            failback: true,
            notify_switches: true,
            probe: PathProbe::Off,
        };
        let ports = vec![port(1, PortKind::Stream), port(2, PortKind::Uplink)];
        let config = FabricConfig { ports, teams: vec![team.clone()], ..FabricConfig::default() };
        let earlier = Abilities { has_uplinks: true, ..Abilities::default() };
        let teams = vec![TeamConfig { policy: TeamPolicy::PortId, ..team }];
        let fitting = ToFabric::Configure(FabricConfig { teams, ..config.clone() });
        assert_eq!(earlier.fit(&ToFabric::Configure(config.clone())).as_deref(), Some(&fitting));
        assert_eq!(earlier.unfit(&config).count(), 0);
        let balancing = Abilities { balances_load: true, ..earlier };
        let same = ToFabric::Configure(config.clone());
        assert_eq!(balancing.fit(&same).as_deref(), Some(&same));
        let netdev = FabricConfig { ports: vec![port(3, PortKind::Netdev)], ..FabricConfig::default() };
        assert_eq!(earlier.unfit(&netdev).map(|(port, _)| port).collect::<Vec<_>>(), [PortId(3)]);
    }
}
