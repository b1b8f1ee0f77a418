//! The OpenAPI description.

use axum::Json;
use axum::http::Method;
use utoipa::OpenApi;

use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};

use super::resources::{external, netdevs, netns, portgroups, uplinks, vswitches};
use super::{
    audit, capture, check, daemon, events, host, kvm, metrics, patch, pnics, ports, statistics, table,
    tokens, vmci, vms,
};

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
        vmci::list_connections,
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
        netdevs::list_netdevs,
        netdevs::show_netdev,
        netdevs::put_netdev,
        netdevs::delete_netdev,
        uplinks::list_uplinks,
        uplinks::show_uplink,
        uplinks::put_uplink,
        uplinks::delete_uplink,
        pnics::list_pnics,
        pnics::show_pnic,
        pnics::put_pnic,
        pnics::delete_pnic,
        ports::list_ports,
        statistics::port_statistics,
        statistics::vm_statistics,
        statistics::socket_statistics,
        statistics::host_statistics,
        statistics::show_series,
        capture::capture_port,
        events::list_events,
        audit::list_audit,
        audit::check_audit,
        tokens::list_tokens,
        tokens::create_token,
        tokens::delete_token,
        daemon::show_daemon,
        daemon::show_host,
        host::show_settings,
        host::change_settings,
        host::show_tune,
        check::check_host,
        host::restore,
        daemon::upgrade_fabric,
        daemon::shutdown,
        metrics::metrics,
    )
)]
struct Api;

/// Returns the OpenAPI document. Each operation names the role that it needs, and the refusals that
/// all have in common.
pub(crate) fn document() -> utoipa::openapi::OpenApi {
    let mut document = Api::openapi();
    for route in table::routes() {
        let item = document.paths.paths.get_mut(route.path);
        let Some(operation) = item.and_then(|item| operation(item, &route.method)) else { continue };
        let refusals = [
            ("401", "Over TCP: the request has no valid token".to_owned()),
            ("403", format!("The caller lacks the role `{}`", route.role)),
            ("429", "Over TCP: the caller sends too many requests".to_owned()),
        ];
        for (status, why) in refusals {
            let refused = ResponseBuilder::new()
                .description(why)
                .content("application/json", Content::new(Some(Ref::from_schema_name("ApiError"))));
            operation.responses.responses.insert(status.to_owned(), RefOr::T(refused.build()));
        }
    }
    document
}

fn operation<'a>(item: &'a mut PathItem, method: &Method) -> Option<&'a mut Operation> {
    match *method {
        Method::GET => item.get.as_mut(),
        Method::PUT => item.put.as_mut(),
        Method::POST => item.post.as_mut(),
        Method::PATCH => item.patch.as_mut(),
        Method::DELETE => item.delete.as_mut(),
        _ => None,
    }
}

pub(super) async fn serve() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
