//! All paths of the API, each with the role that it needs.
//!
//! The table makes the router: a [`Route`] cannot be made without a role, and only comes with a
//! gate that asks for it.

use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, on};
use taut_api::path;
use taut_api::role::Role;

use super::resources::{external, netdevs, netns, portgroups, uplinks, vswitches};
use super::{
    Shared, audit, capture, check, daemon, events, gate, host, kvm, metrics, openapi, patch, pnics, ports,
    statistics, tokens, vmci, vms,
};

/// One method of one path.
#[derive(Debug)]
pub(super) struct Route {
    /// The method.
    pub(super) method: Method,
    /// The path, with placeholders.
    pub(super) path: &'static str,
    /// Role that a caller needs.
    pub(super) role: Role,
    /// Requests are in the audit record although they change nothing.
    is_recorded: bool,
    /// Requests over TCP are refused.
    refuses_tcp: bool,
    handler: MethodRouter<Shared>,
}

impl Route {
    fn new<H, T>(role: Role, method: Method, path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("a method that the router knows");
        Self { method, path, role, is_recorded: false, refuses_tcp: false, handler: on(filter, handler) }
    }

    /// Has requests recorded although they change nothing.
    fn recorded(self) -> Self {
        Self { is_recorded: true, ..self }
    }

    /// Refuses requests over TCP, whatever the token's role.
    fn local(self) -> Self {
        Self { refuses_tcp: true, ..self }
    }

    /// Returns the handler behind its gate.
    pub(super) fn gated(self, app: &Shared) -> MethodRouter<Shared> {
        let Self { role, is_recorded, refuses_tcp, handler, .. } = self;
        let gate = gate::Gate { app: app.clone(), role, is_recorded, refuses_tcp };
        handler.route_layer(from_fn_with_state(gate, gate::pass))
    }
}

/// Returns all routes. Namespaces, sockets of others, network interfaces and cards are objects of
/// the host, which taut opens as root, so they need the role `admin`. So do captures, which have
/// the traffic of other users. What opens a path of the host as root is only for callers there.
pub(super) fn routes() -> Vec<Route> {
    use Role::{Admin, Define, Operate, View};
    let get = || Method::GET;
    vec![
        Route::new(View, get(), path::VMS, vms::list_vms),
        Route::new(Define, Method::POST, path::VMS, vms::create_vm),
        Route::new(View, get(), path::VM.pattern(), vms::show_vm),
        Route::new(Define, Method::PATCH, path::VM.pattern(), patch::patch_vm),
        Route::new(Define, Method::DELETE, path::VM.pattern(), vms::delete_vm),
        Route::new(Operate, Method::POST, path::VM_POWER.pattern(), vms::set_power),
        Route::new(View, get(), path::VM_KVM.pattern(), kvm::kvm_counters),
        Route::new(View, get(), path::VMCI_CONNECTIONS, vmci::list_connections),
        Route::new(View, get(), path::VSWITCHES, vswitches::list_vswitches),
        Route::new(View, get(), path::VSWITCH.pattern(), vswitches::show_vswitch),
        Route::new(Define, Method::PUT, path::VSWITCH.pattern(), vswitches::put_vswitch),
        Route::new(Define, Method::DELETE, path::VSWITCH.pattern(), vswitches::delete_vswitch),
        Route::new(View, get(), path::PORTGROUPS, portgroups::list_portgroups),
        Route::new(View, get(), path::PORTGROUP.pattern(), portgroups::show_portgroup),
        Route::new(Define, Method::PUT, path::PORTGROUP.pattern(), portgroups::put_portgroup),
        Route::new(Define, Method::DELETE, path::PORTGROUP.pattern(), portgroups::delete_portgroup),
        Route::new(View, get(), path::NETNS, netns::list_netns),
        Route::new(View, get(), path::NETNS_ATTACHMENT.pattern(), netns::show_netns),
        Route::new(Admin, Method::PUT, path::NETNS_ATTACHMENT.pattern(), netns::put_netns),
        Route::new(Admin, Method::DELETE, path::NETNS_ATTACHMENT.pattern(), netns::delete_netns),
        Route::new(View, get(), path::EXTERNAL_PORTS, external::list_external),
        Route::new(View, get(), path::EXTERNAL_PORT.pattern(), external::show_external),
        Route::new(Admin, Method::PUT, path::EXTERNAL_PORT.pattern(), external::put_external).local(),
        Route::new(Admin, Method::DELETE, path::EXTERNAL_PORT.pattern(), external::delete_external),
        Route::new(View, get(), path::NETDEVS, netdevs::list_netdevs),
        Route::new(View, get(), path::NETDEV.pattern(), netdevs::show_netdev),
        Route::new(Admin, Method::PUT, path::NETDEV.pattern(), netdevs::put_netdev),
        Route::new(Admin, Method::DELETE, path::NETDEV.pattern(), netdevs::delete_netdev),
        Route::new(View, get(), path::UPLINKS, uplinks::list_uplinks),
        Route::new(View, get(), path::UPLINK.pattern(), uplinks::show_uplink),
        Route::new(Admin, Method::PUT, path::UPLINK.pattern(), uplinks::put_uplink),
        Route::new(Admin, Method::DELETE, path::UPLINK.pattern(), uplinks::delete_uplink),
        Route::new(View, get(), path::PNICS, pnics::list_pnics),
        Route::new(View, get(), path::PNIC.pattern(), pnics::show_pnic),
        Route::new(Admin, Method::PUT, path::PNIC.pattern(), pnics::put_pnic),
        Route::new(Admin, Method::DELETE, path::PNIC.pattern(), pnics::delete_pnic),
        Route::new(View, get(), path::PORTS, ports::list_ports),
        Route::new(View, get(), path::PORT_STATISTICS, statistics::port_statistics),
        Route::new(View, get(), path::VM_STATISTICS, statistics::vm_statistics),
        Route::new(View, get(), path::SOCKET_STATISTICS, statistics::socket_statistics),
        Route::new(View, get(), path::HOST_STATISTICS, statistics::host_statistics),
        Route::new(View, get(), path::SERIES, statistics::show_series),
        Route::new(Admin, get(), path::PORT_CAPTURE.pattern(), capture::capture_port).recorded(),
        Route::new(View, get(), path::EVENTS, events::list_events),
        Route::new(Admin, get(), path::AUDIT, audit::list_audit),
        Route::new(Admin, get(), path::AUDIT_CHECK, audit::check_audit),
        Route::new(Admin, get(), path::TOKENS, tokens::list_tokens),
        Route::new(Admin, Method::POST, path::TOKENS, tokens::create_token),
        Route::new(Admin, Method::DELETE, path::TOKEN.pattern(), tokens::delete_token),
        Route::new(View, get(), path::HOST, daemon::show_host),
        Route::new(View, get(), path::HOST_SETTINGS, host::show_settings),
        Route::new(Admin, Method::PATCH, path::HOST_SETTINGS, host::change_settings),
        Route::new(View, get(), path::HOST_TUNE, host::show_tune),
        Route::new(View, get(), path::HOST_CHECK, check::check_host),
        Route::new(Admin, Method::POST, path::HOST_RESTORE, host::restore),
        Route::new(View, get(), path::DAEMON, daemon::show_daemon),
        Route::new(Admin, Method::POST, path::UPGRADE_FABRIC, daemon::upgrade_fabric),
        Route::new(Admin, Method::POST, path::SHUTDOWN, daemon::shutdown),
        Route::new(View, get(), path::METRICS, metrics::metrics),
        Route::new(View, get(), path::OPENAPI, openapi::serve),
    ]
}
