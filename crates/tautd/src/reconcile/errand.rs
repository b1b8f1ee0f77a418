//! Work on a thread that may never end, because a file system or a directory service does not
//! answer. The loop asks for the result and never waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::inbox::{Inbox, Message};

/// Time after which it is a problem that there is no result.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The loop's end of the work of one thread.
#[derive(Debug)]
pub(super) struct Errand<T> {
    began: Instant,
    state: Arc<Mutex<State<T>>>,
}

/// The thread's end, by which it delivers the result. Dropping it without one means that the thread
/// has panicked.
#[derive(Debug)]
pub(super) struct Delivery<T> {
    state: Arc<Mutex<State<T>>>,
    inbox: Inbox,
}

#[derive(Debug)]
enum State<T> {
    Running,
    Done(T),
    /// Nobody will ask for the result.
    Abandoned,
}

/// The answer of [`Errand::result`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<T> {
    /// There is no result yet.
    Running,
    /// There was none within [`PATIENCE`], and the thread still works.
    Silent,
    /// The result, which is returned once.
    Done(T),
    /// The thread has panicked.
    Panicked,
}

impl<T> Errand<T> {
    /// Makes the two ends for a thread that is about to begin. Its end wakes the loop.
    pub(super) fn begin(inbox: &Inbox) -> (Self, Delivery<T>) {
        let state = Arc::new(Mutex::new(State::Running));
        let delivery = Delivery { state: state.clone(), inbox: inbox.clone() };
        (Self { began: Instant::now(), state }, delivery)
    }

    /// Returns the result, or how far the thread is.
    pub(super) fn result(&self) -> Answer<T> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Running) {
            State::Done(value) => Answer::Done(value),
            _ if Arc::strong_count(&self.state) == 1 => Answer::Panicked,
            _ if self.began.elapsed() < PATIENCE => Answer::Running,
            _ => Answer::Silent,
        }
    }

    /// Returns whether the thread has ended.
    pub(super) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.state) == 1
    }

    /// Tells the thread that nobody will ask for the result. Returns that if it is there already.
    pub(super) fn abandon(&self) -> Option<T> {
        match std::mem::replace(&mut *lock(&self.state), State::Abandoned) {
            State::Done(value) => Some(value),
            State::Running | State::Abandoned => None,
        }
    }

    /// Sets back the beginning, so that the errand is silent.
    #[cfg(test)]
    pub(super) fn make_silent(&mut self) {
        self.began = Instant::now().checked_sub(PATIENCE).expect("the host runs for longer");
    }
}

impl<T> Delivery<T> {
    /// Delivers the result. Returns it if nobody asks for it any more.
    pub(super) fn deliver(self, value: T) -> Option<T> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Abandoned) {
            return Some(value);
        }
        *state = State::Done(value);
        None
    }
}

impl<T> Drop for Delivery<T> {
    fn drop(&mut self) {
        self.inbox.send(Message::Wake);
    }
}

fn lock<T>(state: &Mutex<State<T>>) -> MutexGuard<'_, State<T>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_asked_for_or_goes_back_to_the_thread() {
        let (inbox, messages) = Inbox::new();
        let (errand, delivery) = Errand::begin(&inbox);
        assert_eq!(errand.result(), Answer::Running);
        assert_eq!(delivery.deliver(1), None);
        assert!(messages.try_recv().is_ok(), "the loop wakes");
        assert_eq!(errand.result(), Answer::Done(1));

        let (errand, delivery) = Errand::begin(&inbox);
        assert!(errand.abandon().is_none() && !errand.has_ended());
        assert_eq!(delivery.deliver(2), Some(2));
        assert!(errand.has_ended());
        let (errand, delivery) = Errand::begin(&inbox);
        assert_eq!(delivery.deliver(3), None);
        assert_eq!(errand.abandon(), Some(3));
    }

    #[test]
    fn a_thread_that_panics_or_does_not_answer_is_told_apart() {
        let (inbox, _messages) = Inbox::new();
        let (mut errand, delivery) = Errand::<()>::begin(&inbox);
        errand.make_silent();
        assert_eq!(errand.result(), Answer::Silent);
        drop(delivery);
        assert_eq!(errand.result(), Answer::Panicked);
    }
}
