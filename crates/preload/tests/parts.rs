//! Unit tests of parts of the examples.
#![allow(dead_code, reason = "the tests use some functions of each part")]

#[path = "../examples/tcp_program/model/allowed.rs"]
mod allowed;
#[path = "../examples/tcp_transfer/c_calls.rs"]
mod c_calls;
#[path = "../examples/tcp_transfer/helper.rs"]
mod helper;
#[path = "../examples/tcp_program/model/operation.rs"]
mod operation;
#[path = "../examples/tcp_transfer/options.rs"]
mod options;
#[path = "../examples/tcp_transfer/pattern.rs"]
mod pattern;
#[path = "../examples/tcp_transfer/rest.rs"]
mod rest;
#[path = "../examples/tcp_transfer/transfer.rs"]
mod transfer;
#[path = "../examples/tcp_transfer/ways.rs"]
mod ways;
