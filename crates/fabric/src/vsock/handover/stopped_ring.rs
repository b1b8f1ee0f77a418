//! A stopped transmit ring in the counters file: the next fabric recognises the ring by it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::compiler_fence;

use taut_api::fabric::counters::SocketWord;
use taut_virtq::Start;

use crate::vsock::guest::{DeviceCounters, RingPlace};

/// Writes down where a guest's transmit ring has stopped; `None` while it runs.
///
/// The first word says whether there is such a ring. A process that is killed in between must not
/// leave a ring that is half written.
pub(crate) fn write_stopped(counters: &DeviceCounters, place: Option<RingPlace>) {
    let [first, others @ ..] = place.map_or([0; 4], to_words);
    let words = counters.words_from(SocketWord::Stopped);
    // A process that is killed has made all of its stores up to there. So only the compiler's order
    // matters.
    words[0].store(0, Relaxed);
    compiler_fence(SeqCst);
    for (word, value) in words[1..].iter().zip(others) {
        word.store(value, Relaxed);
    }
    compiler_fence(SeqCst);
    words[0].store(first, Relaxed);
}

/// Returns where a guest's transmit ring has stopped under the last fabric.
pub(crate) fn read_stopped(counters: &DeviceCounters) -> Option<RingPlace> {
    let words = counters.words_from(SocketWord::Stopped);
    from_words([0, 1, 2, 3].map(|at| words[at].load(Relaxed)))
}

/// A size of 0 says that there is no ring.
fn to_words(place: RingPlace) -> [u64; 4] {
    let RingPlace { size, desc, avail, used, start } = place;
    let Start::At(position) = start else { return [0; 4] };
    [u64::from(size) << 16 | u64::from(position), desc, avail, used]
}

fn from_words([sizes, desc, avail, used]: [u64; 4]) -> Option<RingPlace> {
    let (size, start) = ((sizes >> 16) as u16, Start::At(sizes as u16));
    (size != 0).then_some(RingPlace { size, desc, avail, used, start })
}
