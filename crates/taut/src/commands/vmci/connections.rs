//! `taut vmci list --connections`.

use taut_api::vmci::{VmciConnection, VmciEnd};

use crate::output;

/// Renders connections: both ends, and by what each of them exchanges its bytes.
pub(super) fn table(connections: &[VmciConnection]) -> String {
    let rows: Vec<_> = connections.iter().map(row).collect();
    output::table(["FROM", "CID", "PORT", "BY", "TO", "CID", "PORT", "BY", "TYPE"], &rows)
}

fn row(connection: &VmciConnection) -> [String; 9] {
    let VmciConnection { from, to, kind } = connection;
    let [from_machine, from_cid, from_port, from_carrier] = end(from);
    let [to_machine, to_cid, to_port, to_carrier] = end(to);
    let kind = output::word(kind);
    [from_machine, from_cid, from_port, from_carrier, to_machine, to_cid, to_port, to_carrier, kind]
}

fn end(end: &VmciEnd) -> [String; 4] {
    let machine = end.vm.as_ref().map_or_else(|| "host".to_owned(), ToString::to_string);
    [machine, end.cid.to_string(), end.port.to_string(), output::word(&end.carrier)]
}

#[cfg(test)]
mod tests {
    use taut_api::vmci::{Carrier, Cid, SocketKind};

    use super::*;

    #[test]
    fn each_connection_is_listed_with_both_ends() {
        let end = |vm: Option<&str>, cid, port, carrier| VmciEnd {
            vm: vm.map(|name| name.parse().unwrap()),
            cid: Cid(cid),
            port,
            carrier,
        };
        let connection = |from, to, kind| VmciConnection { from, to, kind };
        let connections = [
            connection(
                end(Some("web1"), 4, 1027, Carrier::Packets),
                end(Some("db1"), 3, 6379, Carrier::Ring),
                SocketKind::Stream,
            ),
            connection(
                end(Some("db1"), 3, 4000, Carrier::Packets),
                end(None, 2, 1_952_544_116, Carrier::Service),
                SocketKind::Stream,
            ),
            connection(
                end(None, 2, 49152, Carrier::Socket),
                end(Some("db1"), 3, 7, Carrier::Packets),
                SocketKind::SeqPacket,
            ),
        ];
        insta::assert_snapshot!(table(&connections), @r"
        FROM  CID   PORT  BY       TO    CID        PORT  BY       TYPE
        web1    4   1027  packets  db1     3        6379  ring     stream
        db1     3   4000  packets  host    2  1952544116  service  stream
        host    2  49152  socket   db1     3           7  packets  seqpacket
        ");
    }
}
