//! The driver end of virtqueues.
