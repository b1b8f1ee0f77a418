//! Models of what threads share without a lock. Loom runs each through every order of its steps
//! that the memory model of the language allows.
//!
//! `doze`, `extent` and `wait` are source files of the product, compiled with loom's atomics in
//! place of those of the standard library.
#![allow(dead_code, reason = "the models use a part of each file")]

#[cfg(test)]
mod doze_tests;
mod memory;
mod ring;
mod sys;
