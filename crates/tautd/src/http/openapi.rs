//! The API's own description.

use axum::Json;
use utoipa::OpenApi;

use super::{attachments, daemon, events, host, kvm, metrics, networks, patch, ports, vms};

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
        networks::list_vswitches,
        networks::show_vswitch,
        networks::put_vswitch,
        networks::delete_vswitch,
        networks::list_portgroups,
        networks::show_portgroup,
        networks::put_portgroup,
        networks::delete_portgroup,
        attachments::list_netns,
        attachments::show_netns,
        attachments::put_netns,
        attachments::delete_netns,
        attachments::list_external,
        attachments::show_external,
        attachments::put_external,
        attachments::delete_external,
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

/// The OpenAPI document.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    Api::openapi()
}

pub(super) async fn serve() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
