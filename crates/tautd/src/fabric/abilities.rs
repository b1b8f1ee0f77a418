//! Messages as a running fabric of an earlier version understands them.
//!
//! A daemon that was upgraded finds the fabric of the version before, which serves on until
//! somebody replaces it. A message that it does not know would end the conversation.

use std::borrow::Cow;
use std::net::IpAddr;

use taut_api::error::ErrorKind;
use taut_api::fabric::config::{PortConfig, PortKind};
use taut_api::fabric::message::Attachment;
use taut_api::fabric::{Abilities, Ability, FabricConfig, PortId, ToFabric};
use taut_api::teaming::TeamPolicy;
use taut_api::{ApiError, PathProbe};

/// Reason that a fabric of an earlier version does not serve a port.
const UNKNOWN_KIND: &str = "the running fabric is of an earlier version that does not know such ports; hint: to \
                            replace it while traffic goes on: taut daemon upgrade-fabric";

/// Checks that a fabric with these abilities serves the XDP sockets of an interface with so many
/// receive queues.
///
/// # Errors
/// The fabric is of an earlier version.
pub(super) fn check_xdp(abilities: Abilities, queues: u32) -> Result<(), ApiError> {
    let lacks = if !abilities.has(Ability::Xdp) {
        "does not know XDP sockets"
    } else if queues > 1 && !abilities.has(Ability::XdpQueues) {
        "takes one XDP socket of an interface, not one for each queue"
    } else {
        return Ok(());
    };
    Err(ApiError::new(
        ErrorKind::Unavailable,
        format!("the running fabric is of an earlier version that {lacks}"),
        "replace it while traffic goes on: taut daemon upgrade-fabric",
    ))
}

/// Returns a message as a fabric with these abilities understands it; `None` if it asks for what
/// the fabric cannot do.
pub(super) fn fit(abilities: Abilities, message: &ToFabric) -> Option<Cow<'_, ToFabric>> {
    let has = |ability| abilities.has(ability);
    match message {
        ToFabric::Capture { .. } if !has(Ability::Captures) => None,
        ToFabric::QueuePairMemory { .. } if !has(Ability::QueuePairs) => None,
        ToFabric::Attach { via: Attachment::Packet(_), .. } if !has(Ability::Uplinks) => None,
        ToFabric::Attach { via: Attachment::Xdp(setup), .. }
            if !has(Ability::Xdp) || setup.other_queues > 0 && !has(Ability::XdpQueues) =>
        {
            None
        }
        _ if CONFIGURED.into_iter().all(has) => Some(Cow::Borrowed(message)),
        ToFabric::Configure(config) => {
            let mut fitting = config.clone();
            fitting.ports.retain(|port| serves(abilities, port));
            // A fabric without the ability would look for long rings in other places.
            let paired = fitting.sockets.iter_mut().map(|socket| &mut socket.queue_pairs);
            if !has(Ability::LongRings) {
                paired.for_each(|memory| _ = memory.take_if(|memory| memory.has_long_rings()));
            }
            // Such a team begins as one by port.
            let balanced = fitting.teams.iter_mut().filter(|team| team.policy == TeamPolicy::Load);
            if !has(Ability::BalancesLoad) {
                balanced.for_each(|team| team.policy = TeamPolicy::PortId);
            }
            // A probe that it cannot read would cost the whole configuration.
            let is_strange = |probe: PathProbe| matches!(probe, PathProbe::Gateway { ip: IpAddr::V6(_), .. });
            let strange = fitting.teams.iter_mut().filter(|team| is_strange(team.probe));
            if !has(Ability::AsksIpv6) {
                strange.for_each(|team| team.probe = PathProbe::Off);
            }
            Some(Cow::Owned(ToFabric::Configure(fitting)))
        }
        _ => Some(Cow::Borrowed(message)),
    }
}

/// Abilities on which it depends whether a configuration is understood.
const CONFIGURED: [Ability; 5] =
    [Ability::Uplinks, Ability::BalancesLoad, Ability::Netdevs, Ability::AsksIpv6, Ability::LongRings];

/// Returns the ports of a configuration that a fabric with these abilities cannot serve, each with
/// the reason.
pub(super) fn unfit(abilities: Abilities, config: &FabricConfig) -> impl Iterator<Item = (PortId, String)> {
    let unfit = config.ports.iter().filter(move |port| !serves(abilities, port));
    unfit.map(|port| (port.id, UNKNOWN_KIND.to_owned()))
}

/// Returns whether a fabric with these abilities knows ports of this kind.
fn serves(abilities: Abilities, port: &PortConfig) -> bool {
    match port.kind {
        PortKind::Uplink => abilities.has(Ability::Uplinks),
        PortKind::Netdev => abilities.has(Ability::Netdevs),
        PortKind::VhostUser { .. } | PortKind::Tap { .. } | PortKind::Stream => true,
    }
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::config::{QueuePairMemory, SegmentId, SocketConfig, TeamConfig};
    use taut_api::fabric::message::{PacketRing, PacketSocket, XdpMemory, XdpRing, XdpSocket};
    use taut_api::{Bytes, MacAddr};

    use super::super::held::tests::socket;
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

        let now = Abilities::all();
        assert_eq!(fit(now, &configure).as_deref(), Some(&configure));
        assert_eq!(fit(now, &attach).as_deref(), Some(&attach));
        assert_eq!(unfit(now, &config).count(), 0);

        let earlier = Abilities::default().with(Ability::AnswersPings);
        let fitting = FabricConfig { ports: ports[..1].to_vec(), ..config.clone() };
        assert_eq!(fit(earlier, &configure).as_deref(), Some(&ToFabric::Configure(fitting)));
        assert_eq!(fit(earlier, &attach), None);
        assert_eq!(fit(earlier, &ToFabric::Ping).as_deref(), Some(&ToFabric::Ping));
        assert_eq!(unfit(earlier, &config).map(|(port, _)| port).collect::<Vec<_>>(), [PortId(2)]);
    }

    #[test]
    fn a_fabric_without_queue_pairs_gets_no_memory_for_them() {
        let memory = ToFabric::QueuePairMemory { port: PortId(2) };
        assert_eq!(fit(Abilities::default(), &memory), None);
        let knowing = Abilities::from_iter([Ability::QueuePairs]);
        assert_eq!(fit(knowing, &memory).as_deref(), Some(&memory));
    }

    #[test]
    fn a_fabric_that_knows_no_long_rings_gets_none() {
        let with_rings = |ring: Option<Bytes>| {
            let memory = QueuePairMemory { inode: 7, offset: Bytes::mib(2), size: Bytes::mib(64), ring };
            SocketConfig { queue_pairs: Some(memory), ..socket(PortId(2)) }
        };
        let configure = |sockets| ToFabric::Configure(FabricConfig { sockets, ..FabricConfig::default() });
        let [long, short, unsaid] = [Some(Bytes::mib(1)), Some(Bytes(256 << 10)), None].map(with_rings);
        let without = SocketConfig { queue_pairs: None, ..long.clone() };
        let wanted = configure(vec![long, short.clone(), unsaid.clone()]);
        let earlier = Abilities::from_iter([Ability::QueuePairs]);
        assert_eq!(fit(earlier, &wanted).as_deref(), Some(&configure(vec![without, short, unsaid])));
        assert_eq!(fit(earlier.with(Ability::LongRings), &wanted).as_deref(), Some(&wanted));
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
        let earlier = Abilities::from_iter([Ability::Uplinks, Ability::BalancesLoad]);
        assert_eq!(fit(earlier, &wanted).as_deref(), Some(&configure(["off", "10.0.0.1", "beacon"])));
        let asking = earlier.with(Ability::AsksIpv6);
        assert_eq!(fit(asking, &wanted).as_deref(), Some(&wanted));
    }

    #[test]
    fn a_fabric_without_xdp_sockets_gets_none() {
        let ring = XdpRing { entries: 16, producer: 0, consumer: 64, flags: 128, first: 192 };
        let memory = XdpMemory { chunk: 4096, receiving: 8, sending: 8, first: 8192 };
        let setup = XdpSocket {
            receive: ring,
            fill: ring,
            transmit: ring,
            completion: ring,
            memory,
            zero_copy: false,
            other_queues: 0,
        };
        let attach = |other_queues| {
            let setup = XdpSocket { other_queues, ..setup };
            ToFabric::Attach { port: PortId(2), via: Attachment::Xdp(Box::new(setup)) }
        };
        let earlier = Abilities::from_iter([Ability::Uplinks, Ability::BalancesLoad, Ability::Netdevs]);
        assert_eq!(fit(earlier, &attach(0)), None);
        assert!(check_xdp(earlier, 1).is_err());
        let one = earlier.with(Ability::Xdp);
        assert_eq!(fit(one, &attach(0)).as_deref(), Some(&attach(0)));
        assert_eq!(fit(one, &attach(2)), None);
        assert!(check_xdp(one, 1).is_ok() && check_xdp(one, 3).is_err());
        let all = one.with(Ability::XdpQueues);
        assert_eq!(fit(all, &attach(2)).as_deref(), Some(&attach(2)));
        assert!(check_xdp(all, 3).is_ok());
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
        let earlier = Abilities::default().with(Ability::Uplinks);
        let teams = vec![TeamConfig { policy: TeamPolicy::PortId, ..team }];
        let fitting = ToFabric::Configure(FabricConfig { teams, ..config.clone() });
        assert_eq!(fit(earlier, &ToFabric::Configure(config.clone())).as_deref(), Some(&fitting));
        assert_eq!(unfit(earlier, &config).count(), 0);
        let balancing = earlier.with(Ability::BalancesLoad);
        let same = ToFabric::Configure(config.clone());
        assert_eq!(fit(balancing, &same).as_deref(), Some(&same));
        let netdev = FabricConfig { ports: vec![port(3, PortKind::Netdev)], ..FabricConfig::default() };
        assert_eq!(unfit(earlier, &netdev).map(|(port, _)| port).collect::<Vec<_>>(), [PortId(3)]);
    }
}
