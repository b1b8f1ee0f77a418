//! A device end is killed between any two stores, and another goes on: every packet comes back once.

/// A moment at which a process may be killed.
pub(super) fn moment() {}
