//! Guests with rings of their own on a switch without a thread.

mod bulk;
mod handover;
mod host;
mod hostile;
mod isolation;
mod model;
mod moderation;
mod rig;
mod streams;
