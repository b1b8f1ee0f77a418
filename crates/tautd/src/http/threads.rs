//! Threads that answer requests: a few for the connections, and more for work that may block.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Name of the threads.
const NAME: &str = "api";

/// Time after which a thread for work that may block ends if it has none. Such threads take turns:
/// as long as each of them gets work within this time, all of them stay. With the runtime's default
/// of ten seconds, two changes a second would keep 20 threads after a burst that needed them.
pub(crate) const IDLE: Duration = Duration::from_millis(100);

/// Starts the threads.
pub(crate) fn start() -> io::Result<Runtime> {
    Builder::new_multi_thread().enable_all().thread_name(NAME).thread_keep_alive(IDLE).build()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Barrier};
    use std::thread::sleep;
    use std::time::Instant;

    use super::*;

    /// Counts the threads of this process that have the name.
    fn count() -> usize {
        let is_named = |task: &fs::DirEntry| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == NAME)
        };
        fs::read_dir("/proc/self/task").unwrap().flatten().filter(is_named).count()
    }

    #[test]
    fn threads_of_a_burst_end_while_single_jobs_go_on() {
        const BURST: usize = 40;
        let runtime = start().unwrap();
        let barrier = Arc::new(Barrier::new(BURST));
        let burst: Vec<_> = (0..BURST)
            .map(|_| barrier.clone())
            .map(|barrier| runtime.spawn_blocking(move || barrier.wait().is_leader()))
            .collect();
        runtime.block_on(async {
            for job in burst {
                job.await.unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(30);
        // Fifty jobs a second keep about five threads. With the default, they would keep all 40 for
        // as long as they go on.
        while count() > BURST / 2 {
            assert!(Instant::now() < end, "{} threads", count());
            runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
            sleep(Duration::from_millis(20));
        }
    }
}
