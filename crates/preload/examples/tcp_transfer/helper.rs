//! A process that was forked at the start. It gets sockets by messages and sends on them.

use std::io::{Error, Result};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::c_calls::{exit, fork, pass, receive, socket_pair};
use crate::rest::{LEN, Rest};

/// This process's end of the socket to the helper.
static HELPER: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// Starts the helper. It ends with this process.
pub(crate) fn start() {
    let Ok((own, other)) = socket_pair() else { return };
    match fork() {
        Ok(0) => {
            drop(own);
            exit(u8::from(serve(&other).is_err()));
        }
        Ok(_) => *HELPER.lock().unwrap_or_else(PoisonError::into_inner) = Some(own),
        Err(_) => {}
    }
}

fn serve(socket: &OwnedFd) -> Result<()> {
    loop {
        let mut bytes = [0; LEN];
        let Some(fd) = receive(socket.as_raw_fd(), &mut bytes)? else { return Ok(()) };
        let outcome = Rest::from_bytes(&bytes).write(fd.as_raw_fd());
        drop(fd);
        rustix::io::write(socket, &[u8::from(outcome.is_ok())])?;
    }
}

/// Passes a socket to the helper, which sends the rest on it. Waits until it has.
pub(crate) fn send_by_helper(fd: i32, rest: Rest) -> Result<()> {
    let helper = HELPER.lock().unwrap_or_else(PoisonError::into_inner);
    let helper = helper.as_ref().ok_or_else(|| Error::other("there is no helper"))?;
    pass(helper.as_raw_fd(), fd, &rest.to_bytes())?;
    let mut answer = [0];
    match rustix::io::read(helper, &mut answer)? {
        1 if answer == [1] => Ok(()),
        _ => Err(Error::other("the helper has failed")),
    }
}
