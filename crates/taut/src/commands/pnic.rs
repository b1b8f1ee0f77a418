//! `taut pnic`.

use std::fmt;
use std::str::FromStr;

use clap::{Args, Subcommand};
use taut_api::error::ErrorKind;
use taut_api::pnic::{
    Duplex, Offload, OffloadFacts, ParameterFacts, ParameterGroup, PnicFacts, PnicParameter, PnicSettings,
    PnicStatus,
};
use taut_api::route::{DaemonInfo, Pnic};
use taut_api::word::{on_off, on_or_off};
use taut_api::{ApiError, Name, path};

use crate::client::Client;
use crate::commands::settle;
use crate::output::{self, Outcome, Output};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the physical network cards of this host, with driver, link, speed, and the virtual
    /// switch that each is an uplink of
    List,
    /// Show one card: link, speed, settings with their largest values, offloads, statistics
    Show {
        /// Network interface, as `ip link` lists it
        #[arg(value_name = "INTERFACE")]
        name: Name,
    },
    /// Change settings of a card at once; others keep their values. The value default gives back
    /// the one that the card had before taut changed it. Some changes interrupt the link for a
    /// moment
    Set(SetArgs),
    /// Give all settings of a card back as they were before
    Reset {
        /// Network interface
        #[arg(value_name = "INTERFACE")]
        name: Name,
    },
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// Network interface, as `ip link` lists it
    #[arg(value_name = "INTERFACE")]
    name: Name,
    #[command(flatten)]
    settings: SettingArgs,
}

/// The settings to change, at least one.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct SettingArgs {
    /// Speed of the link in Mbit/s. With autonegotiation it is the only one that the card offers
    #[arg(long, value_name = "MBIT|default")]
    speed: Option<OrDefault<u32>>,
    /// Duplex mode of the link
    #[arg(long, value_name = "half|full|default")]
    duplex: Option<OrDefault<Duplex>>,
    /// Negotiation of speed and duplex mode with the other end
    #[arg(long, value_name = "on|off|default")]
    autoneg: Option<OrDefault<Switch>>,
    /// Descriptors of each receive ring
    #[arg(long, value_name = "N|default")]
    rx_ring: Option<OrDefault<u32>>,
    /// Descriptors of each transmit ring
    #[arg(long, value_name = "N|default")]
    tx_ring: Option<OrDefault<u32>>,
    /// Channels with a receive and a transmit queue
    #[arg(long, value_name = "N|default")]
    channels: Option<OrDefault<u32>>,
    /// Channels with a receive queue alone
    #[arg(long, value_name = "N|default")]
    rx_channels: Option<OrDefault<u32>>,
    /// Channels with a transmit queue alone
    #[arg(long, value_name = "N|default")]
    tx_channels: Option<OrDefault<u32>>,
    /// Microseconds that the interrupt of a received frame may wait; 0 for none
    #[arg(long, value_name = "N|default")]
    rx_usecs: Option<OrDefault<u32>>,
    /// Received frames after which the interrupt comes at once
    #[arg(long, value_name = "N|default")]
    rx_frames: Option<OrDefault<u32>>,
    /// Microseconds that the interrupt after a sent frame may wait; 0 for none
    #[arg(long, value_name = "N|default")]
    tx_usecs: Option<OrDefault<u32>>,
    /// Sent frames after which the interrupt comes at once
    #[arg(long, value_name = "N|default")]
    tx_frames: Option<OrDefault<u32>>,
    /// Adaptation of the receive side's interrupts to the load, by the driver
    #[arg(long, value_name = "on|off|default")]
    adaptive_rx: Option<OrDefault<Switch>>,
    /// The same for the transmit side
    #[arg(long, value_name = "on|off|default")]
    adaptive_tx: Option<OrDefault<Switch>>,
    /// Virtual functions (SR-IOV), which can be passed through to VMs
    #[arg(long, value_name = "N|default")]
    vfs: Option<OrDefault<u32>>,
    /// An offload: tso, gso, gro, lro, rx-checksum, tx-checksum, rxvlan or txvlan. Can be given
    /// several times
    #[arg(long = "offload", value_name = "OFFLOAD=on|off|default", value_parser = offload)]
    offloads: Vec<(Offload, OrDefault<Switch>)>,
}

/// A new value, or (`None`) the one that the card had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OrDefault<T>(Option<T>);

impl<T: FromStr<Err: fmt::Display>> FromStr for OrDefault<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|error| format!("{error}; or write default"))
    }
}

/// A value that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Switch(bool);

impl FromStr for Switch {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        on_or_off(text).map(Self)
    }
}

fn offload(text: &str) -> Result<(Offload, OrDefault<Switch>), String> {
    let (offload, value) = text.split_once('=').ok_or("write it as OFFLOAD=on, =off or =default")?;
    Ok((offload.parse()?, value.parse()?))
}

impl SettingArgs {
    /// Makes the changes in the settings of a card.
    fn change(&self, settings: &mut PnicSettings) {
        if let Some(OrDefault(speed)) = self.speed {
            settings.speed_mbit = speed;
        }
        if let Some(OrDefault(duplex)) = self.duplex {
            settings.duplex = duplex;
        }
        if let Some(OrDefault(autoneg)) = self.autoneg {
            settings.autoneg = autoneg.map(|Switch(on)| on);
        }
        let numbers = [
            (PnicParameter::RxRing, self.rx_ring),
            (PnicParameter::TxRing, self.tx_ring),
            (PnicParameter::Channels, self.channels),
            (PnicParameter::RxChannels, self.rx_channels),
            (PnicParameter::TxChannels, self.tx_channels),
            (PnicParameter::RxUsecs, self.rx_usecs),
            (PnicParameter::RxFrames, self.rx_frames),
            (PnicParameter::TxUsecs, self.tx_usecs),
            (PnicParameter::TxFrames, self.tx_frames),
            (PnicParameter::Vfs, self.vfs),
        ];
        let number = |switch: OrDefault<Switch>| OrDefault(switch.0.map(|Switch(on)| u32::from(on)));
        let switches = [
            (PnicParameter::AdaptiveRx, self.adaptive_rx.map(number)),
            (PnicParameter::AdaptiveTx, self.adaptive_tx.map(number)),
        ];
        for (parameter, value) in numbers.into_iter().chain(switches) {
            if let Some(OrDefault(value)) = value {
                settings.set_parameter(parameter, value);
            }
        }
        for (offload, OrDefault(value)) in &self.offloads {
            match value {
                Some(Switch(on)) => settings.offloads.insert(*offload, *on),
                None => settings.offloads.remove(offload),
            };
        }
    }
}

pub(crate) fn run(command: Command, client: &Client, out: Output) -> Outcome {
    match command {
        Command::List => {
            let all: Vec<Pnic> = client.get(path::PNICS)?;
            output::print(out.format, &all, |all| table(all));
        }
        Command::Show { name } => output::print(out.format, &client.get(&path::PNIC.of(&name))?, show),
        Command::Set(SetArgs { name, settings }) => {
            let path = path::PNIC.of(&name);
            let changed: Pnic = client.change(&path, |mut spec: PnicSettings| {
                settings.change(&mut spec);
                spec
            })?;
            settle(client, changed.revision);
            let now: Pnic = client.get(&path)?;
            check(&now)?;
            out.changed(&now, in_force);
        }
        Command::Reset { name } => {
            let path = path::PNIC.of(&name);
            client.delete(&path)?;
            let daemon: DaemonInfo = client.get(path::DAEMON)?;
            settle(client, daemon.revision);
            let now: DaemonInfo = client.get(path::DAEMON)?;
            if now.reconciled < daemon.revision {
                return Err(pending(&name));
            }
            match client.get(&path) {
                Ok(now) => check(&now)?,
                // A card that is gone has nothing to give back.
                Err(ApiError { kind: ErrorKind::NotFound, .. }) => {}
                Err(error) => return Err(error),
            }
            out.deleted("card", &name, "reset; every setting is as it was before taut changed it");
        }
    }
    Ok(())
}

/// Returns an error if the card is not as wanted.
fn check(pnic: &Pnic) -> Result<(), ApiError> {
    let Pnic { name, status, .. } = pnic;
    if status.in_force {
        return Ok(());
    }
    if status.problems.is_empty() {
        return Err(pending(name));
    }
    Err(ApiError {
        causes: status.problems.clone(),
        ..ApiError::new(
            ErrorKind::Unavailable,
            format!("the card {name} is not as it should be"),
            format!(
                "choose other values; or give settings up: taut pnic set {name} --OPTION default, or all of them: \
                 taut pnic reset {name}"
            ),
        )
    })
}

/// Describes a card that the daemon has not set yet.
fn pending(name: &Name) -> ApiError {
    ApiError::new(
        ErrorKind::Unavailable,
        format!("the settings of the card {name} are stored, but not in force yet"),
        format!("its driver or the daemon may be busy: taut pnic show {name}, taut events"),
    )
}

/// Renders the settings in one line.
fn in_force(pnic: &Pnic) -> String {
    let Pnic { name, spec, status: PnicStatus { card, .. }, .. } = pnic;
    let card = card.clone().unwrap_or_default();
    format!("card {name}: settings of taut: {spec}; link {}", link(&card))
}

/// Renders the link in a few words.
fn link(card: &PnicFacts) -> String {
    let speed = card.speed_mbit.map(|speed| format!(", {speed} Mbit/s"));
    let duplex = card.duplex.map(|duplex| format!(", {duplex} duplex"));
    let autoneg = card.autoneg.map(|on| if on { ", negotiated" } else { ", not negotiated" });
    format!(
        "{}{}{}{}",
        output::word(&card.link),
        speed.unwrap_or_default(),
        duplex.unwrap_or_default(),
        autoneg.unwrap_or_default()
    )
}

fn table(pnics: &[Pnic]) -> String {
    let row = |pnic: &Pnic| {
        let Pnic { name, spec, status, .. } = pnic;
        let card = status.card.clone().unwrap_or_default();
        [
            name.to_string(),
            card.driver.unwrap_or_default(),
            status.card.as_ref().map_or_else(|| "absent".to_owned(), |card| output::word(&card.link)),
            card.speed_mbit.map(|speed| format!("{speed} Mbit/s")).unwrap_or_default(),
            card.duplex.map(|duplex| duplex.to_string()).unwrap_or_default(),
            card.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            status.vswitch.as_ref().map(Name::to_string).unwrap_or_default(),
            spec.to_string(),
        ]
    };
    let rows: Vec<_> = pnics.iter().map(row).collect();
    let header = ["CARD", "DRIVER", "LINK", "SPEED", "DUPLEX", "MAC", "UPLINK OF", "SETTINGS"];
    let mut text = output::table(header, &rows);
    for pnic in pnics {
        for problem in &pnic.status.problems {
            text += &format!("{}: {problem}\n", pnic.name);
        }
    }
    text
}

fn show(pnic: &Pnic) -> String {
    let Pnic { name, revision, spec, status } = pnic;
    let PnicStatus { card, vswitch, problems, .. } = status;
    let nothing = PnicFacts::default();
    let facts = card.as_ref().unwrap_or(&nothing);
    let modes = facts.modes.iter().map(|mode| format!("{} {}", mode.speed_mbit, mode.duplex));
    let mut text = output::fields(&[
        ("card", name.to_string()),
        ("driver", facts.driver.clone().unwrap_or_default()),
        ("link", card.as_ref().map_or_else(|| "absent".to_owned(), link)),
        ("supports", modes.collect::<Vec<_>>().join(", ")),
        ("mac", facts.mac.map(|mac| mac.to_string()).unwrap_or_default()),
        ("mtu", card.as_ref().map(|card| card.mtu.to_string()).unwrap_or_default()),
        ("uplink of", vswitch.as_ref().map(Name::to_string).unwrap_or_default()),
        ("functions", facts.virtual_functions.join(", ")),
        ("settings", spec.to_string()),
        ("problems", problems.join("; ")),
        ("revision", if *revision == 0 { String::new() } else { revision.to_string() }),
    ]);
    text += &settings(spec, facts);
    let is_of_interest = |(counter, count): &(&String, &u64)| **count > 0 || is_basic(counter);
    let counters = facts.statistics.iter().filter(is_of_interest);
    let counters: Vec<_> = counters.map(|(counter, count)| [counter.clone(), count.to_string()]).collect();
    if !counters.is_empty() {
        text += "\n";
        text += &output::table(["STATISTICS", "COUNT"], &counters);
    }
    text
}

/// Renders what the card has, and what taut has set.
fn settings(spec: &PnicSettings, facts: &PnicFacts) -> String {
    let set = |is_set: bool| if is_set { "taut" } else { "" }.to_owned();
    let parameters = facts.parameters.iter().map(|(parameter, ParameterFacts { value, max })| {
        [
            parameter.to_string(),
            parameter.text(*value),
            max.map(|max| format!("{} to {max}", u32::from(parameter.group() == ParameterGroup::Rings)))
                .unwrap_or_default(),
            set(spec.parameter(*parameter).is_some()),
        ]
    });
    let offloads = facts.offloads.iter().map(|(offload, OffloadFacts { on, fixed })| {
        [
            offload.to_string(),
            on_off(*on).to_owned(),
            if *fixed { "fixed" } else { "on, off" }.to_owned(),
            set(spec.offloads.contains_key(offload)),
        ]
    });
    let rows: Vec<_> = parameters.chain(offloads).collect();
    if rows.is_empty() {
        String::new()
    } else {
        "\n".to_owned() + &output::table(["SETTING", "VALUE", "ALLOWED", "SET BY"], &rows)
    }
}

/// Returns whether a counter is shown even if it is 0.
fn is_basic(counter: &str) -> bool {
    ["rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "tx_bytes", "tx_packets", "tx_errors", "tx_dropped"]
        .contains(&counter)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        command: Command,
    }

    /// Returns the settings of a card that has some after a command line, or the error.
    fn set(line: &str) -> Result<String, String> {
        let words = ["pnic", "set", "eth1"].into_iter().chain(line.split_whitespace());
        let matches = Cli::command().try_get_matches_from(words).map_err(|error| error.to_string())?;
        let Command::Set(args) = Cli::from_arg_matches(&matches).unwrap().command else { panic!("not set") };
        let before =
            serde_json::json!({ "speed_mbit": 100, "rings": { "rx": 64 }, "offloads": { "gro": false } });
        let mut settings = serde_json::from_value(before).unwrap();
        args.settings.change(&mut settings);
        Ok(settings.to_string())
    }

    #[test]
    fn options_change_what_they_name_and_nothing_else() {
        assert_eq!(
            set("--speed 1000 --duplex full --autoneg off").unwrap(),
            "speed 1000, duplex full, autoneg off, rx-ring 64, gro off"
        );
        assert_eq!(
            set("--rx-ring 512 --tx-ring 512 --channels 4 --rx-usecs 0 --adaptive-rx off --offload tso=off \
                 --offload lro=on")
            .unwrap(),
            "speed 100, channels 4, rx-ring 512, tx-ring 512, rx-usecs 0, adaptive-rx off, tso off, gro off, lro on"
        );
        assert_eq!(
            set("--rx-channels 2 --tx-channels 3 --rx-frames 8 --tx-usecs 9 --tx-frames 7 --adaptive-tx on")
                .unwrap(),
            "speed 100, rx-channels 2, tx-channels 3, rx-ring 64, rx-frames 8, tx-usecs 9, tx-frames 7, \
             adaptive-tx on, gro off"
        );
        assert_eq!(set("--speed default --rx-ring default --offload gro=default").unwrap(), "none");
        assert_eq!(set("--adaptive-rx default --duplex default").unwrap(), "speed 100, rx-ring 64, gro off");
    }

    #[test]
    fn words_that_are_no_values_are_refused_with_those_that_are() {
        for (line, told) in [
            ("", "required"),
            ("--speed fast", "or write default"),
            ("--speed -1", "--speed"),
            ("--rx-ring 4294967296", "or write default"),
            ("--duplex both", "write half or full; or write default"),
            ("--autoneg maybe", "write on or off; or write default"),
            ("--offload tso", "write it as OFFLOAD=on, =off or =default"),
            ("--offload ufo=on", "`ufo` is not an offload: write tso, gso, gro"),
            ("--offload tso=yes", "write on or off"),
        ] {
            let error = set(line).unwrap_err();
            assert!(error.contains(told), "{line}: {error}");
        }
    }

    fn igb() -> Pnic {
        let document = serde_json::json!({
            "name": "eth1", "revision": 7,
            "spec": { "speed_mbit": 1000, "rings": { "rx": 512 }, "offloads": { "tso": false } },
            "status": {
                "in_force": true, "vswitch": "prod", "card": {
                    "driver": "igb", "mac": "02:00:00:00:00:09", "mtu": 1500, "link": "up",
                    "speed_mbit": 1000, "duplex": "full", "autoneg": true,
                    "modes": [{ "speed_mbit": 100, "duplex": "full" }, { "speed_mbit": 1000, "duplex": "full" }],
                    "parameters": {
                        "rx-ring": { "value": 512, "max": 4096 },
                        "rx-usecs": { "value": 3 }, "adaptive-rx": { "value": 1 },
                    },
                    "offloads": { "tso": { "on": false, "fixed": false }, "lro": { "on": false, "fixed": true } },
                    "statistics": { "rx_bytes": 7, "rx_errors": 0, "collisions": 0, "multicast": 3 },
                },
            },
        });
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_card_is_shown_with_what_it_has_and_what_is_set() {
        insta::assert_snapshot!(show(&igb()), @r"
        card       eth1
        driver     igb
        link       up, 1000 Mbit/s, full duplex, negotiated
        supports   100 full, 1000 full
        mac        02:00:00:00:00:09
        mtu        1500
        uplink of  prod
        settings   speed 1000, rx-ring 512, tso off
        revision   7

        SETTING      VALUE  ALLOWED    SET BY
        rx-ring      512    1 to 4096  taut
        rx-usecs     3
        adaptive-rx  on
        tso          off    on, off    taut
        lro          off    fixed

        STATISTICS  COUNT
        multicast       3
        rx_bytes        7
        rx_errors       0
        ");
        assert_eq!(
            in_force(&igb()),
            "card eth1: settings of taut: speed 1000, rx-ring 512, tso off; link up, 1000 Mbit/s, full duplex, \
             negotiated"
        );
    }

    #[test]
    fn cards_are_listed_with_what_is_wrong() {
        let mut gone = igb();
        gone.status = serde_json::from_value(serde_json::json!({
            "in_force": false, "problems": ["the host has no such interface now"]
        }))
        .unwrap();
        insta::assert_snapshot!(table(&[igb(), gone.clone()]), @r"
        CARD  DRIVER  LINK    SPEED        DUPLEX  MAC                UPLINK OF  SETTINGS
        eth1  igb     up      1000 Mbit/s  full    02:00:00:00:00:09  prod       speed 1000, rx-ring 512, tso off
        eth1          absent                                                     speed 1000, rx-ring 512, tso off
        eth1: the host has no such interface now
        ");
        assert_eq!(check(&igb()), Ok(()));
        let mut waiting = igb();
        waiting.status.in_force = false;
        let error = check(&waiting).unwrap_err();
        assert!(error.message.ends_with("not in force yet"), "{error}");
        let error = check(&gone).unwrap_err();
        assert_eq!(error.causes, gone.status.problems);
        assert!(error.hint.contains("taut pnic reset eth1"), "{error}");
    }
}
