//! Measures streams and ping-pongs between two machines, over queue pairs, over packets of
//! `AF_VSOCK`, or over TCP. Prints JSON.
//!
//! `qp_pump listen 7000` in one guest, `qp_pump connect 12 7000 --bytes 1G --size 256,4K,64K` in
//! another, where 12 is the context ID of the first. Both sides attach their ends on their own;
//! `--packets` leaves that out.

mod arguments;
mod client;
mod line;
mod opening;
mod server;

use clap::Parser as _;

fn main() -> anyhow::Result<()> {
    match arguments::Arguments::parse().command {
        arguments::Command::Listen(listen) => server::run(&listen),
        arguments::Command::Connect(connect) => client::run(&connect),
    }
}
