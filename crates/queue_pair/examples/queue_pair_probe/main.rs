//! Maps the queue pairs of a guest as any program can that may open the device, for tests that run
//! it in a guest.
//!
//! - `queue_pair_probe DEVICE SIZE TEXT` prints what they consist of, and writes `TEXT` into the
//!   ring from the guest of the last channel, which no connection uses before all others.
//! - `queue_pair_probe garbage DEVICE SIZE ROUNDS SEED` writes garbage into all words.
//! - `queue_pair_probe search DEVICE SIZE TEXT` looks for a text in all that it can map.

mod garbage;
mod mapped;
mod search;

use std::error::Error;
use std::fs::OpenOptions;
use std::os::fd::AsFd as _;
use std::sync::Arc;

use taut_queue_pair::memory::Copying;
use taut_queue_pair::{Memory, Producer, Region, Role};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["garbage", device, size, rounds, seed] => {
            garbage::write(device, size.parse()?, rounds.parse()?, seed.parse()?)
        }
        ["search", device, size, text] => search::run(device, size.parse()?, text),
        [device, size, text] => probe(device, size, text),
        _ => Err("usage: queue_pair_probe [garbage | search] DEVICE SIZE …".into()),
    }
}

fn probe(device: &str, size: &str, text: &str) -> Result<(), Box<dyn Error>> {
    let file = OpenOptions::new().read(true).write(true).open(device)?;
    let memory = Memory::map(file.as_fd(), 0, size.parse()?)?;
    let header = memory.header().ok_or("the memory is shorter than its header")?;
    println!("queue pairs: magic {}", header[..8].escape_ascii());
    let region = Region::open(Arc::new(memory))?;
    let geometry = region.geometry();
    println!("queue pairs: {} channels with rings of {} bytes", geometry.channels(), geometry.ring_len());
    let last = region.channel(geometry.channels() - 1).ok_or("there is no channel")?;
    let mut producer = Producer::new(last, Role::Guest.produces(), Copying::Words);
    producer.write(text.as_bytes())?;
    producer.publish();
    println!("queue pairs: wrote {text}");
    Ok(())
}
