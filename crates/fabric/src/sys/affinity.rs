//! The pCPUs that a thread runs on.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

/// The pCPUs to which a thread has bound itself. The sandbox lets no thread bind another: the
/// kernel would permit it for other processes of the user as well.
#[derive(Debug, Default)]
pub(crate) struct CpuAffinity(Vec<u32>);

impl CpuAffinity {
    /// Binds the calling thread, whose binding this is, to these pCPUs. An empty list permits every
    /// pCPU of its cpuset, including pCPUs that the cpuset gains later.
    ///
    /// # Errors
    /// The kernel refuses the list; the binding stays as it was.
    pub(crate) fn bind(&mut self, cpus: &[u32]) -> io::Result<()> {
        if self.0 == cpus {
            return Ok(());
        }
        if cpus.iter().any(|cpu| *cpu as usize >= CpuSet::MAX_CPU) {
            return Err(Errno::INVAL.into());
        }
        let mut set = CpuSet::new();
        (0..CpuSet::MAX_CPU)
            .filter(|cpu| cpus.is_empty() || cpus.contains(&(*cpu as u32)))
            .for_each(|cpu| set.set(cpu));
        sched_setaffinity(None, &set)?;
        cpus.clone_into(&mut self.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn a_thread_runs_on_the_pcpus_it_is_bound_to_and_anywhere_after_an_empty_list() {
        std::thread::spawn(|| {
            let anywhere = sched_getaffinity(None).unwrap();
            let mut affinity = CpuAffinity::default();
            let cpus: Vec<u32> =
                (0..CpuSet::MAX_CPU as u32).filter(|cpu| anywhere.is_set(*cpu as usize)).collect();
            for wanted in [&cpus[..1], &cpus[..], &cpus[cpus.len() - 1..]] {
                affinity.bind(wanted).unwrap();
                let now = sched_getaffinity(None).unwrap();
                assert_eq!((now.count() as usize, now.is_set(wanted[0] as usize)), (wanted.len(), true));
            }
            assert!(affinity.bind(&[100_000]).is_err());
            affinity.bind(&[]).unwrap();
            let now = sched_getaffinity(None).unwrap();
            assert!(cpus.iter().all(|cpu| now.is_set(*cpu as usize)));
        })
        .join()
        .unwrap();
    }
}
