//! `unpack MACHINE FOLDER`: a captured machine as a folder, for `taut check host --root FOLDER`.

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(machine), Some(folder)) = (args.next(), args.next()) else {
        return Err(io::Error::other("usage: unpack MACHINE FOLDER"));
    };
    taut_host::observe::captured::unpack(&std::fs::read_to_string(machine)?, Path::new(&folder))
}
