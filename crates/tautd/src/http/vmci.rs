//! `/v1/vmci/connections`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use taut_api::fabric::connections::{RecordedConnection, RecordedEnd};
use taut_api::vmci::{Carrier, Cid, SocketKind, VmciConnection, VmciEnd};
use taut_api::{ApiError, Name, path};

use super::Shared;
use super::body::Failure;

/// Lists all connections of VMCI sockets, and by what each end exchanges its bytes.
#[utoipa::path(get, path = path::VMCI_CONNECTIONS, tag = "VMs",
    responses((status = 200, body = [VmciConnection]), (status = 500, body = ApiError)))]
pub(super) async fn list_connections(
    State(app): State<Shared>,
) -> Result<Json<Vec<VmciConnection>>, Failure> {
    let listed = tokio::task::spawn_blocking(move || {
        let (state, _) = app.look();
        let vms = state.desired.vms.iter();
        let vms = vms.filter_map(|(name, vm)| Some((vm.vm.vmci.as_ref()?.cid?, name.clone()))).collect();
        let recorded = app.counters.connections();
        recorded.map(|recorded| recorded.into_iter().map(|each| connection(&vms, each)).collect())
    });
    let listed = listed.await.map_err(|error| Failure::internal("the look was interrupted", &error))?;
    listed.map(Json).map_err(|error| Failure::internal("the connections cannot be read", &error))
}

/// Names the VMs of a connection.
fn connection(vms: &BTreeMap<Cid, Name>, recorded: RecordedConnection) -> VmciConnection {
    let end = |RecordedEnd { cid, port, is_by_rings }, is_fabric| {
        let carrier = match cid {
            Cid::HOST if is_fabric => Carrier::Service,
            Cid::HOST => Carrier::Socket,
            _ if is_by_rings => Carrier::Ring,
            _ => Carrier::Packets,
        };
        VmciEnd { vm: vms.get(&cid).cloned(), cid, port, carrier }
    };
    let [from, to] = recorded.ends;
    VmciConnection {
        from: end(from, false),
        to: end(to, recorded.is_to_fabric),
        kind: if recorded.has_records { SocketKind::SeqPacket } else { SocketKind::Stream },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_vm_and_what_it_uses() {
        let vms = BTreeMap::from([(Cid(3), "db1".parse().unwrap())]);
        let end = |cid, is_by_rings| RecordedEnd { cid: Cid(cid), port: 80, is_by_rings };
        let shown = |ends, is_to_fabric| {
            let recorded = RecordedConnection { ends, has_records: false, is_to_fabric };
            let VmciConnection { from, to, kind } = connection(&vms, recorded);
            assert_eq!(kind, SocketKind::Stream);
            [from, to].map(|end| (end.vm.map(|vm| vm.to_string()), end.carrier))
        };
        let db1 = || Some("db1".to_owned());
        // A VM that is no more has no name.
        let two = [(db1(), Carrier::Ring), (None, Carrier::Packets)];
        assert_eq!(shown([end(3, true), end(4, false)], false), two);
        let host = [(None, Carrier::Socket), (db1(), Carrier::Packets)];
        assert_eq!(shown([end(2, false), end(3, false)], false), host);
        let control = [(db1(), Carrier::Packets), (None, Carrier::Service)];
        assert_eq!(shown([end(3, false), end(2, false)], true), control);
    }
}
