//! Moderation of a guest's interrupts and kicks (row VN-11; ESX: interrupt coalescing).
//!
//! A vNIC's queue has up to two moderators, and each answers one question:
//!
//! * [`Interrupts`], for both directions: may the fabric interrupt the guest now, and when at the
//!   latest?
//! * [`Kicks`], for the transmit direction: may the guest kick the fabric, and when does the fabric
//!   look at the ring by itself?
//!
//! Moderators know neither rings nor clocks: events and the time are arguments, so every scheme can
//! be tested without a guest. The port keeps them beside the ring, under the ring's lock
//! (`port::vnic`), and its worker keeps the timers for their answers.
//!
//! | [`Coalescing`] | interrupts | kicks |
//! |---|---|---|
//! | `disabled` | at once | at once |
//! | `static` | after so many packets, or 4 ms after the first | disabled while frames come |
//! | `rbc` | at most at the given rate, unless waiting gathers no packets | at once |
//! | `adapt` | after as many packets as come in 50 µs, or after 50 µs | at once |
//! | `dense` | after 64 packets, or at the next tick | disabled until the guest is idle |
//!
//! With `static`, the ring is looked at when so many packets are expected, after 4 ms at the
//! latest. With `dense`, it is looked at in common ticks, until 16 of them have found nothing.
//!
//! A *tick* comes every 4 ms, for all queues at the same time. A worker therefore wakes up once for
//! all its guests, however many they are (row DM-3).
//!
//! No scheme holds an interrupt back when half of the ring waits to be seen, when the guest has run
//! out of buffers, or when the ring is stopped. Moderation applies only to interrupts that the
//! guest wants: packets for a guest that polls its ring (NAPI) are not counted.

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
