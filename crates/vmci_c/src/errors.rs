//! `errno` for the errors of the client library, as the header lists them.

use std::io;

use taut_vmci_client::{NotAttached, Status};

/// `errno` for a reason why an end is not attached.
pub(crate) fn of_reason(reason: &NotAttached) -> i32 {
    match reason {
        reason if reason.is_unclear() => libc::EPROTO,
        NotAttached::NotAStream(_) => libc::EOPNOTSUPP,
        NotAttached::NoDevice | NotAttached::NoDriver => libc::ENODEV,
        NotAttached::NotPermitted { .. } => libc::EACCES,
        NotAttached::Declined(Status::Full) => libc::ENOSPC,
        _ => libc::ENOTSUP,
    }
}

/// The reason with its causes and its hint, in one line.
pub(crate) fn text(reason: &NotAttached) -> String {
    format!("{}; hint: {}", reason.with_causes(), reason.hint())
}

/// `errno` for an error of reading or writing.
pub(crate) fn of_call(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::WouldBlock => libc::EAGAIN,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        io::ErrorKind::Interrupted => libc::EINTR,
        io::ErrorKind::BrokenPipe => libc::EPIPE,
        io::ErrorKind::ConnectionReset => libc::ECONNRESET,
        io::ErrorKind::InvalidData => libc::EPROTO,
        _ => libc::EIO,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_the_errno_of_the_header() {
        assert_eq!(of_reason(&NotAttached::NoDevice), libc::ENODEV);
        assert_eq!(of_reason(&NotAttached::NotAStream(None)), libc::EOPNOTSUPP);
        assert_eq!(of_reason(&NotAttached::Declined(Status::Full)), libc::ENOSPC);
        let unclear = NotAttached::NoChannel { channel: 9, channels: 2 };
        assert_eq!(of_reason(&unclear), libc::EPROTO);
        assert!(text(&unclear).contains("channel 9") && text(&unclear).contains("; hint: "));
    }

    #[test]
    fn errors_of_calls_have_the_errno_of_the_header() {
        let of = |kind: io::ErrorKind| of_call(&kind.into());
        assert_eq!(of(io::ErrorKind::WouldBlock), libc::EAGAIN);
        assert_eq!(of(io::ErrorKind::InvalidData), libc::EPROTO);
        assert_eq!(of_call(&io::Error::from_raw_os_error(libc::ENOBUFS)), libc::ENOBUFS);
    }
}
