//! move_pages(2): on which node each page of a process is, and moving pages to a node.
#![allow(unsafe_code, reason = "no crate in use here has move_pages")]

use std::ffi::c_void;
use std::io;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// `MPOL_MF_MOVE_ALL` of linux/mempolicy.h: pages that other processes map as well, such as the fabric.
const MOVE_ALL: libc::c_int = 1 << 2;

/// Pages of processes, by address.
pub(super) trait Pages {
    /// The node that each of these pages is on; none of a page that is not there.
    fn nodes(&self, pid: u32, pages: &[u64]) -> io::Result<Vec<Option<u32>>>;

    /// Moves pages to a node, as far as they can be: [`Self::nodes`] tells how far that was.
    fn put(&self, pid: u32, pages: &[u64], node: u32) -> io::Result<()>;
}

/// Those that the kernel knows of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel;

impl Pages for Kernel {
    fn nodes(&self, pid: u32, pages: &[u64]) -> io::Result<Vec<Option<u32>>> {
        let status = move_pages(pid, pages, None)?;
        // Less than zero is an error's number, such as ENOENT of a page that nobody has touched.
        Ok(status.into_iter().map(|status| u32::try_from(status).ok()).collect())
    }

    fn put(&self, pid: u32, pages: &[u64], node: u32) -> io::Result<()> {
        let node = libc::c_int::try_from(node).map_err(io::Error::other)?;
        move_pages(pid, pages, Some(&vec![node; pages.len()])).map(drop)
    }
}

/// Moves pages to nodes, one for each, or only asks where they are. The kernel fills the status in where it got to.
fn move_pages(pid: u32, pages: &[u64], nodes: Option<&[libc::c_int]>) -> io::Result<Vec<libc::c_int>> {
    assert!(nodes.is_none_or(|nodes| nodes.len() == pages.len()), "a node for each page");
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let addresses: Vec<*const c_void> =
        pages.iter().map(|page| std::ptr::without_provenance(*page as usize)).collect();
    let mut status = vec![-libc::ENOENT; pages.len()];
    let nodes = nodes.map_or(std::ptr::null(), <[_]>::as_ptr);
    // SAFETY: the kernel reads `addresses` and, unless they are null, `nodes`, and writes `status`: each has as many entries as the
    // count says and outlives the call. The addresses are another process's and not ours to reach. Moving a page changes nothing
    // that any process sees in it.
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
    // More than zero is how many have not been moved.
    if left < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_where_pages_of_this_process_are() {
        let here = std::process::id();
        let value = Box::new(7_u64);
        let page = std::ptr::from_ref(&*value) as u64 & !(PAGE - 1);
        match Kernel.nodes(here, &[page, PAGE]) {
            Ok(nodes) => {
                assert!(nodes[0].is_some(), "{nodes:?}");
                assert_eq!(nodes[1], None, "nothing is mapped there");
            }
            // Kernels without NUMA, and sandboxes that do not let it through.
            Err(error) => {
                assert!(matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)), "{error}");
            }
        }
        assert!(Kernel.nodes(u32::MAX, &[PAGE]).is_err());
    }
}
