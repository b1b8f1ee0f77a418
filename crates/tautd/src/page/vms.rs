//! The list of VMs, and the page of each.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query};
use taut_api::error::ErrorKind;
use taut_api::route::Vm;
use taut_api::statistics::{BadPeriod, Period, VmStatistics};
use taut_api::{ApiError, Name, path};
use taut_page::frame::Frame;
use taut_page::view::vm::{self, Machine};
use taut_page::view::vms::{self, Order, Vms};

use super::api::Api;
use super::shown::Shown;
use super::{PeriodQuery, period};

/// Query of the list.
#[derive(Debug, Default, serde::Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    period: Option<String>,
    #[serde(default)]
    sort: Option<String>,
}

pub(super) async fn list(api: Api, query: Result<Query<ListQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = render(&api, &frame, query).await;
    Shown::of(&frame, page)
}

async fn render(
    api: &Api,
    frame: &Frame,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<String, ApiError> {
    let bad = |message: &str| {
        let hint = "write sort=name, run or ready, and period as a number with s, m, h or d";
        ApiError::new(ErrorKind::Invalid, message, hint)
    };
    let Query(query) = query.map_err(|error| bad("the query cannot be read").because(&error))?;
    let period = query.period.map_or(Ok(Period::USUAL), |text| text.parse());
    let period = period.map_err(|error: BadPeriod| bad("the period cannot be read").because(&error))?;
    let order = match query.sort {
        Some(name) => Order::named(&name).ok_or_else(|| bad("the list cannot be sorted by this"))?,
        None => Order::default(),
    };
    let vms = api.get(path::VMS).await?;
    let statistics = api.get(&format!("{}?period={period}", path::VM_STATISTICS)).await?;
    Ok(vms::page(frame, &Vms { vms, statistics, period, order }))
}

pub(super) async fn show(
    api: Api,
    Path(name): Path<String>,
    query: Result<Query<PeriodQuery>, QueryRejection>,
) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let period = period(query)?;
        let name: Name = name.parse().map_err(|error: taut_api::name::BadName| {
            ApiError::new(ErrorKind::NotFound, error.to_string(), "the list of VMs shows those that exist")
        })?;
        let vm: Vm = api.get(&path::VM.of(&name)).await?;
        let all: Vec<VmStatistics> = api.get(&format!("{}?period={period}", path::VM_STATISTICS)).await?;
        let statistics = all.into_iter().find(|times| !times.foreign && times.name == name.as_str());
        Ok(vm::page(&frame, &Machine { vm, statistics, period }))
    };
    let page = page.await;
    Shown::of(&frame, page)
}
