//! What may differ from TCP, as the documentation says.

/// A reset on TCP, and what the documentation allows in its place.
const RESET: (&str, &str) = (", then Connection reset by peer (os error 104)", ", then the end");
/// The event that a connection is writable (`POLLOUT`, `EPOLLOUT`).
const WRITABLE: u32 = 4;
/// The event that both directions have ended (`POLLHUP`).
const HUNG_UP: u32 = 0x10;

/// Tells whether TCP was reset where the library's connection has ended, with the same bytes.
pub(super) fn is_reset(tcp: &str, other: &str) -> bool {
    match (tcp.strip_suffix(RESET.0), other.strip_suffix(RESET.1)) {
        (Some(tcp), Some(other)) => tcp == other,
        _ => false,
    }
}

/// Tells whether the results of `poll`, `select` or `epoll_wait` differ only in that the library's
/// connection is not writable.
pub(super) fn lacks_writable(tcp: &str, other: &str) -> bool {
    let readable =
        other.strip_suffix(" false").is_some_and(|readable| tcp.strip_suffix(" true") == Some(readable));
    // Without any event there is no result.
    let found = if other == "None" { Some(0) } else { events(other) };
    readable || events(tcp).is_some_and(|tcp| tcp & WRITABLE != 0 && found == Some(tcp & !WRITABLE))
}

/// Tells whether the results of `poll` differ only in that the library's connection has hung up.
pub(super) fn hangs_up(tcp: &str, other: &str) -> bool {
    events(tcp).is_some_and(|tcp| tcp & HUNG_UP == 0 && events(other) == Some(tcp | HUNG_UP))
}

/// The events in a result of `poll` or `epoll_wait`.
fn events(text: &str) -> Option<u32> {
    let hex = text.trim_start_matches("0x").trim_start_matches("Some((").split(',').next()?;
    u32::from_str_radix(hex, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reset_may_be_an_end() {
        let reset = format!("3 bytes, all right: true{}", RESET.0);
        let end = format!("3 bytes, all right: true{}", RESET.1);
        assert!(is_reset(&reset, &end));
        assert!(!is_reset(&end, &reset));
        assert!(!is_reset(&reset, &end.replace('3', "4")));
        assert!(!is_reset("EPIPE", "EAGAIN"));
    }

    #[test]
    fn only_the_event_of_being_writable_may_lack() {
        for (tcp, other) in [
            ("0x2015", "0x2011"),
            ("0x4", "0x0"),
            ("true true", "true false"),
            ("Some((5, 7))", "Some((1, 7))"),
            ("Some((4, 7))", "None"),
        ] {
            assert!(lacks_writable(tcp, other), "{tcp}, {other}");
            assert!(!lacks_writable(other, tcp), "{other}, {tcp}");
        }
        for (tcp, other) in
            [("0x2015", "0x2014"), ("true true", "false false"), ("Some((5, 7))", "None"), ("EPIPE", "None")]
        {
            assert!(!lacks_writable(tcp, other), "{tcp}, {other}");
        }
    }

    #[test]
    fn only_the_event_of_a_hang_up_may_be_added() {
        assert!(hangs_up("0x2005", "0x2015"));
        for (tcp, other) in [("0x2015", "0x2005"), ("0x2005", "0x2011"), ("true true", "true false")] {
            assert!(!hangs_up(tcp, other), "{tcp}, {other}");
        }
    }
}
