//! Moderation of a guest's interrupts and kicks (SPEC row VN-11; ESX: interrupt coalescing).
//!
//! A vNIC's queue has up to two moderators, and each answers one question. [`Interrupts`], of either direction: *may I
//! interrupt the guest now, and when at the latest?* [`Kicks`], of the transmit direction: *may the guest kick me, and
//! when do I look by myself?* They know no ring and no clock: what happened and the time are arguments, so every rule can
//! be tried out without a guest. The port keeps them beside the ring, under the ring's lock (`port::vnic`), and
//! its worker keeps the timers for their answers.
//!
//! | [`Coalescing`] | interrupts | kicks |
//! |---|---|---|
//! | `disabled` | at once | at once |
//! | `static` | for so many packets, or 4 ms after the first | while frames come, the ring is looked at when so many packets are likely to be there, at the latest after 4 ms |
//! | `rbc` | not closer together than the rate says, unless waiting gathers nothing | at once |
//! | `adapt` | for as many packets as come in 50 µs, or after 50 µs | at once |
//! | `dense` | for 64 packets, or at the next common tick | the ring is looked at in common ticks, until the guest has been silent for 16 of them |
//!
//! A *tick* comes every 4 ms, for all queues at the same time: so a worker wakes up once for all its guests, however many they
//! are (SPEC row DM-3).
//!
//! Whatever the scheme, an interrupt is held back neither when half of the ring is waiting to be seen, nor when the guest
//! has run out of buffers, nor when the ring is stopped. All of it applies only to interrupts that the guest wants: one
//! that polls its ring (NAPI) is not counted.

mod adapt;
mod clock;
mod interrupts;
mod kicks;
mod pending;
mod rbc;

pub use interrupts::{Interrupt, Interrupts};
pub use kicks::{Kicks, Look};
pub use taut_api::Coalescing;

#[cfg(test)]
mod tests;
