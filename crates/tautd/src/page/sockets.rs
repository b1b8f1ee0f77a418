//! The page of VMCI sockets.

use taut_api::path;
use taut_api::route::Vm;
use taut_api::vmci::VmciConnection;
use taut_page::view::sockets;

use super::api::Api;
use super::shown::Shown;

pub(super) async fn show(api: Api) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let vms: Vec<Vm> = api.get(path::VMS).await?;
        let connections: Vec<VmciConnection> = api.get(path::VMCI_CONNECTIONS).await?;
        Ok(sockets::page(&frame, &vms, &connections))
    };
    let page = page.await;
    Shown::of(&frame, page)
}
