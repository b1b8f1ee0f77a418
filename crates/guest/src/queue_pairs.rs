//! `taut-guest queue-pairs`: the memory for queue pairs of this VM (decision record 0042).

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use taut_vmci_client::{Device, NotAttached, find_device};

/// Arguments of `taut-guest queue-pairs`.
#[derive(Debug, Args)]
pub(crate) struct QueuePairsArgs {
    /// The device to look at, instead of the first one with memory for queue pairs.
    #[arg(long, value_name = "PATH")]
    device: Option<PathBuf>,
}

/// Prints device, channels and rings. Exit status 1 if there are none, or if they cannot be used.
pub(crate) fn run(args: &QueuePairsArgs) -> ExitCode {
    match find_device(args.device.as_deref()) {
        Ok(device) => {
            print!("{}", described(&device));
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprint!("{}", refused(&reason));
            ExitCode::FAILURE
        }
    }
}

fn described(device: &Device) -> String {
    let Device { path, channels, ring_len } = device;
    let kib = ring_len / 1024;
    format!("device    {}\nchannels  {channels}\nrings     {kib} KiB, two a channel\n", path.display())
}

fn refused(reason: &NotAttached) -> String {
    format!("error: {}\nhint: {}\n", reason.with_causes(), reason.hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_described_and_a_reason_has_its_hint() {
        let device = Device { path: "/dev/dax0.0".into(), channels: 31, ring_len: 256 << 10 };
        let text = "device    /dev/dax0.0\nchannels  31\nrings     256 KiB, two a channel\n";
        assert_eq!(described(&device), text);
        let reason = find_device(Some("/nonexistent/dax0.0".as_ref())).unwrap_err();
        let text = refused(&reason);
        assert!(text.starts_with("error: there is no device") && text.contains("\nhint: set"), "{text}");
    }
}
