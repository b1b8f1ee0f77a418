//! Signals that come while a thread uses a ring are handled right afterwards, without a system call
//! in the usual case that none comes.
//!
//! The kernel calls [`arrives`] for each signal that the program handles. If the thread is within
//! [`Undisturbed`], `arrives` sends the signal to the thread again and has all signals blocked from
//! its own return on. The end of `Undisturbed` restores the mask, and then the signal comes again.
//! Otherwise `arrives` calls the program's handler at once.
#![allow(unsafe_code, reason = "handlers of signals and a system call")]

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, compiler_fence};

use libc::{sigaction, siginfo_t, ucontext_t};

use super::blocked::{self, Blocked};

/// Number of signals, plus one.
const SIGNALS: usize = 65;

type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// True once the program's handlers are called through [`arrives`].
static ON: AtomicBool = AtomicBool::new(false);
/// The reasons to block signals by a system call: handlers that the kernel calls directly.
static DIRECT: AtomicU32 = AtomicU32::new(0);
/// The program's handlers.
static HANDLERS: [AtomicPtr<c_void>; SIGNALS] = [const { AtomicPtr::new(std::ptr::null_mut()) }; SIGNALS];
/// A bit for each of them that takes three arguments (`SA_SIGINFO`).
static WITH_INFO: AtomicU64 = AtomicU64::new(0);
/// A bit for each of them after which calls go on (`SA_RESTART`).
static RESTARTING: AtomicU64 = AtomicU64::new(0);

/// State of one thread. All of it is one thread-local value, since each access calls
/// `__tls_get_addr`.
struct Own {
    /// Number of [`Undisturbed`] of this thread.
    inside: AtomicU32,
    /// True if a signal has come meanwhile.
    has_come: AtomicBool,
    /// The signals that were blocked before it came.
    mask: AtomicU64,
    /// The thread's number; 0 until it is needed.
    number: AtomicU32,
    /// Number of signals for which [`arrives`] has called a handler.
    handled: AtomicU32,
    /// Number of those among them that end a blocking call.
    interrupting: AtomicU32,
}

thread_local! {
    static OWN: Own = const {
        Own {
            inside: AtomicU32::new(0),
            has_come: AtomicBool::new(false),
            mask: AtomicU64::new(0),
            number: AtomicU32::new(0),
            handled: AtomicU32::new(0),
            interrupting: AtomicU32::new(0),
        }
    };
}

/// Forgets the number of the calling thread, which is the only one of a child.
pub(crate) fn thread_is_new() {
    OWN.with(|own| own.number.store(0, Relaxed));
}

/// Calls the program's handlers through [`arrives`] from now on.
pub(crate) fn defer_signals() {
    if blocked::has_handlers() {
        DIRECT.fetch_add(1, SeqCst);
    }
    ON.store(true, SeqCst);
}

/// A handler of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handling {
    handler: *mut c_void,
    with_info: bool,
}

fn own_address() -> usize {
    (arrives as Handler) as usize
}

fn bit(signal: c_int) -> u64 {
    1u64.checked_shl((signal - 1).cast_unsigned()).unwrap_or(0)
}

impl Handling {
    /// The present handler of a signal, if [`arrives`] is called for it.
    pub(crate) fn of(signal: c_int) -> Self {
        let handler = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal));
        Self {
            handler: handler.map_or(std::ptr::null_mut(), |handler| handler.load(SeqCst)),
            with_info: WITH_INFO.load(SeqCst) & bit(signal) != 0,
        }
    }

    /// Makes this the handler of a signal.
    pub(crate) fn store(self, signal: c_int) {
        if self.with_info {
            WITH_INFO.fetch_or(bit(signal), SeqCst);
        } else {
            WITH_INFO.fetch_and(!bit(signal), SeqCst);
        }
        if let Some(handler) = usize::try_from(signal).ok().and_then(|signal| HANDLERS.get(signal)) {
            handler.store(self.handler, SeqCst);
        }
    }

    /// Puts the program's handler into what the kernel has said about a signal.
    pub(crate) fn show(self, action: &mut sigaction) {
        if action.sa_sigaction == own_address() {
            action.sa_sigaction = self.handler.addr();
            if !self.with_info {
                action.sa_flags &= !libc::SA_SIGINFO;
            }
        }
    }

    /// The program's handler in place of the library's own.
    pub(crate) fn address(self, address: usize) -> usize {
        if address == own_address() { self.handler.addr() } else { address }
    }
}

/// Tells whether an action of the program is a handler, and not of a signal of its instructions.
fn is_handler(signal: c_int, action: &sigaction) -> bool {
    let is_blocked = blocked::all() & bit(signal) != 0;
    is_blocked && action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN
}

/// Stores the program's handler and puts [`arrives`] into its action. Returns false if the kernel
/// is to call the handler directly.
pub(crate) fn defer(signal: c_int, action: &mut sigaction) -> bool {
    if !ON.load(SeqCst) || !is_handler(signal, action) || action.sa_sigaction == own_address() {
        return false;
    }
    if action.sa_flags & libc::SA_RESETHAND != 0 {
        // It is the handler of one signal only, so that signal cannot be sent again.
        DIRECT.fetch_add(1, SeqCst);
        return false;
    }
    let handler = std::ptr::with_exposed_provenance_mut(action.sa_sigaction);
    Handling { handler, with_info: action.sa_flags & libc::SA_SIGINFO != 0 }.store(signal);
    restarts(signal, action.sa_flags & libc::SA_RESTART != 0);
    action.sa_sigaction = own_address();
    action.sa_flags |= libc::SA_SIGINFO;
    true
}

/// Notes whether calls go on after a signal's handler.
pub(crate) fn restarts(signal: c_int, go_on: bool) {
    if go_on {
        RESTARTING.fetch_or(bit(signal), SeqCst);
    } else {
        RESTARTING.fetch_and(!bit(signal), SeqCst);
    }
}

/// Has signals blocked by system calls while a handler of the program is direct.
pub(crate) struct Directly(());

impl Directly {
    /// Begins.
    pub(crate) fn begin() -> Self {
        DIRECT.fetch_add(1, SeqCst);
        Self(())
    }
}

impl Drop for Directly {
    fn drop(&mut self) {
        DIRECT.fetch_sub(1, SeqCst);
    }
}

/// Runs in the place of the program's handler.
///
/// # Safety
/// Called by the kernel, with `SA_SIGINFO`.
unsafe extern "C-unwind" fn arrives(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if OWN.with(|own| own.inside.load(Relaxed)) > 0 {
        // SAFETY: as the caller promises.
        return unsafe { later(signal, info, context.cast()) };
    }
    let handler = Handling::of(signal).handler;
    if handler.is_null() {
        return;
    }
    OWN.with(|own| {
        own.handled.fetch_add(1, Relaxed);
        let interrupts = RESTARTING.load(Relaxed) & bit(signal) == 0;
        own.interrupting.fetch_add(u32::from(interrupts), Relaxed);
    });
    // SAFETY: the program has passed this address as its handler. One with fewer parameters ignores
    // the others.
    let handler = unsafe { std::mem::transmute::<*mut c_void, Handler>(handler) };
    // SAFETY: these are the kernel's arguments.
    unsafe { handler(signal, info, context) };
}

/// Puts a signal off: sends it to the calling thread again, and keeps all signals blocked until the
/// thread's [`Undisturbed`] ends.
///
/// # Safety
/// The arguments are the kernel's.
unsafe fn later(signal: c_int, info: *mut siginfo_t, context: *mut ucontext_t) {
    // First: another signal would store a mask in which this one is blocked, and only what this
    // function stores is restored. It also keeps the signal that is sent below from coming at once.
    blocked::block_all();
    // SAFETY: every thread has an errno of the C library.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let errno = unsafe { place.read() };
    // SAFETY: the kernel's set of signals has 64 bits, at the start of the C library's.
    let mask = unsafe { (&raw mut (*context).uc_sigmask).cast::<u64>() };
    // SAFETY: as above. Of several signals, the one that came first stores its mask last: others
    // have interrupted it before its first statement.
    OWN.with(|own| own.mask.store(unsafe { mask.read() }, Relaxed));
    // SAFETY: as above. The kernel takes the mask from here when the handler returns.
    unsafe { mask.write(mask.read() | blocked::all()) };
    OWN.with(|own| own.has_come.store(true, Relaxed));
    let (process, thread) =
        (rustix::process::getpid().as_raw_nonzero().get(), rustix::thread::gettid().as_raw_nonzero().get());
    // SAFETY: numbers, and the kernel's own description of the signal.
    if unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, signal, info) } != 0 {
        // There is no room for its description.
        // SAFETY: takes numbers only.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
    }
    // SAFETY: as above.
    unsafe { place.write(errno) };
}

/// The signals that the calling thread had handled when a call began. A call that waits in several
/// steps, each of which may sleep, ends with `EINTR` if one was handled between two of them: within
/// a step, the kernel says so. Handlers that the kernel calls directly are not counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handled {
    handled: u32,
    interrupting: u32,
}

impl Handled {
    /// Takes the counts of the calling thread.
    pub(crate) fn until_now() -> Self {
        OWN.with(|own| Self {
            handled: own.handled.load(Relaxed),
            interrupting: own.interrupting.load(Relaxed),
        })
    }

    /// Tells whether another one was handled since then.
    pub(crate) fn has_more(self) -> bool {
        Self::until_now().handled != self.handled
    }

    /// Tells whether one without `SA_RESTART` was handled since then.
    pub(crate) fn is_interrupted(self) -> bool {
        Self::until_now().interrupting != self.interrupting
    }
}

/// While it exists, no handler of the program runs in the calling thread.
pub(crate) struct Undisturbed {
    /// That of the thread. A pointer, so that this value stays with its thread.
    own: *const Own,
    /// Dropped last.
    _blocked: Option<Blocked>,
}

impl Undisturbed {
    /// Begins.
    #[inline]
    pub(crate) fn begin() -> Self {
        let (own, before) = OWN.with(|own| (std::ptr::from_ref(own), own.inside.load(Relaxed)));
        // The outermost one has them blocked already.
        let blocked = (before == 0 && DIRECT.load(SeqCst) > 0).then(Blocked::begin);
        // SAFETY: as for `own` below.
        unsafe { &*own }.inside.store(before + 1, Relaxed);
        compiler_fence(SeqCst);
        Self { own, _blocked: blocked }
    }

    #[inline]
    fn own(&self) -> &Own {
        // SAFETY: the thread's own structure, which needs no destructor and so lives as long as the
        // thread. This value cannot leave the thread.
        unsafe { &*self.own }
    }

    /// Number of the calling thread, as the kernel gives it.
    #[inline]
    pub(crate) fn thread(&self) -> u32 {
        match self.own().number.load(Relaxed) {
            0 => {
                let number = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
                self.own().number.store(number, Relaxed);
                number
            }
            number => number,
        }
    }
}

impl Drop for Undisturbed {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        let left = self.own().inside.load(Relaxed) - 1;
        self.own().inside.store(left, Relaxed);
        compiler_fence(SeqCst);
        if left == 0 && self.own().has_come.load(Relaxed) {
            self.own().has_come.store(false, Relaxed);
            // The handlers run here.
            blocked::set_all(self.own().mask.load(Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static HANDLED: AtomicU32 = AtomicU32::new(0);
    static VALUE: AtomicU32 = AtomicU32::new(0);

    unsafe extern "C-unwind" fn handler(_: c_int, info: *mut siginfo_t, _: *mut c_void) {
        HANDLED.fetch_add(1, SeqCst);
        // SAFETY: the kernel's description of a signal that has a value.
        VALUE.store(unsafe { (*info).si_value() }.sival_ptr.addr() as u32, SeqCst);
    }

    fn send(value: usize) {
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(value) };
        // SAFETY: takes numbers only.
        let sent = unsafe { libc::pthread_sigqueue(libc::pthread_self(), libc::SIGRTMIN() + 3, value) };
        assert_eq!(sent, 0);
    }

    #[test]
    fn a_signal_within_waits_and_keeps_its_value() {
        let signal = libc::SIGRTMIN() + 3;
        ON.store(true, SeqCst);
        // SAFETY: all bytes may be zero.
        let mut action: sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = (handler as Handler) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert!(defer(signal, &mut action));
        // SAFETY: both structures are this frame's.
        assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
        Handling::of(signal).show(&mut action);
        assert_eq!(action.sa_sigaction, (handler as Handler) as usize);
        let before = Handled::until_now();
        assert!(!before.has_more() && !before.is_interrupted());
        send(1);
        assert_eq!((HANDLED.load(SeqCst), VALUE.load(SeqCst)), (1, 1), "at once");
        assert!(before.has_more() && before.is_interrupted());
        let mask = blocked::mask();
        let (outer, inner) = (Undisturbed::begin(), Undisturbed::begin());
        send(2);
        send(3);
        drop(inner);
        assert_eq!(HANDLED.load(SeqCst), 1, "not yet");
        drop(outer);
        assert_eq!((HANDLED.load(SeqCst), VALUE.load(SeqCst)), (3, 3), "both, in order");
        assert_eq!(blocked::mask(), mask);
        action.sa_flags = libc::SA_RESTART;
        assert!(defer(signal, &mut action));
        let before = Handled::until_now();
        send(4);
        assert_eq!(HANDLED.load(SeqCst), 4);
        assert!(before.has_more() && !before.is_interrupted());
        Handling::of(signal).show(&mut action);
        action.sa_flags |= libc::SA_RESETHAND;
        let direct = DIRECT.load(SeqCst);
        assert!(!defer(signal, &mut action));
        assert_eq!(DIRECT.swap(direct, SeqCst), direct + 1);
    }

    /// Two signals at a time: the second one may come while the first one is put off.
    #[test]
    fn no_signal_stays_blocked_after_two_at_once() {
        const ROUNDS: u32 = 20_000;
        static ROUND: AtomicU32 = AtomicU32::new(0);
        static SENT: AtomicU32 = AtomicU32::new(0);
        unsafe extern "C-unwind" fn ignores(_: c_int, _: *mut siginfo_t, _: *mut c_void) {}
        ON.store(true, SeqCst);
        let signals = [libc::SIGUSR1, libc::SIGUSR2];
        for signal in signals {
            // SAFETY: all bytes may be zero.
            let mut action: sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = (ignores as Handler) as usize;
            assert!(defer(signal, &mut action));
            // SAFETY: both structures are this frame's.
            assert_eq!(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) }, 0);
        }
        // SAFETY: takes nothing.
        let own = unsafe { libc::pthread_self() };
        let mask = blocked::mask();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut last = 0;
                while last < ROUNDS {
                    let round = ROUND.load(SeqCst);
                    if round == last {
                        std::hint::spin_loop();
                        continue;
                    }
                    last = round;
                    for signal in signals {
                        // SAFETY: the thread waits for the end of this scope.
                        unsafe { libc::pthread_kill(own, signal) };
                        // At another moment of the first one's handler in each round.
                        (0..round % 512).for_each(|_| std::hint::spin_loop());
                    }
                    SENT.store(round, SeqCst);
                }
            });
            let differs = (0..ROUNDS).find(|round| {
                let undisturbed = Undisturbed::begin();
                ROUND.store(round + 1, SeqCst);
                while SENT.load(SeqCst) <= *round {
                    std::hint::spin_loop();
                }
                drop(undisturbed);
                blocked::mask() != mask
            });
            ROUND.store(ROUNDS, SeqCst);
            assert_eq!(differs, None, "in this round");
        });
    }
}
