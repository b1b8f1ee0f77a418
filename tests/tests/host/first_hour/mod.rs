//! Mistakes and accidents of a user's first hour: each is told as it is, and none is hidden.

mod concurrent;
mod create;
mod failure;
mod namespace;
mod oversize;
mod second_daemon;
mod shaping;
mod start;
mod stop;
mod units;
mod vmci;
