//! Mistakes and accidents of a user's first hour: each is told as it is, and none is hidden.

mod attachment;
mod concurrent;
mod create;
mod echo;
mod failure;
mod leftovers;
mod namespace;
mod oversize;
mod profile;
mod router;
mod second_daemon;
mod settings;
mod shaping;
mod start;
mod stop;
mod units;
mod upgrade;
mod vmci;
mod wording;
