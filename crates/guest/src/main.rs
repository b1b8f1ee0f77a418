//! The binary for inside a VM: workload end points and agent, and process 1 of a directly booted guest.

mod init;

fn main() {
    if init::is_wanted() {
        init::run();
    }
}
