//! The daemon: store, reconcile loop, HTTP API.
fn main() {}
