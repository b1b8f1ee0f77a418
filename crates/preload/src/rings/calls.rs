//! Data calls on a connection with a channel. They wait as those on a TCP socket do.

use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use taut_queue_pair::Direction;

use super::attach::is_attached;
use super::input::Input;
use super::mode::limit_of;
use super::output::Output;
use super::record::{Pair, Stop};
use super::settings::settings;
use super::wait::{AFTER_HANGUP, Armed, Pauses, Polled, Waiter, pause};
use crate::sys::{Handled, Pieces, Room, are_faults_handled, guard, is_socket};
use crate::waiting::{Signals, Woken, end_if_cancelled, wait_for};

/// The result of a call.
pub(super) type Answer = Result<usize, Errno>;

/// Where a read puts bytes.
pub(crate) enum Target<'a> {
    /// The program's memory.
    Room(Room<'a>),
    /// Nowhere: so many bytes are counted and discarded.
    Nowhere(usize),
}

impl Target<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Room(room) => room.len(),
            Self::Nowhere(len) => *len,
        }
    }

    /// The memory behind the first `done` bytes that lies in one piece. Bytes for nowhere go into
    /// `unused`.
    pub(super) fn part<'b>(
        &'b mut self,
        done: usize,
        most: usize,
        unused: &'b mut [MaybeUninit<u8>],
    ) -> Option<&'b mut [MaybeUninit<u8>]> {
        match self {
            Self::Room(room) => room.part(done, most),
            Self::Nowhere(len) => {
                let most = most.min(len.saturating_sub(done)).min(unused.len());
                unused.get_mut(..most).filter(|part| !part.is_empty())
            }
        }
    }
}

/// One step of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The call is the kernel's.
    Kernel,
    /// Bytes were moved; none: the stream has ended.
    Moved(usize),
    /// There is nothing to move now.
    Nothing,
    Failed(Errno),
}

fn step(
    fd: RawFd,
    cookie: &mut Option<u64>,
    moved: bool,
    act: impl FnOnce(&Pair) -> Result<Option<usize>, Stop>,
) -> Step {
    let pair = Pair::now(fd).or_else(|| is_attached(fd).then(|| Pair::now(fd))?);
    let Some(pair) = pair else { return without_channel(fd, *cookie) };
    // The number may have become another connection while the call waited.
    if *cookie.get_or_insert(pair.cookie()) != pair.cookie() {
        return Step::Failed(Errno::BADF);
    }
    match act(&pair) {
        // The fabric ends a channel whose connection was closed unseen.
        Ok(Some(0)) | Err(Stop::Failed(_)) if pair.has_gone() && Pair::of(fd).is_none() => {
            super::leave::forget(fd);
            Step::Kernel
        }
        Ok(Some(count)) => Step::Moved(count),
        Ok(None) => Step::Nothing,
        Err(Stop::Left) => {
            super::leave::follow(fd);
            Step::Kernel
        }
        Err(Stop::Failed(error)) => {
            if moved && error == Errno::CONNRESET {
                // The call succeeds with the bytes that it has moved, and the next one is told of
                // the reset.
                pair.take_back_reset();
            }
            Step::Failed(error)
        }
    }
}

/// The step of a call on a descriptor without a channel. `cookie` is that of the connection on
/// which the call has waited. Another thread may have had it leave its channel meanwhile, and then
/// the call goes on with the kernel, or its number may have become another file.
fn without_channel(fd: RawFd, cookie: Option<u64>) -> Step {
    match cookie {
        Some(cookie) if is_socket(fd, cookie) == Some(false) => Step::Failed(Errno::BADF),
        _ => Step::Kernel,
    }
}

/// Receives bytes. `None` if the program's own call goes to the kernel.
pub(crate) fn receive(fd: RawFd, target: &mut Target<'_>, flags: i32) -> Option<Answer> {
    let (peeks, all) = (flags & libc::MSG_PEEK != 0, flags & libc::MSG_WAITALL != 0);
    let wanted = target.len();
    let (mut done, mut limit, mut cookie, mut pauses) = (0, None, None, Pauses::default());
    let before = Handled::until_now();
    loop {
        if let Target::Room(room) = target
            && are_faults_handled()
        {
            room.touch(guard(0, || Pair::known(fd).map_or(0, |pair| pair.hint(Direction::In))).min(wanted));
        }
        let step = guard(Step::Kernel, || {
            step(fd, &mut cookie, done > 0, |pair| Input::lock(pair)?.take(target, done, peeks))
        });
        match step {
            // A peek begins anew each time.
            Step::Moved(count) if peeks && (!all || count == 0 || count >= wanted) => {
                return Some(Ok(count.max(done)));
            }
            Step::Moved(count) if peeks => {
                done = 0;
                let Some(until) =
                    *limit.get_or_insert_with(|| guard(None, || limit_of(fd, flags, Timeout::Recv)))
                else {
                    return Some(Ok(count));
                };
                let ended = guard(true, || Pair::now(fd).is_none_or(|pair| pair.has_ended()));
                let is_over = until.is_some_and(|until| Instant::now() >= until);
                if ended || is_over || before.has_more() {
                    return Some(Ok(count));
                }
                end_if_cancelled();
                pause();
                continue;
            }
            Step::Moved(count) => {
                pauses.end();
                done += count;
                if count == 0 || !all || done >= wanted {
                    return Some(Ok(done));
                }
                continue;
            }
            Step::Kernel => return (done > 0).then_some(Ok(done)),
            Step::Failed(_) if done > 0 => return Some(Ok(done)),
            Step::Failed(error) => return Some(Err(error)),
            Step::Nothing => {}
        }
        let end = |error| Some(if done > 0 { Ok(done) } else { Err(error) });
        let Some(until) = *limit.get_or_insert_with(|| guard(None, || limit_of(fd, flags, Timeout::Recv)))
        else {
            guard((), || Pair::now(fd).iter().for_each(Pair::found_nothing));
            return end(Errno::AGAIN);
        };
        let interruption = Interruption { before, by_all: until.is_some() || done > 0 };
        match sleep(fd, Direction::In, until, interruption, &mut pauses) {
            Woken::Ready => {}
            Woken::TimedOut => return end(Errno::AGAIN),
            Woken::Interrupted => return end(Errno::INTR),
            Woken::Failed(error) => return end(error),
        }
    }
}

/// Sends bytes. `None` if the program's own call goes to the kernel.
pub(crate) fn send(fd: RawFd, pieces: &Pieces<'_>, flags: i32) -> Option<Answer> {
    let (mut done, mut limit, mut cookie, mut pauses) = (0, None, None, Pauses::default());
    let before = Handled::until_now();
    if are_faults_handled() {
        let likely = guard(0, || Pair::known(fd).map_or(0, |pair| pair.hint(Direction::Out)));
        pieces.touch(likely.min(pieces.len()));
    }
    loop {
        let step = guard(Step::Kernel, || {
            step(fd, &mut cookie, done > 0, |pair| Output::lock(pair)?.put(pieces, done))
        });
        match step {
            Step::Moved(count) => {
                pauses.end();
                done += count;
                if done >= pieces.len() {
                    return Some(Ok(done));
                }
                continue;
            }
            Step::Kernel => return (done > 0).then_some(Ok(done)),
            Step::Failed(_) if done > 0 => return Some(Ok(done)),
            Step::Failed(error) => return Some(Err(error)),
            // Before another look: room that comes from now on is an event.
            Step::Nothing if super::reports::lacks_room(fd) => continue,
            Step::Nothing => {}
        }
        let end = |error| Some(if done > 0 { Ok(done) } else { Err(error) });
        let Some(until) = *limit.get_or_insert_with(|| guard(None, || limit_of(fd, flags, Timeout::Send)))
        else {
            guard((), || Pair::now(fd).iter().for_each(Pair::found_nothing));
            return end(Errno::AGAIN);
        };
        let interruption = Interruption { before, by_all: until.is_some() || done > 0 };
        match sleep(fd, Direction::Out, until, interruption, &mut pauses) {
            Woken::Ready => {}
            Woken::TimedOut => return end(Errno::AGAIN),
            Woken::Interrupted => return end(Errno::INTR),
            Woken::Failed(error) => return end(error),
        }
    }
}

/// What a thread does before it sleeps.
#[derive(Debug, Clone, Copy)]
enum Plan {
    /// It tries again at once.
    Again,
    /// It pauses, and tries again.
    Pause,
    /// The thread polls for a channel with this index, of the connection with this cookie.
    Poll(Polled, u32, u64),
}

/// Signals that end a call.
#[derive(Debug, Clone, Copy)]
struct Interruption {
    /// Signals that the thread had handled when the call began.
    before: Handled,
    /// Each signal ends the call, also one whose handler has `SA_RESTART`: the socket has a
    /// timeout, or the call has moved something.
    by_all: bool,
}

impl Interruption {
    fn has_come(self) -> bool {
        if self.by_all { self.before.has_more() } else { self.before.is_interrupted() }
    }
}

/// Sleeps until a ring may be ready.
fn sleep(
    fd: RawFd,
    direction: Direction,
    until: Option<Instant>,
    interruption: Interruption,
    pauses: &mut Pauses,
) -> Woken {
    if spin(fd, direction, until) {
        return Woken::Ready;
    }
    let plan = guard(Plan::Again, || {
        let Some(pair) = Pair::now(fd) else { return Plan::Again };
        pair.start_waiting(direction);
        let plan = match pair.arm(direction, Waiter::Thread) {
            Ok(Armed::Asleep) => {
                return Plan::Poll(pair.polled(direction), pair.channel.index(), pair.cookie());
            }
            Ok(Armed::Busy) => Plan::Pause,
            Ok(Armed::Ready) | Err(_) => Plan::Again,
        };
        pair.stop_waiting(direction);
        plan
    });
    let (polled, index, cookie) = match plan {
        Plan::Again => return Woken::Ready,
        Plan::Pause if interruption.has_come() => return Woken::Interrupted,
        Plan::Pause if until.is_some_and(|until| Instant::now() >= until) => return Woken::TimedOut,
        Plan::Pause => {
            end_if_cancelled();
            pauses.pause();
            return Woken::Ready;
        }
        Plan::Poll(polled, index, cookie) => (polled, index, cookie),
    };
    pauses.end();
    let mut both = [(polled.control, libc::POLLIN), (polled.stream, polled.events)]
        .map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
    let soon = polled.is_short.then(|| Instant::now() + Duration::from_millis(AFTER_HANGUP));
    let first = [until, soon].into_iter().flatten().min();
    let signals = if interruption.by_all { Signals::Interrupt } else { Signals::Restart };
    // Directly before the sleep, which a signal ends from then on.
    let woken =
        if interruption.has_come() { Woken::Interrupted } else { wait_for(&mut both, first, signals) };
    guard((), || {
        let [control, stream] = both.map(|one| one.revents);
        if let Some(pair) = Pair::by_index(fd, index, cookie, polled.control) {
            pair.stop_waiting(direction);
            pair.saw(control, stream);
        }
    });
    match woken {
        Woken::TimedOut if until.is_none_or(|until| Instant::now() < until) => Woken::Ready,
        woken => woken,
    }
}

/// Looks at a ring for a short time, if the user wants that. Returns whether it has changed.
pub(super) fn spin(fd: RawFd, direction: Direction, until: Option<Instant>) -> bool {
    const LOOKS: u32 = 32;
    let time = settings().map_or(Duration::ZERO, |settings| settings.poll);
    if time.is_zero() {
        return false;
    }
    guard(false, || {
        let Some(pair) = Pair::known(fd) else { return false };
        let end = Instant::now() + time;
        let end = until.map_or(end, |until| until.min(end));
        while Instant::now() < end {
            for _ in 0..LOOKS {
                if pair.may_be_ready(direction) {
                    return true;
                }
                std::hint::spin_loop();
            }
        }
        false
    })
}
