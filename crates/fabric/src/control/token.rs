//! Tokens of the control thread's events. A port's number is added to the tokens of its sockets,
//! and a capture's number to that of its socket.

/// Mask of the bits that tell the kind of an event.
pub(super) const KIND: u64 = !0xffff;
/// `tautd` connects.
pub(super) const CONTROL: u64 = 1 << 16;
/// `tautd` has sent a message.
pub(super) const TAUTD: u64 = 2 << 16;
/// A worker has reported incidents.
pub(super) const ALARM: u64 = 3 << 16;
/// A port's front end has sent a request.
pub(super) const FRONT_END: u64 = 4 << 16;
/// A front end connects to a port.
pub(super) const LISTENER: u64 = 5 << 16;
/// The vsock thread has reported events.
pub(super) const VSOCK: u64 = 6 << 16;
/// A front end has blocked a thread, or taken away memory.
pub(super) const HARM: u64 = 7 << 16;
/// The reader of a capture has gone.
pub(super) const CAPTURE: u64 = 8 << 16;
