//! Tests of the whole switch, without its thread, with guests that have rings of their own.

mod bulk;
mod closing;
mod handover;
mod host;
mod host_full;
mod hostile;
mod isolation;
mod model;
mod moderation;
mod pairs;
mod records;
mod rig;
mod streams;
