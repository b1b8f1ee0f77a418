//! `taut-image`: makes guest images for direct boot.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Make guest images for direct boot.
#[derive(Debug, Parser)]
#[command(name = "taut-image", version)]
enum Command {
    /// Make an image from a Debian kernel package and taut's static guest binary.
    Build {
        /// The package, as `apt-get download linux-image-…` leaves it.
        #[arg(long, value_name = "FILE")]
        kernel_deb: PathBuf,
        /// The static binary that becomes /init.
        #[arg(long, value_name = "FILE")]
        init: PathBuf,
        /// Folder for vmlinuz, initrd and info.json.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

fn main() -> ExitCode {
    let Command::Build { kernel_deb, init, out } = Command::parse();
    match taut_vm::image::build(&kernel_deb, &init, &out) {
        Ok(info) => {
            println!("{}: Linux {} with {} modules", out.display(), info.kernel, info.modules.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: cannot make the image: {error}");
            eprintln!("hint: use a Debian linux-image package, and install dpkg-deb, depmod (kmod) and xz");
            ExitCode::FAILURE
        }
    }
}
