//! The page of a port group, and the form of its shaping.

use axum::Form;
use axum::extract::Query;
use axum::extract::rejection::{FormRejection, QueryRejection};
use taut_api::network::PortGroupSpec;
use taut_api::route::PortGroup;
use taut_api::statistics::Period;
use taut_api::{ApiError, Name, path};
use taut_page::form::{Fields, shaping_of};
use taut_page::frame::Frame;
use taut_page::text::portgroup_address;
use taut_page::view::portgroup::{self, Group};

use super::api::Api;
use super::shown::Shown;
use super::{ChangedQuery, Part, PeriodQuery, form, is_changed, period};

pub(super) async fn show(
    api: Api,
    name: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    changed: Result<Query<ChangedQuery>, QueryRejection>,
) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let mut view = view(&api, &name.name()?, period(query)?).await?;
        view.changed = is_changed(changed);
        Ok(portgroup::page(&frame, &view))
    };
    let page = page.await;
    Shown::of(&frame, page)
}

/// Changes the shaping, by the same request as `taut portgroup set`.
pub(super) async fn change(
    api: Api,
    name: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    fields: Result<Form<Fields>, FormRejection>,
) -> Shown {
    let frame = api.frame().await;
    let read = name.name().and_then(|name| Ok((name, period(query)?, form(fields)?)));
    let (name, period, fields) = match read {
        Ok(read) => read,
        Err(error) => return Shown::error(&frame, &error),
    };
    match apply(&api, &name, &fields).await {
        Ok(()) => {
            let address = portgroup_address(name.as_str());
            Shown::SeeOther(format!("{address}?period={period}&changed=shaping"))
        }
        Err(error) => refused(&api, &frame, &name, period, fields, error).await,
    }
}

async fn apply(api: &Api, name: &Name, fields: &Fields) -> Result<(), ApiError> {
    let address = path::PORTGROUP.of(name);
    let now: PortGroup = api.get(&address).await?;
    if let Some(shaping) = shaping_of(fields, &now.spec.shaping)? {
        let spec = PortGroupSpec { shaping, ..now.spec };
        let _: PortGroup = api.replace(&address, now.revision, &spec).await?;
    }
    Ok(())
}

/// Shows the form as it was sent, and why it was refused.
async fn refused(
    api: &Api,
    frame: &Frame,
    name: &Name,
    period: Period,
    fields: Fields,
    error: ApiError,
) -> Shown {
    match view(api, name, period).await {
        Ok(mut view) => {
            let status = error.kind.http_status();
            view.refused = Some((fields, error));
            Shown::with_status(status, portgroup::page(frame, &view))
        }
        Err(_) => Shown::error(frame, &error),
    }
}

async fn view(api: &Api, name: &Name, period: Period) -> Result<Group, ApiError> {
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
