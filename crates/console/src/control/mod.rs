//! The border between `tautd` and the console process.
//!
//! `tautd` connects to a listening socket and asks; the process answers each request, in their
//! order. A message is one packet of JSON ([`message`]); descriptors travel with it ([`channel`]).

pub mod caller;
pub mod channel;
pub mod message;
