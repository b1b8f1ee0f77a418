//! Teaming: several uplinks of one vSwitch, under ESX's names and with ESX's defaults.
//!
//! From the bottom up:
//!
//! * `set`: numbers of uplinks, and sets of them;
//! * `key`: what of a port or a frame chooses an uplink;
//! * `link`: which uplinks are usable, from what is seen of their links;
//! * `probe`: which uplinks have a path although their links are up: beacons, and a gateway;
//! * `order`: which of these a team uses: active and standby uplinks, failback, and the uplink for
//!   a key;
//! * `load`: which port leaves a busy uplink;
//! * `path`: at which uplinks a port receives, so that a switch that floods causes no duplicates;
//! * `announce`: frames that tell physical switches where an address is now, and their pace.

mod announce;
mod key;
mod link;
mod load;
mod order;
mod path;
mod probe;
mod set;

pub use announce::{Address, Announcements, BURST, announcements_of};
pub use key::{ip_key, mac_key};
pub use link::{LinkRules, Links};
pub use load::{LoadRules, Loads, Move, Usage};
pub use order::{Order, Policy, Team};
pub use path::{FORMER_NS, Path};
pub use probe::{BACK_NS, INTERVAL_NS, LOST_NS, Probes};
pub use set::{MOST_UPLINKS, Set, Uplink};
