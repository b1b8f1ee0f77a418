use super::*;

static TABLE: Table = Table::new();

fn connection(peer: &str, local: &str) -> Connection {
    let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
    Connection { cookie: u64::MAX - 1, peer, local, no_delay: true, unasked: false }
}

fn listener(vmci: Option<RawFd>) -> Listener {
    Listener {
        cookie: u64::MAX,
        vmci,
        port: u32::MAX,
        backlog: 128,
        armed: false,
        non_blocking: false,
        retry: 0,
    }
}

#[test]
fn duplicates_are_remembered_until_they_are_closed() {
    TABLE.duplicated(20, 21);
    assert!(TABLE.is_duplicated(20) && TABLE.is_duplicated(21) && TABLE.is_known(21));
    assert!(TABLE.numbers().contains(&21) && !TABLE.is_held(20));
    TABLE.forget(20);
    assert!(!TABLE.is_known(20) && TABLE.is_duplicated(21));
}

#[test]
fn an_entry_is_what_was_entered() {
    for held in [
        Held::Connection(connection("10.0.0.7:6379", "0.0.0.0:65535")),
        Held::Connection(connection("[::ffff:10.0.0.7]:1", "[fd00::6]:2")),
        Held::Connection(Connection { no_delay: false, unasked: true, ..connection("[::]:0", "[::1]:9") }),
        Held::Listener(listener(Some(901))),
        Held::Listener(Listener { armed: true, backlog: -1, retry: u64::MAX, ..listener(None) }),
        Held::Listener(Listener { non_blocking: true, port: 80, ..listener(Some(0)) }),
        Held::Hidden(u64::MAX - 7),
        Held::Nothing,
    ] {
        assert!(TABLE.set(100, held));
        assert_eq!(TABLE.get(100), held);
        assert_eq!(TABLE.is_held(100), held != Held::Nothing);
        assert_eq!(TABLE.is_hidden(100), matches!(held, Held::Hidden(_)));
        assert_eq!(TABLE.may_listen(100), matches!(held, Held::Listener(_)));
    }
    assert!(TABLE.numbers().contains(&100));
}

#[test]
fn numbers_outside_the_table_have_no_entries() {
    for fd in [-1, RawFd::MIN, RawFd::try_from(SLOTS).unwrap(), RawFd::MAX] {
        assert!(!TABLE.set(fd, Held::Hidden(1)));
        assert_eq!(TABLE.get(fd), Held::Nothing);
        TABLE.watched(fd, Watch { epoll: 3, events: 1, data: 2 });
        assert_eq!(TABLE.watch(fd), Ok(None));
    }
}

#[test]
fn parts_of_a_connection_change_each_by_itself() {
    let first = Connection { unasked: true, ..connection("10.0.0.7:6379", "[::]:7") };
    let local: SocketAddr = "[fd00::6]:7".parse().unwrap();
    TABLE.set(55, Held::Connection(first));
    TABLE.set_no_delay(55, 1, false);
    TABLE.set_local(55, 1, local);
    assert!(!TABLE.set_asked(55, 1));
    assert_eq!(TABLE.get(55), Held::Connection(first), "another socket");
    TABLE.set_no_delay(55, first.cookie, false);
    TABLE.set_local(55, first.cookie, local);
    assert_eq!(TABLE.get(55), Held::Connection(Connection { local, no_delay: false, ..first }));
    TABLE.set_no_delay(55, first.cookie, true);
    assert!(TABLE.set_asked(55, first.cookie));
    assert!(!TABLE.set_asked(55, first.cookie), "one thread gets it");
    TABLE.set_local(55, first.cookie, "[fd00::8]:7".parse().unwrap());
    assert_eq!(TABLE.get(55), Held::Connection(Connection { local, unasked: false, ..first }));
}

#[test]
fn a_local_address_is_read_whole_or_not_at_all() {
    const ROUNDS: usize = 300;
    let before = connection("[fd00::7]:6379", "[::]:7");
    let after = Connection { local: "[fd00:1:2:3:4:5:6:7]:7".parse().unwrap(), ..before };
    for _ in 0..ROUNDS {
        TABLE.set(56, Held::Connection(before));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| TABLE.set_local(56, after.cookie, after.local));
            }
            while TABLE.get(56) != Held::Connection(after) {
                let seen = TABLE.get(56);
                assert!(seen == Held::Connection(before) || seen == Held::Connection(after), "{seen:?}");
            }
        });
    }
}

#[test]
fn a_watch_is_remembered_until_it_ends() {
    let watch = Watch { epoll: 0, events: 5, data: u64::MAX };
    TABLE.watched(7, watch);
    assert_eq!(TABLE.watch(7), Ok(Some(watch)));
    let changed = Watch { events: 1, ..watch };
    TABLE.watched(7, changed);
    TABLE.unwatched(7, 4);
    assert_eq!(TABLE.watch(7), Ok(Some(changed)));
    TABLE.unwatched(7, 0);
    assert_eq!(TABLE.watch(7), Ok(None));
    TABLE.watched(7, watch);
    TABLE.watched(7, Watch { epoll: 4, ..watch });
    assert_eq!(TABLE.watch(7), Err(ManyWatches));
    TABLE.forget(7);
    assert_eq!(TABLE.watch(7), Ok(None));
}

#[test]
fn a_listener_ends_once_and_the_watch_of_its_number_stays() {
    let entry = listener(Some(961));
    let watch = Watch { epoll: 0, events: 5, data: 1 };
    TABLE.set(31, Held::Listener(entry));
    TABLE.watched(31, watch);
    assert_eq!(TABLE.end(31, entry.cookie - 1), None, "another socket");
    assert_eq!(TABLE.end(31, entry.cookie).and_then(|last| last.vmci), Some(961));
    assert_eq!(TABLE.end(31, entry.cookie), None, "one thread gets it");
    let late = |state| State { vmci: Some(962), ..state };
    assert_eq!(TABLE.change(31, entry.cookie, late), None);
    assert_eq!(TABLE.get(31), Held::Nothing);
    assert_eq!(TABLE.watch(31), Ok(Some(watch)));
}

#[test]
fn a_listener_changes_only_while_it_is_the_same_socket() {
    let entry = Listener { cookie: 1 << 30, ..listener(Some(960)) };
    let armed = |state| State { armed: true, ..state };
    TABLE.set(30, Held::Listener(entry));
    assert!(TABLE.change(30, 1 << 30, armed).is_some());
    assert_eq!(TABLE.get(30), Held::Listener(Listener { armed: true, ..entry }));
    assert_eq!(TABLE.change(30, 7, armed), None, "another socket");
    assert_eq!(TABLE.take_vmci(30, 1 << 30), Some(960));
    assert_eq!(TABLE.take_vmci(30, 1 << 30), None, "one thread gets it");
    TABLE.forget(30);
    assert_eq!(TABLE.change(30, 1 << 30, armed), None, "closed");
    assert_eq!(TABLE.get(30), Held::Nothing);
    let next = connection("10.0.0.7:6379", "0.0.0.0:65535");
    TABLE.set(30, Held::Connection(next));
    assert_eq!(TABLE.change(30, 1 << 30, armed), None);
    assert_eq!(TABLE.get(30), Held::Connection(next));
}

#[test]
fn an_epoll_instance_is_known_by_its_watches() {
    TABLE.watched(40, Watch { epoll: 41, events: 1, data: 2 });
    assert!(TABLE.is_instance(41) && TABLE.is_known(41) && !TABLE.is_instance(40));
    TABLE.duplicated(41, 42);
    assert!(!TABLE.is_instance(41), "its watches outlive this number");
    TABLE.forget(41);
    assert!(!TABLE.is_instance(41));
}

#[test]
fn a_connection_is_private_until_it_is_shared() {
    TABLE.set(50, Held::Connection(connection("10.0.0.7:1", "0.0.0.0:2")));
    assert!(!TABLE.is_private(50), "nobody has said so");
    TABLE.set_private(50);
    assert!(TABLE.is_private(50) && TABLE.has_no_delay(50) && TABLE.cookie(50) == Some(u64::MAX - 1));
    TABLE.set_answered(50);
    assert!(TABLE.was_answered(50) && !TABLE.was_answered(50), "once");
    TABLE.set_cork(50, true);
    assert!(TABLE.has_cork(50));
    TABLE.set_cork(50, false);
    assert!(!TABLE.has_cork(50) && TABLE.is_private(50));
    assert!(TABLE.set_shared(50) && !TABLE.set_shared(50) && !TABLE.is_private(50));
    TABLE.set_answered(50);
    assert!(!TABLE.was_answered(50), "not gathered any more");
    TABLE.set_private(50);
    TABLE.set_answered(50);
    TABLE.set_cork(50, true);
    // Another connection gets the number, and its close was not seen.
    TABLE.set(50, Held::Connection(connection("10.0.0.7:1", "0.0.0.0:2")));
    TABLE.set_private(50);
    assert!(!TABLE.has_cork(50) && !TABLE.was_answered(50));
    for share in [|| TABLE.duplicated(50, 51), || TABLE.set_stream(50), || TABLE.forget(50)] {
        TABLE.set(50, Held::Connection(connection("10.0.0.7:1", "0.0.0.0:2")));
        TABLE.set_private(50);
        assert!(TABLE.is_private(50));
        share();
        assert!(!TABLE.is_private(50));
        TABLE.forget(50);
    }
}

#[test]
fn threads_that_wait_are_counted() {
    assert!(!TABLE.is_waited_for(60));
    for _ in 0..2 {
        TABLE.waits(60, true);
    }
    TABLE.waits(60, false);
    assert!(TABLE.is_waited_for(60));
    TABLE.waits(60, false);
    TABLE.waits(60, false);
    assert!(!TABLE.is_waited_for(60), "never below none");
    TABLE.watched(60, Watch { epoll: 61, events: 1, data: 2 });
    TABLE.waits(61, true);
    assert!(TABLE.is_waited_for(60), "its instance");
    TABLE.forget(61);
    assert!(!TABLE.is_waited_for(60));
    TABLE.waits(60, true);
    TABLE.nobody_waits();
    assert!(!TABLE.is_waited_for(60));
    TABLE.waits(-1, true);
    assert!(!TABLE.is_waited_for(-1));
}
