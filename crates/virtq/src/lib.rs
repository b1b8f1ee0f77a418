//! Guest memory and virtqueues, device end and driver end.
