//! The pCPUs that a thread runs on.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// Where a thread was put.
#[derive(Debug)]
pub(super) struct CpuAffinity {
    tid: Pid,
    now: Vec<u32>,
}

impl CpuAffinity {
    /// A thread that was not put anywhere yet.
    pub(super) const fn new(tid: Pid) -> Self {
        Self { tid, now: Vec::new() }
    }

    /// Binds the thread to these pCPUs; none of them: it may run wherever its cpuset lets it, also on pCPUs that are others' now.
    ///
    /// # Errors
    /// The kernel's; the thread stays where it is.
    pub(super) fn put(&mut self, cpus: &[u32]) -> io::Result<()> {
        if self.now == cpus {
            return Ok(());
        }
        if cpus.iter().any(|cpu| *cpu as usize >= CpuSet::MAX_CPU) {
            return Err(Errno::INVAL.into());
        }
        let mut set = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| cpus.is_empty() || cpus.contains(&(*cpu as u32)))
            .for_each(|cpu| set.set(cpu));
        sched_setaffinity(Some(self.tid), &set)?;
        cpus.clone_into(&mut self.now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn a_thread_goes_where_it_is_put_and_anywhere_again() {
        std::thread::spawn(|| {
            let anywhere = sched_getaffinity(None).unwrap();
            let own = rustix::thread::gettid();
            let mut place = CpuAffinity::new(own);
            let cpus: Vec<u32> =
                (0..CpuSet::MAX_CPU as u32).filter(|cpu| anywhere.is_set(*cpu as usize)).collect();
            for wanted in [&cpus[..1], &cpus[..], &cpus[cpus.len() - 1..]] {
                place.put(wanted).unwrap();
                let now = sched_getaffinity(Some(own)).unwrap();
                assert_eq!((now.count() as usize, now.is_set(wanted[0] as usize)), (wanted.len(), true));
            }
            assert!(place.put(&[100_000]).is_err());
            place.put(&[]).unwrap();
            let now = sched_getaffinity(Some(own)).unwrap();
            assert!(cpus.iter().all(|cpu| now.is_set(*cpu as usize)));
        })
        .join()
        .unwrap();
    }
}
