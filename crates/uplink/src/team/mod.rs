//! Teaming: several uplinks of one vSwitch, under ESX's names and with ESX's defaults.
//!
//! From the bottom up:
//!
//! * `set`: numbers of uplinks, and sets of them;
//! * `key`: numbers by which a frame chooses an uplink;
//! * `link`: usable uplinks, by what is seen of their links;
//! * `probe`: uplinks with a path beyond their links, by beacons or a gateway;
//! * `probe_frame`: the frames for that;
//! * `order`: uplinks that a team uses of these (active, standby, failback), and the one for a key;
//! * `load`: ports that leave a busy uplink;
//! * `path`: uplinks at which a port receives, so that a switch that floods causes no duplicates;
//! * `statement`, `known`: IP addresses of ports, by the frames of their stations;
//! * `announce`: frames that tell physical switches and hosts where an address is now, and their
//!   pace;
//! * `neighbour`: the frames of IPv6 among these;
//! * `frame`: parts of all of them.

mod announce;
mod frame;
mod key;
mod known;
mod link;
mod load;
mod neighbour;
mod order;
mod path;
mod probe;
mod probe_frame;
mod set;
mod statement;

pub use announce::{Announcements, BURST, announcement, ip_announcement};
pub use key::{address_key, ip_key, mac_key};
pub use known::{IpPlace, Known};
pub use link::{LinkRules, Links};
pub use load::{LoadRules, Loads, Move, PortSecond, UplinkSecond, Usage};
pub use order::{Order, Policy, Team};
pub use path::{FORMER_NS, Path};
pub use probe::{BACK_NS, INTERVAL_NS, LOST_NS, Probes};
pub use probe_frame::{Expected, Proof, Sender, beacon, question};
pub use set::{MOST_UPLINKS, Set, Uplink};
pub use statement::{Statement, may_be_statement, statement};
