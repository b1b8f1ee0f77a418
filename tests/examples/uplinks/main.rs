//! Measures teams of uplinks; the program itself is the switch outside.
//!
//! * `uplinks failover LOSSES DEAD` takes the carrier from an active uplink so many times, the last
//!   DEAD times without `tautd`, while a port sends a frame each millisecond.
//! * `uplinks veth LOSSES DEAD` does the same on veth, with datagrams and a TCP connection.
//! * `uplinks restart TIMES` replaces the fabric so many times, half of them by an upgrade.
//! * `uplinks both TIMES` kills fabric and daemon together on veth, and starts the daemon again.
//! * `uplinks flood FRAMES` sends each frame to both uplinks of a team, and what its port has sent
//!   back to both, under each policy for which a port has one uplink.
//! * `uplinks load RUNS` makes an uplink busy with two ports, and waits until one of them moves.
//! * `uplinks flows COUNT` sends flows under ip-hash.
//! * `uplinks announce PORTS` takes the carrier from the uplink of so many ports.
//! * `uplinks netdev TIMES` moves an interface from a bridge to a port group and back.
//! * `uplinks shares SECONDS` divides an uplink between ports that send more than it can take.
//! * `uplinks path TIMES SECONDS` lets the path of an uplink die so many times, for a gateway and
//!   for beacons, and then come and go for so long.
//! * `uplinks capture MIB` captures a TCP stream of so many MiB between two namespaces.
//! * `uplinks rates WAY DIRECTION SIZE SECONDS` has as many frames as possible pass an uplink on
//!   veth, whose backend is WAY (`packet`, `xdp`), or a Linux bridge (`bridge`), out of a port
//!   (`out`) or into it (`in`).
//! * `uplinks rates-of SOCKET END DIRECTION SIZE SECONDS` has them pass another switch, with a port
//!   at a vhost-user socket and a cable that ends at the interface END.
//!
//! Each prints one line of JSON.

mod announce;
mod both;
mod capture;
mod failover;
mod flood;
mod flows;
mod load;
mod netdev;
mod path;
mod rates;
mod restart;
mod rig;
mod shares;
mod veth;

use std::error::Error;
use std::path::Path;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = match words[..] {
        ["failover", losses, dead] => failover::run(losses.parse()?, dead.parse()?)?,
        ["veth", losses, dead] => veth::run(losses.parse()?, dead.parse()?)?,
        ["restart", times] => restart::run(times.parse()?)?,
        ["both", times] => both::run(times.parse()?)?,
        ["flood", frames] => flood::run(frames.parse()?),
        ["load", runs] => load::run(runs.parse()?)?,
        ["flows", count] => flows::run(count.parse()?),
        ["announce", ports] => announce::run(ports.parse()?),
        ["netdev", times] => netdev::run(times.parse()?)?,
        ["shares", seconds] => shares::run(seconds.parse()?)?,
        ["path", times, seconds] => path::run(times.parse()?, seconds.parse()?)?,
        ["capture", mib] => capture::run(mib.parse()?)?,
        ["rates", way, direction, size, seconds] => {
            rates::run(way, &rates::Load::new(direction, size.parse()?, seconds.parse()?)?)?
        }
        ["rates-of", socket, end, direction, size, seconds] => {
            let load = rates::Load::new(direction, size.parse()?, seconds.parse()?)?;
            rates::run_other(Path::new(socket), end, &load)?
        }
        _ => return Err("usage: uplinks failover LOSSES DEAD | veth LOSSES DEAD | restart TIMES | both TIMES | flood FRAMES | load RUNS | flows COUNT | announce \
                         PORTS | netdev TIMES | shares SECONDS | path TIMES SECONDS | capture MIB | rates WAY DIRECTION SIZE SECONDS | \
                         rates-of SOCKET END DIRECTION SIZE SECONDS"
            .into()),
    };
    println!("{found}");
    Ok(())
}
