//! The form of datagrams on a stream. The carrier that connects first says which port its
//! datagrams come from; then both send each datagram behind its length.

use rustix::io::Errno;

use super::PORTS;

/// Longest datagram in bytes.
pub(crate) const MAX_DATAGRAM: usize = 64 << 10;
/// Length of the address before a message between program and carrier.
pub(crate) const HEADER: usize = 8;
/// The first bytes of a stream: "TDG", and the version.
const MAGIC: [u8; 4] = *b"TDG\x01";
/// Length of the first message of a stream: [`MAGIC`] and a port.
const HELLO: usize = 8;
/// Length of a datagram's length.
const LENGTH: usize = 4;

/// The first message of a stream.
pub(super) fn hello(port: u32) -> [u8; HELLO] {
    let mut hello = [0; HELLO];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4..].copy_from_slice(&port.to_le_bytes());
    hello
}

/// What stands before a datagram of this length.
pub(super) fn length(len: usize) -> [u8; LENGTH] {
    (len as u32).to_le_bytes()
}

/// Bytes of a stream that were received and are not datagrams of the program yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    /// Number of bytes at the front that are done.
    done: usize,
}

impl Inbox {
    /// Adds bytes of the stream.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.done);
        self.done = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.done..).unwrap_or_default()
    }

    /// Takes the first message of a stream, and returns the port in it. `None` until all of it is
    /// there.
    pub(super) fn take_hello(&mut self) -> Result<Option<u32>, Errno> {
        let Some(hello) = self.rest().first_chunk::<HELLO>() else { return Ok(None) };
        let (Some(magic), Some(port)) = (hello.first_chunk(), hello.last_chunk()) else { return Ok(None) };
        let port = u32::from_le_bytes(*port);
        if *magic != MAGIC || port >= PORTS {
            return Err(Errno::PROTO);
        }
        self.done += HELLO;
        Ok(Some(port))
    }

    /// The next datagram, which stays there. `None` until all of it is there.
    pub(super) fn first(&self) -> Result<Option<&[u8]>, Errno> {
        let Some(length) = self.rest().first_chunk::<LENGTH>() else { return Ok(None) };
        let len = u32::from_le_bytes(*length) as usize;
        if len > MAX_DATAGRAM {
            return Err(Errno::PROTO);
        }
        Ok(self.rest().get(LENGTH..LENGTH + len))
    }

    /// Tells whether a datagram, or something that is none, is there as a whole.
    pub(super) fn has_datagram(&self) -> bool {
        !matches!(self.first(), Ok(None))
    }

    /// The number of datagrams that are there as a whole.
    pub(super) fn count(&self) -> u64 {
        let (mut rest, mut count) = (self.rest(), 0);
        while let Some((length, more)) = rest.split_first_chunk::<LENGTH>()
            && let Some(more) = more.get(u32::from_le_bytes(*length) as usize..)
        {
            (rest, count) = (more, count + 1);
        }
        count
    }

    /// Removes the datagram of this length that [`Inbox::first`] has returned.
    pub(super) fn remove(&mut self, len: usize) {
        self.done = (self.done + LENGTH + len).min(self.bytes.len());
        if self.done == self.bytes.len() {
            self.bytes.clear();
            self.done = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn datagrams_arrive_as_they_were_however_the_stream_is_cut(
            datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..40),
            cuts in proptest::collection::vec(1_usize..500, 1..20),
            port in 0..PORTS,
        ) {
            let mut stream = hello(port).to_vec();
            for datagram in &datagrams {
                stream.extend(length(datagram.len()));
                stream.extend(datagram);
            }
            let (mut inbox, mut from, mut got, mut cuts) = (Inbox::default(), None, Vec::new(), cuts.iter().cycle());
            while !stream.is_empty() {
                let cut = (*cuts.next().unwrap()).min(stream.len());
                inbox.push(&stream.drain(..cut).collect::<Vec<_>>());
                if from.is_none() {
                    from = inbox.take_hello().unwrap();
                }
                while from.is_some() && let Some(datagram) = inbox.first().unwrap().map(<[u8]>::to_vec) {
                    inbox.remove(datagram.len());
                    got.push(datagram);
                }
            }
            prop_assert_eq!(from, Some(port));
            prop_assert_eq!(got, datagrams);
            prop_assert!(inbox.rest().is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let mut inbox = Inbox::default();
            inbox.push(&bytes);
            let _ = inbox.take_hello();
            while let Ok(Some(len)) = inbox.first().map(|first| first.map(<[u8]>::len)) {
                inbox.remove(len);
            }
        }
    }

    #[test]
    fn whole_datagrams_are_counted() {
        let mut inbox = Inbox::default();
        assert_eq!((inbox.count(), inbox.has_datagram()), (0, false));
        for bytes in [&b"one"[..], b"", b"three"] {
            inbox.push(&length(bytes.len()));
            inbox.push(bytes);
        }
        inbox.push(&length(5));
        inbox.push(b"part");
        assert_eq!((inbox.count(), inbox.has_datagram()), (3, true));
        inbox.remove(3);
        assert_eq!(inbox.count(), 2);
    }

    #[test]
    fn a_stream_of_something_else_is_refused() {
        let mut inbox = Inbox::default();
        inbox.push(b"GET / HTTP/1.1\r\n");
        assert_eq!(inbox.take_hello(), Err(Errno::PROTO));
        let mut inbox = Inbox::default();
        inbox.push(&hello(PORTS));
        assert_eq!(inbox.take_hello(), Err(Errno::PROTO));
        let mut inbox = Inbox::default();
        inbox.push(&length(MAX_DATAGRAM + 1));
        assert_eq!(inbox.first(), Err(Errno::PROTO));
    }
}
