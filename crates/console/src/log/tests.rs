use std::cell::{Cell, RefCell};
use std::fs::File;
use std::rc::Rc;

use super::*;

const LIMIT: u64 = LEAST_LIMIT;

/// A file in memory on a disk with bounded room.
#[derive(Debug, Default, Clone)]
struct Memory {
    bytes: Rc<RefCell<Vec<u8>>>,
    room: Rc<Cell<usize>>,
}

impl Memory {
    fn with_room(room: usize) -> Self {
        let memory = Self::default();
        memory.room.set(room);
        memory
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes.borrow().clone()).unwrap()
    }
}

impl Storage for Memory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.borrow().len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], place: u64) -> io::Result<usize> {
        let bytes = self.bytes.borrow();
        let rest = &bytes[(place as usize).min(bytes.len())..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, new: &[u8], place: u64) -> io::Result<usize> {
        let place = place as usize;
        let mut bytes = self.bytes.borrow_mut();
        let end = (place + new.len()).min(self.room.get().max(bytes.len()));
        let n = end.saturating_sub(place);
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        bytes[place..end].copy_from_slice(&new[..n]);
        Ok(n)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.bytes.borrow_mut().truncate(length as usize);
        Ok(())
    }
}

/// Lines of eight bytes, numbered from `first`.
fn lines(first: usize, count: usize) -> Vec<u8> {
    (first..first + count).flat_map(|n| format!("{n:07}\n").into_bytes()).collect()
}

fn check(log: &[u8], last: usize) {
    let text = String::from_utf8(log.to_vec()).unwrap();
    let numbers: Vec<usize> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(numbers.last(), Some(&last));
    assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]), "nothing is missing in between");
}

#[test]
fn a_log_never_exceeds_its_limit_and_ends_in_the_newest_bytes() {
    let now = Instant::now();
    let file = tempfile::tempfile().unwrap();
    let mut log = BoundedLog::new(file.try_clone().unwrap(), LIMIT, now);
    for (index, count) in [1, 1000, 8192, 3, 5000, 8192, 8192, 7].into_iter().cycle().take(100).enumerate() {
        let first = 1 + index * 10_000;
        log.append(&lines(first, count), now);
        let length = file.length().unwrap();
        assert!(length <= LIMIT, "{length}");
        let mut read = vec![0; length as usize];
        assert_eq!(Storage::read_at(&file, &mut read, 0).unwrap(), read.len());
        let newest = lines(first, count);
        assert!(read.ends_with(&newest));
    }
}

#[test]
fn what_is_cut_is_exactly_half_the_limit_and_the_rest_is_whole() {
    let now = Instant::now();
    let memory = Memory::with_room(usize::MAX);
    let mut log = BoundedLog::new(memory.clone(), LIMIT, now);
    let mut written = 0;
    let mut removed = 0;
    for _ in 0..500 {
        log.append(&lines(written, 123), now);
        written += 123;
        let length = memory.length().unwrap();
        let begin = written as u64 * 8 - length;
        assert_eq!(begin % (LIMIT / 2), 0);
        removed = removed.max(begin / (LIMIT / 2));
        check(&memory.bytes.borrow(), written - 1);
    }
    assert!(removed > 5);
}

#[test]
fn a_file_that_is_too_long_keeps_its_newest_bytes() {
    let now = Instant::now();
    let memory = Memory::with_room(usize::MAX);
    memory.write_at(&lines(0, 100_000), 0).unwrap();
    let mut log = BoundedLog::new(memory.clone(), LIMIT, now);
    log.append(&lines(100_000, 1), now);
    assert_eq!(memory.length().unwrap(), LIMIT / 2 + 8);
    check(&memory.bytes.borrow(), 100_000);
}

#[test]
fn a_full_disk_loses_the_oldest_bytes_and_one_line_tells_how_many() {
    let mut now = Instant::now();
    let memory = Memory::with_room(1000);
    let mut log = BoundedLog::new(memory.clone(), 4 << 20, now);
    let all = lines(0, 100_000);
    for part in all.chunks(10_000) {
        log.append(part, now);
        now += Duration::from_millis(1);
    }
    assert!(log.due().is_some_and(|due| due + RETRY > now));
    // There is room for a part of the backlog.
    memory.room.set(100_000);
    log.finish(now);
    assert_eq!(memory.length().unwrap(), 100_000);
    assert!(log.due().is_some());
    log.append(b"later\n", now);
    memory.room.set(usize::MAX);
    log.settle(now + RETRY);
    assert_eq!(log.due(), None);
    let text = memory.text();
    assert_eq!(text.matches("[taut: ").count(), 1);
    let (before, after) = text.split_once("\r\n[taut: ").unwrap();
    assert_eq!(before.as_bytes(), &all[..1000]);
    let (notice, after) = after.split_once("]\r\n").unwrap();
    let lost: usize = notice.split(' ').next().unwrap().parse().unwrap();
    assert!(notice.contains("bytes are missing: the log could not be written: "), "{notice}");
    assert_eq!(lost, all.len() - 1000 - BACKLOG);
    assert_eq!(after.as_bytes(), [&all[all.len() - BACKLOG..], b"later\n"].concat());
}

#[test]
fn without_any_room_memory_stays_bounded_and_no_half_notice_is_left() {
    let mut now = Instant::now();
    let memory = Memory::with_room(0);
    let mut log = BoundedLog::new(memory.clone(), LIMIT, now);
    for _ in 0..100 {
        log.append(&vec![b'x'; 50_000], now);
        assert!(log.backlog.len() <= BACKLOG);
        now += RETRY;
    }
    memory.room.set(10);
    log.settle(now + RETRY);
    assert_eq!(memory.length().unwrap(), 0, "ten bytes do not hold the notice");
    log.append(&vec![b'y'; 1 << 20], now);
    assert_eq!(log.backlog.len(), BACKLOG);
}

#[test]
fn a_log_whose_owner_truncates_it_goes_on_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    let now = Instant::now();
    let mut log = BoundedLog::new(File::create_new(&path).unwrap(), LIMIT, now);
    log.append(b"one\n", now);
    File::options().write(true).truncate(true).open(&path).unwrap();
    log.append(b"two\n", now);
    assert_eq!(std::fs::read(&path).unwrap(), b"two\n");
}
