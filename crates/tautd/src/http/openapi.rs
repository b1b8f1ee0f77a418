//! The OpenAPI description.

use axum::Json;
use utoipa::OpenApi;

use super::resources::{external, netns, portgroups, vswitches};
use super::{daemon, events, host, kvm, metrics, patch, ports, vms};

#[derive(OpenApi)]
#[openapi(
    info(title = "taut", description = "VM latency, networking and sockets for QEMU/KVM hosts"),
    paths(
        vms::list_vms,
        vms::create_vm,
        vms::show_vm,
        vms::delete_vm,
        vms::set_power,
        patch::patch_vm,
        kvm::kvm_counters,
        vswitches::list_vswitches,
        vswitches::show_vswitch,
        vswitches::put_vswitch,
        vswitches::delete_vswitch,
        portgroups::list_portgroups,
        portgroups::show_portgroup,
        portgroups::put_portgroup,
        portgroups::delete_portgroup,
        netns::list_netns,
        netns::show_netns,
        netns::put_netns,
        netns::delete_netns,
        external::list_external,
        external::show_external,
        external::put_external,
        external::delete_external,
        ports::list_ports,
        events::list_events,
        daemon::show_daemon,
        daemon::show_host,
        host::show_settings,
        host::change_settings,
        host::show_tune,
        host::restore,
        daemon::upgrade_fabric,
        daemon::shutdown,
        metrics::metrics,
    )
)]
struct Api;

/// Returns the OpenAPI document.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    Api::openapi()
}

pub(super) async fn serve() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
