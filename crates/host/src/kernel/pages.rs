//! move_pages(2): reads the NUMA node of each page of a process, and moves pages to a node.
#![allow(unsafe_code, reason = "no dependency wraps move_pages")]

use std::ffi::c_void;
use std::io;

/// Size of a page in bytes.
pub(crate) const PAGE: u64 = 4096;

/// `MPOL_MF_MOVE_ALL` of linux/mempolicy.h: also moves pages that other processes map, such as the
/// fabric.
const MOVE_ALL: libc::c_int = 1 << 2;

/// Access to the pages of a process, by address.
pub(crate) trait Pages {
    /// Returns the node of each page; `None` for a page that does not exist.
    fn nodes(&self, pid: u32, pages: &[u64]) -> io::Result<Vec<Option<u32>>>;

    /// Moves pages to a node. Some may stay; [`Self::nodes`] tells which.
    fn put(&self, pid: u32, pages: &[u64], node: u32) -> io::Result<()>;
}

/// The pages of real processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kernel;

impl Pages for Kernel {
    fn nodes(&self, pid: u32, pages: &[u64]) -> io::Result<Vec<Option<u32>>> {
        let status = move_pages(pid, pages, None)?;
        // A negative status is an error number, such as ENOENT for an untouched page.
        Ok(status.into_iter().map(|status| u32::try_from(status).ok()).collect())
    }

    fn put(&self, pid: u32, pages: &[u64], node: u32) -> io::Result<()> {
        let node = libc::c_int::try_from(node).map_err(io::Error::other)?;
        move_pages(pid, pages, Some(&vec![node; pages.len()])).map(drop)
    }
}

/// Moves each page to its node, or only queries the nodes if there are none. The kernel fills the
/// status up to the page where it stopped.
fn move_pages(pid: u32, pages: &[u64], nodes: Option<&[libc::c_int]>) -> io::Result<Vec<libc::c_int>> {
    assert!(nodes.is_none_or(|nodes| nodes.len() == pages.len()), "one node per page");
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let addresses: Vec<*const c_void> =
        pages.iter().map(|page| std::ptr::without_provenance(*page as usize)).collect();
    let mut status = vec![-libc::ENOENT; pages.len()];
    let nodes = nodes.map_or(std::ptr::null(), <[_]>::as_ptr);
    // SAFETY: the kernel reads `addresses` and, unless null, `nodes`, and writes `status`. Each has
    // as many entries as the count says and outlives the call. The addresses belong to another
    // process and are never dereferenced here. Moving a page does not change its content.
    let left = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            pid,
            addresses.len(),
            addresses.as_ptr(),
            nodes,
            status.as_mut_ptr(),
            MOVE_ALL,
        )
    };
    // A positive result is the number of pages that stayed.
    if left < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_of_this_processs_own_pages_can_be_read() {
        let here = std::process::id();
        let value = Box::new(7_u64);
        let page = std::ptr::from_ref(&*value) as u64 & !(PAGE - 1);
        match Kernel.nodes(here, &[page, PAGE]) {
            Ok(nodes) => {
                assert!(nodes[0].is_some(), "{nodes:?}");
                assert_eq!(nodes[1], None, "nothing is mapped there");
            }
            // Kernels without NUMA lack the call, and sandboxes forbid it.
            Err(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)), "{error}");
            }
        }
        assert!(Kernel.nodes(u32::MAX, &[PAGE]).is_err());
    }
}
