//! A fabric for tests: it connects the two ends of connections, each of which is attached to a
//! channel or not. Unix sockets stand for `AF_VSOCK`, and a file for the device of the guest, in
//! which both programs are.

mod end;

use std::collections::HashMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::relay::Mover;
use end::End;
use taut_queue_pair::message::{AttachAnswer, AttachRequest, REQUEST_LEN};
use taut_queue_pair::{Ends, Geometry, Memory, Region, Role, Status};

/// Length of the region.
const LEN: u64 = 16 << 20;
/// Pause between two looks.
const PAUSE: Duration = Duration::from_micros(100);

/// Time after which a fabric makes its trouble, since the connection began or since the last time.
const UNTIL_TROUBLE: Duration = Duration::from_millis(3);
/// Time after which words are overwritten, since the last end was attached: the program that is to
/// wait for bytes does so by then.
const UNTIL_OVERWRITTEN: Duration = Duration::from_millis(300);

/// The trouble that a fabric makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Programs get signals all the time, as from patrols of the real fabric, only more often.
    Signals,
    /// The word of both channels that says whether more bytes follow is overwritten, as by another
    /// program of the guest, and both programs get a signal.
    Overwrites,
    /// The fabric looks at the bytes of a program only after a bell, as the real fabric does
    /// between two patrols.
    Sleeps,
}

/// One end of a connection: its number, and 0 for the connecting end or 1 for the accepted one.
type Name = (u32, u32);

/// What the threads share.
struct Shared {
    region: Region,
    free: Mutex<Vec<u32>>,
    /// Ends that wait to be attached: the control connection and a channel. `None` for a connection
    /// that nobody has asked for.
    asked: Mutex<HashMap<Name, Option<(UnixStream, u32)>>>,
    numbers: AtomicUsize,
    attached: AtomicUsize,
    left: AtomicUsize,
    given_up: AtomicUsize,
    trouble: Trouble,
}

/// A running fabric.
pub(crate) struct Fabric {
    device: PathBuf,
    socket: PathBuf,
    shared: Arc<Shared>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Fabric {
    /// Starts a fabric whose device and service are in a folder.
    pub(crate) fn start(folder: &Path, trouble: Trouble) -> Self {
        let (device, socket) = (folder.join("dax0.0"), folder.join("service.sock"));
        let file = File::options().read(true).write(true).create_new(true).open(&device).unwrap();
        file.set_len(LEN).unwrap();
        let memory = Arc::new(Memory::map(file.as_fd(), 0, LEN as usize).unwrap());
        memory.write_header(&Geometry::of(LEN).unwrap().header());
        let region = Region::open(memory).unwrap();
        let free = (0..region.geometry().channels()).rev().collect();
        let shared = Arc::new(Shared {
            region,
            free: Mutex::new(free),
            asked: Mutex::default(),
            numbers: AtomicUsize::new(0),
            attached: AtomicUsize::new(0),
            left: AtomicUsize::new(0),
            given_up: AtomicUsize::new(0),
            trouble,
        });
        let listener = UnixListener::bind(&socket).unwrap();
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for control in listener.incoming().flatten() {
                serving.answer(control);
            }
        });
        Self { device, socket, shared }
    }

    /// The value of the variable that names it.
    pub(crate) fn variable(&self) -> String {
        format!("{},{}", self.device.display(), self.socket.display())
    }

    /// Number of ends that were attached so far, and of those that have left.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.shared.attached.load(SeqCst), self.shared.left.load(SeqCst))
    }

    /// Number of programs that have said that they cannot believe the words of their channel.
    pub(crate) fn given_up(&self) -> usize {
        self.shared.given_up.load(SeqCst)
    }
}

impl Mover for Fabric {
    fn name(&self, path: &Path) -> (PathBuf, u32) {
        let number = 50_000 + self.shared.numbers.fetch_add(1, SeqCst) as u32;
        // Either program may ask for a queue pair as soon as it has the connection.
        locked(&self.shared.asked).extend([((number, 0), None), ((number, 1), None)]);
        (PathBuf::from(format!("{}.{number}", path.display())), number)
    }

    fn connect(&self, number: u32, client: UnixStream, server: UnixStream) {
        let shared = Arc::clone(&self.shared);
        let sleeps = shared.trouble == Trouble::Sleeps;
        let mut ends = [client, server].map(|stream| End::new(stream, sleeps));
        let mut next_trouble = match shared.trouble {
            Trouble::Signals => Some(Instant::now()),
            Trouble::None | Trouble::Overwrites | Trouble::Sleeps => None,
        };
        loop {
            if next_trouble.is_some_and(|at| at <= Instant::now()) {
                let overwrites = shared.trouble == Trouble::Overwrites;
                for end in &ends {
                    end.trouble(overwrites);
                }
                next_trouble = (!overwrites).then(|| Instant::now() + UNTIL_TROUBLE);
            }
            let mut attached: Option<usize> = None;
            for (side, end) in ends.iter_mut().enumerate() {
                let asked = locked(&shared.asked).insert((number, side as u32), None);
                if let Some(Some((control, channel))) = asked {
                    shared.attach(end, control, channel);
                    if shared.trouble == Trouble::Overwrites {
                        next_trouble = Some(Instant::now() + UNTIL_OVERWRITTEN);
                    }
                    attached = Some(1 - side);
                }
                if end.take_bells() {
                    shared.left.fetch_add(1, SeqCst);
                }
                shared.given_up.fetch_add(end.take_given_up(), SeqCst);
            }
            // The end of the other direction may have been told by packets only.
            if let Some(end) = attached.and_then(|side| ends.get_mut(side)) {
                end.tell_again();
            }
            let [a, b] = &mut ends;
            let moved = end::pass(a, b) + end::pass(b, a);
            for end in &mut ends {
                if let Some(channel) = end.freed() {
                    locked(&shared.free).push(channel);
                }
            }
            let [a, b] = &ends;
            if a.is_over() && b.is_over() {
                let asked = [0, 1].map(|side| locked(&shared.asked).remove(&(number, side)));
                for (control, channel) in asked.into_iter().flatten().flatten() {
                    shared.refuse(control, channel, Status::NoConnection);
                }
                return locked(&shared.free).extend(ends.iter().filter_map(End::channel));
            }
            if moved == 0 {
                end::sleep(&ends, PAUSE);
            }
        }
    }
}

impl Shared {
    /// Reads a request. The connection's own thread answers, since it knows what was delivered.
    fn answer(&self, mut control: UnixStream) {
        let mut request = [0; REQUEST_LEN];
        if control.read_exact(&mut request).is_err() {
            return;
        }
        let request = AttachRequest::from_bytes(&request).unwrap();
        let Some(channel) = locked(&self.free).pop() else {
            let _ = control.write_all(&AttachAnswer::refusal(Status::Full).to_bytes());
            return;
        };
        match locked(&self.asked).get_mut(&(request.own_port, request.peer_port)) {
            Some(asked @ None) => *asked = Some((control, channel)),
            Some(Some(_)) => self.refuse(control, channel, Status::AttachedAlready),
            None => self.refuse(control, channel, Status::NoConnection),
        }
    }

    fn refuse(&self, mut control: UnixStream, channel: u32, status: Status) {
        locked(&self.free).push(channel);
        let _ = control.write_all(&AttachAnswer::refusal(status).to_bytes());
    }

    fn attach(&self, end: &mut End, mut control: UnixStream, index: u32) {
        if end.is_attached() {
            return self.refuse(control, index, Status::AttachedAlready);
        }
        let channel = self.region.channel(index).unwrap();
        channel.clear();
        let answer = AttachAnswer { status: Status::Attached, channel: index, by_packets: end.by_packets() };
        match control.write_all(&answer.to_bytes()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return locked(&self.free).push(index),
            Err(error) => panic!("{error}"),
        }
        control.set_nonblocking(true).unwrap();
        end.attach(
            control,
            Ends::new(&channel, Role::Fabric, taut_queue_pair::memory::Copying::Library),
            index,
        );
        self.attached.fetch_add(1, SeqCst);
    }
}
