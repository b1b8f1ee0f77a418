//! What others see of queue pairs: counters of devices, and by what each connection's ends exchange
//! their bytes.

use taut_api::fabric::counters::SocketWord;

use super::super::rig::*;
use super::peers::{Exchange, connect, connect_to_host};
use super::*;

/// By what the ends of all connections exchange their bytes, apart from control connections.
fn rings(rig: &Rig) -> Vec<[bool; 2]> {
    let connections = rig.connections().into_iter().filter(|connection| !connection.is_to_fabric);
    connections.map(|connection| connection.ends.map(|end| end.is_by_rings)).collect()
}

/// Ends that use rings, and bytes by rings and altogether, to each of the guests and from it.
fn counted(rig: &Rig, word: SocketWord) -> [u64; 2] {
    [0, 1].map(|guest| rig.count(guest, word))
}

#[test]
fn each_end_is_shown_with_what_it_uses_now() {
    let mut rig = rig_with(2, &[0, 1]);
    let (a, b) = connect(&mut rig, 0, 1, 5000);
    assert_eq!((rings(&rig), counted(&rig, SocketWord::Attached)), (vec![[false, false]], [0, 0]));
    let [connection] = rig.connections()[..] else { panic!() };
    assert_eq!(connection.ends.map(|end| (end.cid.0, end.port)), [(3, 5000), (4, 80)]);
    let b = b.attach(&mut rig);
    assert_eq!((rings(&rig), counted(&rig, SocketWord::Attached)), (vec![[false, true]], [0, 1]));
    let a = a.attach(&mut rig);
    assert_eq!(rings(&rig), [[true, true]]);
    let sockets = rig.stop_switch();
    rig.replace_switch(sockets);
    assert_eq!((rings(&rig), counted(&rig, SocketWord::Attached)), (vec![[true, true]], [1, 1]));
    let _a = a.leave(&mut rig);
    rest(&mut rig);
    assert_eq!((rings(&rig), counted(&rig, SocketWord::Attached)), (vec![[false, true]], [0, 1]));
    drop(b);
    rig.restart(1);
    rest(&mut rig);
    assert_eq!((rings(&rig), counted(&rig, SocketWord::Attached)), (vec![], [0, 0]));
}

#[test]
fn bytes_by_rings_are_counted_at_the_guest_that_uses_them() {
    let mut rig = rig_with(2, &[0]);
    let (a, mut b) = connect(&mut rig, 0, 1, 5000);
    let mut a = a.attach(&mut rig);
    let before = [SocketWord::RxBytes, SocketWord::TxBytes].map(|word| rig.count(0, word));
    Exchange::new(1, 50_000).run(&mut rig, &mut a, &mut b);
    assert_eq!(counted(&rig, SocketWord::RingRxBytes), [50_000, 0]);
    assert_eq!(counted(&rig, SocketWord::RingTxBytes), [50_000, 0]);
    let after = [SocketWord::RxBytes, SocketWord::TxBytes].map(|word| rig.count(0, word));
    // The program has no signals here that would count.
    assert!(after[0] - before[0] >= 50_000 && after[1] - before[1] >= 50_000);
    assert_eq!(rig.count(1, SocketWord::RxBytes), 50_000);
    let (c, mut d) = connect_to_host(&mut rig, 6000);
    let mut c = c.attach(&mut rig);
    Exchange::new(2, 20_000).run(&mut rig, &mut c, &mut d);
    assert_eq!(counted(&rig, SocketWord::RingRxBytes), [70_000, 0]);
    assert_eq!(counted(&rig, SocketWord::RingTxBytes), [70_000, 0]);
}
