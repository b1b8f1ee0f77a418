//! Threads that answer requests: a few for the connections, and more for work that may block.

use std::io;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

/// Name of the threads.
const NAME: &str = "api";

/// Time after which a thread without work ends. Threads for work that may block take turns. As long
/// as each of them gets work within this time, all of them stay. With the runtime's default of ten
/// seconds, two changes a second would keep up to 20 threads once that many changes met.
const IDLE: Duration = Duration::from_millis(100);

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
    fn threads_of_changes_that_met_end_while_others_go_on() {
        const MET: usize = 40;
        let runtime = start().unwrap();
        let connections = count();
        let barrier = Arc::new(Barrier::new(MET));
        let met: Vec<_> = (0..MET)
            .map(|_| barrier.clone())
            .map(|barrier| runtime.spawn_blocking(move || barrier.wait().is_leader()))
            .collect();
        runtime.block_on(async {
            for job in met {
                job.await.unwrap();
            }
        });
        let end = Instant::now() + Duration::from_secs(30);
        // Fifty changes a second need five threads at most, and would keep all 40 for ten seconds.
        while count() > connections + 5 {
            assert!(Instant::now() < end, "{} threads more", count() - connections);
            runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
            sleep(Duration::from_millis(20));
        }
    }
}
