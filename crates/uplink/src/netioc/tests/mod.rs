//! The scheduler in virtual time, beside what the rules promise.

mod bench;
mod limits;
mod reservations;
mod shares;
mod state;
mod turns;
