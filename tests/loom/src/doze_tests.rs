//! A mailbox: threads post messages, one thread takes them and sleeps while there are none.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use crate::sys::doze::Doze;

/// As `wake::mailbox` of the fabric, with a condition in place of the event descriptor.
struct Mailbox {
    doze: Doze,
    inbox: Mutex<Vec<u32>>,
    wakes: Mutex<u32>,
    woken: Condvar,
}

impl Mailbox {
    fn post(&self, message: u32) {
        self.inbox.lock().unwrap().push(message);
        if self.doze.announce() {
            *self.wakes.lock().unwrap() += 1;
            self.woken.notify_one();
        }
    }

    /// Takes messages until there have been this many. Loom reports a deadlock if the thread sleeps
    /// over the last one.
    fn serve(&self, wanted: usize) -> Vec<u32> {
        let mut got = Vec::new();
        while got.len() < wanted {
            if self.doze.has_news() {
                let mut inbox = self.inbox.lock().unwrap();
                self.doze.take();
                got.append(&mut inbox);
            } else if self.doze.fall_asleep() {
                let mut wakes = self.wakes.lock().unwrap();
                while *wakes == 0 {
                    wakes = self.woken.wait(wakes).unwrap();
                }
                *wakes = 0;
                self.doze.wake_up();
            }
        }
        got
    }
}

fn posted_by(threads: u32) {
    let mut builder = loom::model::Builder::new();
    // Enough for every known kind of lost wake-up, and bounded in time.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let (inbox, wakes) = (Mutex::default(), Mutex::default());
        let mailbox = Arc::new(Mailbox { doze: Doze::new(), inbox, wakes, woken: Condvar::new() });
        let posting: Vec<_> = (0..threads)
            .map(|message| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || mailbox.post(message))
            })
            .collect();
        let mut got = mailbox.serve(threads as usize);
        got.sort_unstable();
        assert!(got.into_iter().eq(0..threads));
        posting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn no_thread_sleeps_over_a_message() {
    posted_by(1);
}

#[test]
fn no_thread_sleeps_over_one_of_two_messages() {
    posted_by(2);
}
