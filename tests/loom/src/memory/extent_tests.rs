//! A table entry that changes hands while a signal handler looks for an address.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicUsize};
use loom::thread;

use super::extent::Extent;

#[test]
fn base_and_length_are_those_of_one_mapping() {
    let mut builder = loom::model::Builder::new();
    // A mixture takes two changes of threads at most.
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let extent = Extent {
            version: AtomicU32::new(0),
            base: AtomicUsize::new(0x1000),
            len: AtomicUsize::new(0x100),
        };
        let extent = Arc::new(extent);
        let own = Arc::clone(&extent);
        let changing = thread::spawn(move || {
            own.change(0, 0);
            own.change(0x2000, 0x2000);
        });
        // An address that is in none of them, but would be in the first with the second's length.
        assert_eq!(extent.around(0x1180), None);
        changing.join().unwrap();
        assert_eq!(extent.around(0x2080), Some((0x2000, 0x2000)));
    });
}
