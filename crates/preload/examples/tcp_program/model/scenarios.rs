//! Fixed sequences of operations, one for each part of the semantics.

use super::driver::Side::{Agent, Own};
use super::driver::{Control, Driver, Side};
use super::operation::Kind;

/// A step: an end, what it does, and a number.
type Step = (Side, Kind, usize);

/// Ends of a connection without unread bytes.
const CLOSE: [Step; 4] =
    [(Own, Kind::Close, 0), (Agent, Kind::SettleEnd, 0), (Agent, Kind::Finish, 0), (Agent, Kind::Close, 0)];

const ALL: &[(&str, &[Step])] = &[
    (
        "half-close",
        &[
            (Own, Kind::Write, 1000),
            (Own, Kind::Shutdown, 0),
            (Own, Kind::Write, 1),
            (Own, Kind::Poll, 0),
            (Agent, Kind::SettleEnd, 1000),
            (Agent, Kind::Poll, 0),
            (Agent, Kind::Read, 4000),
            (Agent, Kind::Read, 1),
            (Agent, Kind::Poll, 0),
            (Agent, Kind::Write, 500),
            (Own, Kind::Settle, 500),
            (Own, Kind::Read, 4000),
            (Agent, Kind::Shutdown, 0),
            (Own, Kind::SettleEnd, 0),
            (Own, Kind::Poll, 0),
            (Own, Kind::Read, 1),
        ],
    ),
    (
        "poll-select-epoll",
        &[
            (Own, Kind::Watch, 0),
            (Own, Kind::Poll, 0),
            (Own, Kind::Select, 0),
            (Own, Kind::Events, 0),
            (Agent, Kind::Write, 10),
            (Own, Kind::Settle, 10),
            (Own, Kind::Poll, 0),
            (Own, Kind::Select, 0),
            (Own, Kind::Events, 0),
            (Own, Kind::Unread, 0),
            (Own, Kind::Read, 4),
            (Own, Kind::Events, 0),
            (Own, Kind::Unread, 0),
            (Own, Kind::Read, 6),
            (Own, Kind::Events, 0),
            (Own, Kind::Unwatch, 0),
            (Own, Kind::Unwatch, 0),
        ],
    ),
    (
        "fork",
        &[
            (Own, Kind::Write, 7),
            (Own, Kind::ChildWrites, 3000),
            (Own, Kind::Write, 9),
            (Agent, Kind::Settle, 3016),
            (Agent, Kind::Read, 8),
            (Agent, Kind::ChildReads, 3000),
            (Agent, Kind::Read, 20),
        ],
    ),
    (
        "dup",
        &[
            (Own, Kind::Duplicate, 0),
            (Own, Kind::Write, 5),
            (Own, Kind::Duplicate, 0),
            (Own, Kind::Write, 6),
            (Agent, Kind::Duplicate, 0),
            (Agent, Kind::Settle, 11),
            (Agent, Kind::Read, 20),
        ],
    ),
    (
        "peek-and-pieces",
        &[
            (Own, Kind::SendMessage, 3001),
            (Agent, Kind::Settle, 3001),
            (Agent, Kind::Peek, 10),
            (Agent, Kind::Peek, 4000),
            (Agent, Kind::Unread, 0),
            (Agent, Kind::ReadPieces, 2000),
            (Agent, Kind::Peek, 4000),
            (Agent, Kind::ReadAll, 1001),
            (Agent, Kind::ReadNow, 1),
        ],
    ),
    (
        "time-outs-and-not-waiting",
        &[
            (Own, Kind::ReadInVain, 0),
            (Own, Kind::ReadNow, 4),
            (Own, Kind::Nonblocking, 1),
            (Own, Kind::Read, 4),
            (Own, Kind::Peek, 4),
            (Own, Kind::Nonblocking, 0),
            (Agent, Kind::Write, 4),
            (Own, Kind::Settle, 4),
            (Own, Kind::ReadNow, 9),
            (Own, Kind::ReadInVain, 0),
        ],
    ),
    ("sendfile", &leaving(Kind::Sendfile)),
    ("splice", &leaving(Kind::Splice)),
    ("passed", &leaving(Kind::Passed)),
    ("exec", &leaving(Kind::Executed)),
    ("spawn", &leaving(Kind::Spawned)),
    ("fdopen", &leaving(Kind::StreamWrites)),
    ("stdin", &leaving(Kind::Standard)),
    (
        "splice-out",
        &[
            (Own, Kind::Write, 3000),
            (Agent, Kind::Settle, 3000),
            (Agent, Kind::Read, 100),
            (Agent, Kind::SpliceOut, 1900),
            (Own, Kind::Write, 50),
            (Agent, Kind::Settle, 1050),
            (Agent, Kind::Read, 4000),
        ],
    ),
    (
        "many-unread",
        &[
            (Own, Kind::Splice, 4000),
            (Agent, Kind::Write, 30_000),
            (Own, Kind::Settle, 30_000),
            (Own, Kind::Unread, 0),
            (Own, Kind::ReadAll, 30_000),
            (Agent, Kind::Settle, 4000),
            (Agent, Kind::Read, 4000),
        ],
    ),
];

/// Resets: the other end learns of them behind all bytes.
const RESETS: &[(&str, &[Step])] = &[
    (
        "reset",
        &[
            (Own, Kind::Write, 100),
            (Agent, Kind::Settle, 100),
            (Own, Kind::Reset, 0),
            (Agent, Kind::FinishReset, 0),
            (Agent, Kind::Close, 0),
        ],
    ),
    (
        "close-with-unread-bytes",
        &[
            (Own, Kind::Write, 100),
            (Agent, Kind::Write, 100),
            (Agent, Kind::Settle, 100),
            (Own, Kind::Settle, 100),
            (Own, Kind::Read, 50),
            (Own, Kind::Close, 0),
            (Agent, Kind::FinishReset, 0),
            (Agent, Kind::Close, 0),
        ],
    ),
];

/// Bytes of both directions wait while an end writes in a way by which it leaves its queue pair.
const fn leaving(kind: Kind) -> [Step; 15] {
    [
        (Own, Kind::Write, 3000),
        (Agent, Kind::Write, 2000),
        (Own, Kind::Settle, 2000),
        (Own, Kind::Read, 700),
        (Own, kind, 4000),
        (Own, Kind::Settle, 1300),
        (Own, Kind::Read, 300),
        (Own, Kind::Write, 1500),
        (Agent, Kind::Write, 100),
        (Agent, Kind::Settle, 8500),
        (Agent, Kind::Read, 9000),
        (Own, Kind::Settle, 1100),
        (Own, Kind::Poll, 0),
        (Own, Kind::Peek, 2000),
        (Own, Kind::Read, 2000),
    ]
}

/// Makes all scenarios, each on a new connection.
pub(super) fn run<S: Control>(driver: &mut Driver<S>) {
    // Those that look after a shutdown have written before.
    driver.set_attached(true);
    for (name, steps) in ALL {
        play(driver, name, steps, &CLOSE);
    }
    driver.set_attached(false);
    for (name, steps) in RESETS {
        play(driver, name, steps, &[]);
    }
    let before = driver.differences();
    driver.connect();
    for from in [Own, Agent] {
        driver.flood(from, 3_000_000, 3_000_000);
        driver.fill(from);
    }
    for (side, kind, count) in CLOSE {
        driver.both(side, kind, count);
    }
    driver.scenario("floods-and-full-buffers", before);
}

fn play<S: Control>(driver: &mut Driver<S>, name: &str, steps: &[Step], end: &[Step]) {
    let before = driver.differences();
    driver.connect();
    for &(side, kind, count) in steps.iter().chain(end) {
        driver.both(side, kind, count);
        if driver.has_differed() {
            driver.abandon();
            break;
        }
    }
    driver.scenario(name, before);
}
