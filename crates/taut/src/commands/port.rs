//! `taut port`.

mod external;

use std::path::PathBuf;

use clap::Subcommand;
use taut_api::coalescing::NicCoalescing;
use taut_api::error::ErrorKind;
use taut_api::fabric::DropReason;
use taut_api::link::LinkReason;
use taut_api::network::{ExternalPortSpec, SocketRole};
use taut_api::path;
use taut_api::route::{ExternalPort, PortInfo};
use taut_api::{ApiError, GuestMac, MacAddr, Name, QueuePairs};

use self::external::Changes;
use crate::client::Client;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Attach a vhost-user front end that taut did not start, such as virtio-user or user-mode
    /// Linux, to a port group. `taut port set` changes an existing port
    Attach {
        /// Name of the port
        name: Name,
        /// Port group to attach it to
        #[arg(long)]
        portgroup: Name,
        /// Unix socket between taut and the front end
        #[arg(long, value_name = "SOCKET")]
        path: PathBuf,
        /// Listen on the socket; by default the front end listens and taut connects
        #[arg(long)]
        listen: bool,
        /// Ethernet address; derived from the name by default
        #[arg(long)]
        mac: Option<MacAddr>,
        /// Number of queue pairs to offer, 1 to 8
        #[arg(long, default_value_t, value_name = "PAIRS")]
        queues: QueuePairs,
        /// Offer checksum and segmentation offloads
        #[arg(long)]
        offloads: bool,
        /// Interrupt and kick moderation of the port: disabled, static[:PACKETS],
        /// rbc[:INTERRUPTS_PER_SECOND], adapt, or default for the host's setting
        #[arg(long, default_value_t, value_name = "SCHEME")]
        coalescing: NicCoalescing,
        /// Admit memory that can shrink, and event descriptors that are no eventfds, such as those
        /// of virtio-user and user-mode Linux. Such a front end can disturb all guests of the host
        #[arg(long)]
        trusted: bool,
    },
    /// List all ports with their counters, and each drop with its reason
    List,
    /// Show one port with its counters and drops
    Show {
        /// Name of a front end's port, or any port by its number or its owner, such as vm/web1/nic0
        port: String,
    },
    /// Change the given settings of a front end's port; others keep their values. Detach it
    /// and attach it again to change its socket, address, queues or offloads
    Set(Changes),
    /// Detach a front end
    Detach {
        /// Name of the port
        name: Name,
    },
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::Attach { name, portgroup, path, listen, mac, queues, offloads, coalescing, trusted } => {
            let socket = std::path::absolute(&path).map_err(|error| {
                ApiError::new(
                    ErrorKind::Invalid,
                    format!("the path {} cannot be made absolute", path.display()),
                    "give the absolute path of the socket",
                )
                .because(&error)
            })?;
            let role = if listen { SocketRole::Listen } else { SocketRole::Connect };
            let socket = socket.to_string_lossy().into_owned();
            let spec =
                ExternalPortSpec { portgroup, socket, role, mac, queues, offloads, coalescing, trusted };
            out.changed(&client.create(&path::EXTERNAL_PORT.of(&name), &spec)?, external::in_force);
        }
        Command::List => {
            let all: Vec<PortInfo> = client.get(path::PORTS)?;
            output::print(out.format, &all, |all| table(all));
        }
        Command::Show { port } => output::print(out.format, &find(client.get(path::PORTS)?, &port)?, show),
        Command::Set(changes) => {
            let path = path::EXTERNAL_PORT.of(&changes.name);
            let changed: ExternalPort = client.change(&path, |spec| changes.apply(spec))?;
            out.changed(&changed, external::in_force);
        }
        Command::Detach { name } => {
            client.delete(&path::EXTERNAL_PORT.of(&name))?;
            out.deleted("port", &name, "detached");
        }
    }
    Ok(())
}

/// Finds a port by its number, its owner, or the name of a front end's port.
pub(super) fn find(ports: Vec<PortInfo>, wanted: &str) -> Result<PortInfo, ApiError> {
    let external = format!("external/{wanted}");
    let is_wanted =
        |port: &PortInfo| port.owner == wanted || port.owner == external || port.port.to_string() == wanted;
    ports.into_iter().find(is_wanted).ok_or_else(|| {
        let mut hint = "`taut port list` shows those that exist".to_owned();
        // A card's port exists as long as its VM is on.
        if let Some((vm, _)) = wanted.strip_prefix("vm/").and_then(|card| card.split_once("/nic")) {
            hint += &format!("; `taut vm show {vm}` tells whether the card's VM is off");
        }
        ApiError::new(ErrorKind::NotFound, format!("there is no port `{wanted}`"), hint)
    })
}

fn show(port: &PortInfo) -> String {
    let drops = |drops: &[(DropReason, u64)]| {
        let each: Vec<_> =
            drops.iter().map(|(reason, count)| format!("{count} {}", reason.as_str())).collect();
        if each.is_empty() { "none".to_owned() } else { each.join(", ") }
    };
    let counters = &port.counters;
    output::fields(&[
        ("port", port.port.to_string()),
        ("owner", port.owner.clone()),
        ("mac", port.mac.map(|mac| mac.to_string()).unwrap_or_default()),
        ("effective mac", port.guest_mac.effective_mac.map(|mac| mac.to_string()).unwrap_or_default()),
        ("vswitch", port.vswitch.to_string()),
        ("portgroup", port.portgroup.as_ref().map(Name::to_string).unwrap_or_default()),
        ("link", output::word(&port.link)),
        ("reason", port.reason.clone().or(refused_address(port)).unwrap_or_default()),
        ("coalescing", port.coalescing.map_or("none".to_owned(), |coalescing| coalescing.to_string())),
        ("to switch", port.shaping.to_switch.to_string()),
        ("to guest", port.shaping.to_guest.to_string()),
        ("front end", if port.trusted { TRUSTED.to_owned() } else { String::new() }),
        ("received", format!("{} frames, {} bytes", counters.rx_frames, counters.rx_bytes)),
        ("receive drops", drops(&counters.rx_drops)),
        ("sent", format!("{} frames, {} bytes", counters.tx_frames, counters.tx_bytes)),
        ("send drops", drops(&counters.tx_drops)),
        ("guide", guide(port).unwrap_or_default()),
    ])
}

/// Returns the place of the guide's section about the reason of the link, or else about the most
/// frequent drop.
fn guide(port: &PortInfo) -> Option<String> {
    if let Some(reason) = &port.reason {
        return Some(LinkReason::of(port.link, reason).guide());
    }
    let drops = port.counters.rx_drops.iter().chain(&port.counters.tx_drops);
    drops.max_by_key(|(_, frames)| *frames).map(|(reason, _)| reason.guide())
}

fn table(ports: &[PortInfo]) -> String {
    let rows: Vec<_> = ports.iter().map(row).collect();
    let mut text = output::table(
        [
            "PORT",
            "OWNER",
            "MAC",
            "PORTGROUP",
            "LINK",
            "COALESCING",
            "RX",
            "RX BYTES",
            "TX",
            "TX BYTES",
            "DROPS",
        ],
        &rows,
    );
    for port in ports {
        let trusted = port.trusted.then_some(TRUSTED);
        let refused = refused_address(port);
        let reasons = port.reason.as_deref().into_iter().chain(refused.as_deref());
        for remark in reasons.chain(without_buffers(port)).chain(trusted) {
            text += &format!("port {} ({}): {remark}\n", port.port, port.owner);
        }
    }
    text
}

/// What it means for other guests that a port's front end is trusted.
const TRUSTED: &str = "trusted: its front end can disturb all guests of this host";

/// Says that a port does not have the address that its guest has set, and for what reason.
fn refused_address(port: &PortInfo) -> Option<String> {
    let GuestMac { effective_mac, mac_rejected, mac_taken } = port.guest_mac;
    let effective = effective_mac?;
    match port.mac {
        _ if mac_rejected => Some(format!(
            "receives no frames: its guest has changed its address to {effective}, which the port group rejects"
        )),
        Some(mac) if mac_taken => Some(format!(
            "keeps {mac}: its guest has changed its address to {effective}, which another port has or no card can \
             have"
        )),
        _ => None,
    }
}

/// Says that a guest has never posted a receive buffer: otherwise the first frame had found one.
fn without_buffers(port: &PortInfo) -> Option<&'static str> {
    let counters = &port.counters;
    let no_buffer = counters.rx_drops.iter().any(|(reason, _)| *reason == DropReason::RingFull);
    (no_buffer && counters.rx_frames == 0)
        .then_some("no frame was ever received: the guest has posted no receive buffers")
}

fn row(port: &PortInfo) -> [String; 11] {
    let drops = |direction: &str, drops: &[(DropReason, u64)]| {
        drops
            .iter()
            .map(|(reason, count)| format!("{direction} {count} {}", reason.as_str()))
            .collect::<Vec<_>>()
    };
    let counters = &port.counters;
    [
        port.port.to_string(),
        port.owner.clone(),
        port.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        port.portgroup.as_ref().map(Name::to_string).unwrap_or_default(),
        output::word(&port.link),
        port.coalescing.map(|coalescing| coalescing.to_string()).unwrap_or_default(),
        counters.rx_frames.to_string(),
        counters.rx_bytes.to_string(),
        counters.tx_frames.to_string(),
        counters.tx_bytes.to_string(),
        [drops("rx", &counters.rx_drops), drops("tx", &counters.tx_drops)].concat().join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use taut_api::fabric::counters::PortCounters;
    use taut_api::link::Link;
    use taut_api::shaping::{PortShape, PortShaping, ShapeOrigin};

    use super::*;

    #[test]
    fn a_port_is_found_by_number_owner_or_name() {
        let port = |port: u32, owner: &str| PortInfo {
            port,
            owner: owner.into(),
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            guest_mac: GuestMac::default(),
            vswitch: "prod".parse().unwrap(),
            portgroup: Some("lan".parse().unwrap()),
            link: Link::Up,
            reason: None,
            coalescing: None,
            shaping: PortShaping {
                to_guest: PortShape { shape: Some("10Mbit".parse().unwrap()), origin: ShapeOrigin::Own },
                ..PortShaping::default()
            },
            trusted: false,
            counters: PortCounters {
                tx_drops: vec![(DropReason::ForgedTransmit, 4)],
                ..PortCounters::default()
            },
        };
        let all = || vec![port(1, "vm/db1/nic0"), port(2, "external/gen"), port(3, "netns/gen")];
        let owner = |wanted: &str| find(all(), wanted).map(|port| port.owner);
        assert_eq!(owner("1").unwrap(), "vm/db1/nic0");
        assert_eq!(owner("gen").unwrap(), "external/gen");
        assert_eq!(owner("netns/gen").unwrap(), "netns/gen");
        assert_eq!(owner("4").unwrap_err().message, "there is no port `4`");
        assert!(owner("vm/web1/nic0").unwrap_err().hint.contains("`taut vm show web1`"));
        insta::assert_snapshot!(show(&port(2, "external/gen")), @r"
        port           2
        owner          external/gen
        mac            02:00:00:00:00:01
        vswitch        prod
        portgroup      lan
        link           up
        coalescing     none
        to switch      none
        to guest       10Mbit (own)
        received       0 frames, 0 bytes
        receive drops  none
        sent           0 frames, 0 bytes
        send drops     4 forged source address
        guide          docs/guide/reasons.md#drop-forged-transmit
        ");
    }

    #[test]
    fn drops_are_listed_with_their_reasons() {
        let counters = PortCounters {
            rx_frames: 12,
            rx_bytes: 1200,
            rx_drops: vec![(DropReason::RingFull, 3)],
            tx_drops: vec![(DropReason::ForgedTransmit, 1)],
            ..PortCounters::default()
        };
        let port = PortInfo {
            port: 1,
            owner: "vm/db1/nic0".into(),
            mac: Some("02:00:00:00:00:01".parse().unwrap()),
            guest_mac: GuestMac::default(),
            vswitch: "prod".parse().unwrap(),
            portgroup: Some("lan".parse().unwrap()),
            link: Link::Broken,
            reason: Some("descriptor 7 is its own successor".into()),
            coalescing: Some(taut_api::Coalescing::default()),
            shaping: PortShaping::default(),
            trusted: false,
            counters,
        };
        insta::assert_snapshot!(table(std::slice::from_ref(&port)), @r"
        PORT  OWNER        MAC                PORTGROUP  LINK    COALESCING  RX  RX BYTES  TX  TX BYTES  DROPS
           1  vm/db1/nic0  02:00:00:00:00:01  lan        broken  rbc:4000    12      1200   0         0  rx 3 no free receive buffer, tx 1 forged source address
        port 1 (vm/db1/nic0): descriptor 7 is its own successor
        ");
        assert_eq!(guide(&port).unwrap(), "docs/guide/reasons.md#link-broken-ring");
        let counters = PortCounters { rx_drops: vec![(DropReason::RingFull, 3)], ..PortCounters::default() };
        let set =
            GuestMac { effective_mac: Some("02:66:00:00:00:01".parse().unwrap()), ..GuestMac::default() };
        let rejected = GuestMac { mac_rejected: true, ..set };
        let moved = PortInfo { reason: None, guest_mac: rejected, ..port.clone() };
        insta::assert_snapshot!(table(&[moved]).lines().last().unwrap(), @"port 1 (vm/db1/nic0): receives no frames: its guest has changed its address to 02:66:00:00:00:01, which the port group rejects");
        let taken = PortInfo { reason: None, guest_mac: GuestMac { mac_taken: true, ..set }, ..port.clone() };
        insta::assert_snapshot!(table(&[taken]).lines().last().unwrap(), @"port 1 (vm/db1/nic0): keeps 02:00:00:00:00:01: its guest has changed its address to 02:66:00:00:00:01, which another port has or no card can have");
        let silent = PortInfo { reason: None, link: Link::Up, counters, ..port };
        insta::assert_snapshot!(table(&[silent]).lines().last().unwrap(), @"port 1 (vm/db1/nic0): no frame was ever received: the guest has posted no receive buffers");
    }
}
