//! `libtaut_vmci_c`: queue pairs for C programs. `include/taut_vmci.h` says what each function
//! does.
//!
//! - `border`: the functions that C programs call; the only place with unsafe code.
//! - `errors`: `errno` for each error of the client library.
//!
//! The state of a connection is an [`Attached`](taut_vmci_client::Attached) behind a pointer.

pub mod border;
mod errors;
