//! The facts of a port's Network page, and the change that its form asks for.

use taut_api::error::ErrorKind;
use taut_api::route::{PortInfo, Vm};
use taut_api::statistics::{Period, PortStatistics};
use taut_api::{ApiError, Name, path};
use taut_page::form::{Fields, patch_of};
use taut_page::text::encode;
use taut_page::view::port::Port;

use super::api::Api;

/// Changes the shaping of the card that owns the port.
pub(super) async fn apply(api: &Api, owner: &str, fields: &Fields) -> Result<(), ApiError> {
    let (vm, nic) = card_of(owner)?.ok_or_else(|| {
        ApiError::new(
            ErrorKind::Invalid,
            format!("`{owner}` is no network card of a VM"),
            "change the shaping of its port group",
        )
    })?;
    let address = path::VM.of(&vm);
    let now: Vm = api.get(&address).await?;
    let card = now.spec.vm.nics.get(nic).ok_or_else(|| unknown(owner))?;
    let _: Vm = api.patch(&address, now.revision, &patch_of(nic, fields, &card.shaping)?).await?;
    Ok(())
}

/// Returns the facts of a port's page: the port, its statistics and series of the period, and the
/// card that owns the port. [`shaping`](super::shaping) sets `refused` and `changed`.
pub(super) async fn view(api: &Api, owner: &str, period: Period) -> Result<Port, ApiError> {
    let card = match card_of(owner)? {
        Some((name, nic)) => {
            let vm: Vm = api.get(&path::VM.of(&name)).await?;
            if nic >= vm.spec.vm.nics.len() {
                return Err(unknown(owner));
            }
            Some((vm, nic))
        }
        None => None,
    };
    let ports: Vec<PortInfo> = api.get(path::PORTS).await?;
    let port = ports.into_iter().find(|port| port.owner == owner);
    if card.is_none() && port.is_none() {
        return Err(unknown(owner));
    }
    let statistics: Vec<PortStatistics> =
        api.get(&format!("{}?period={period}", path::PORT_STATISTICS)).await?;
    let statistics = statistics.into_iter().find(|statistics| statistics.owner == owner);
    let name = encode(owner);
    let series = api.series(&format!("subject=port&name={name}&period={period}")).await?;
    Ok(Port {
        owner: owner.to_owned(),
        port,
        statistics,
        period,
        card,
        series,
        refused: None,
        changed: false,
    })
}

/// Returns VM and index of an owner `vm/NAME/nicN`; `None` for owners of another kind.
fn card_of(owner: &str) -> Result<Option<(Name, usize)>, ApiError> {
    let Some(rest) = owner.strip_prefix("vm/") else { return Ok(None) };
    let Some((name, nic)) = rest.split_once("/nic") else { return Err(unknown(owner)) };
    let is_number = !nic.is_empty() && nic.bytes().all(|byte| byte.is_ascii_digit());
    let card = name.parse().ok().zip(nic.parse().ok()).filter(|_| is_number);
    card.map(Some).ok_or_else(|| unknown(owner))
}

fn unknown(owner: &str) -> ApiError {
    let quoted: String = owner.chars().take(100).collect();
    ApiError::new(
        ErrorKind::NotFound,
        format!("there is no port `{quoted}`"),
        "the list of VMs and the page of networks show the ports that exist",
    )
}
