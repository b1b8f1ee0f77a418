//! The facts of a port group's page, and the change that its form asks for.

use taut_api::network::PortGroupSpec;
use taut_api::route::PortGroup;
use taut_api::statistics::Period;
use taut_api::{ApiError, Name, path};
use taut_page::form::{Fields, shaping_of};
use taut_page::view::portgroup::Group;

use super::api::Api;

/// Changes the shaping of the port group.
pub(super) async fn apply(api: &Api, name: &Name, fields: &Fields) -> Result<(), ApiError> {
    let address = path::PORTGROUP.of(name);
    let now: PortGroup = api.get(&address).await?;
    if let Some(shaping) = shaping_of(fields, &now.spec.shaping)? {
        let spec = PortGroupSpec { shaping, ..now.spec };
        let _: PortGroup = api.replace(&address, now.revision, &spec).await?;
    }
    Ok(())
}

/// Returns the facts of a port group's page: the group, its vSwitch, and the ports, VMs and
/// statistics of the host. [`shaping`](super::shaping) sets `refused` and `changed`.
pub(super) async fn view(api: &Api, name: &Name, period: Period) -> Result<Group, ApiError> {
    let group: PortGroup = api.get(&path::PORTGROUP.of(name)).await?;
    Ok(Group {
        vswitch: api.get(&path::VSWITCH.of(&group.spec.vswitch)).await?,
        ports: api.get(path::PORTS).await?,
        vms: api.get(path::VMS).await?,
        statistics: api.get(&format!("{}?period={period}", path::PORT_STATISTICS)).await?,
        group,
        period,
        refused: None,
        changed: false,
    })
}
