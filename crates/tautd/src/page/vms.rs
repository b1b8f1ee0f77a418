//! The list of VMs, and the page of each.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use taut_api::error::ErrorKind;
use taut_api::route::Vm;
use taut_api::statistics::VmStatistics;
use taut_api::{ApiError, path};
use taut_page::frame::Frame;
use taut_page::text::encode;
use taut_page::view::process::{self, Foreign};
use taut_page::view::vm::{self, Machine};
use taut_page::view::vms::{self, Order, Vms};

use super::api::Api;
use super::shown::Shown;
use super::{Part, PeriodQuery, period, period_of};

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
    let period = period_of(query.period.as_deref())?;
    let order = match query.sort {
        Some(name) => Order::named(&name).ok_or_else(|| bad("the list cannot be sorted by this"))?,
        None => Order::default(),
    };
    let vms = api.get(path::VMS).await?;
    let statistics = api.get(&format!("{}?period={period}", path::VM_STATISTICS)).await?;
    Ok(vms::page(frame, &Vms { vms, statistics, period, order }))
}

pub(super) async fn show(api: Api, name: Part, query: Result<Query<PeriodQuery>, QueryRejection>) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let period = period(query)?;
        let name = name.name()?;
        let vm: Vm = api.get(&path::VM.of(&name)).await?;
        let all: Vec<VmStatistics> = api.get(&format!("{}?period={period}", path::VM_STATISTICS)).await?;
        let statistics = all.into_iter().find(|times| !times.foreign && times.name == name.as_str());
        // Without a process, a VM of another program could be meant by the name.
        let series = match vm.status.pid {
            Some(pid) => api.series(&format!("subject=vm&name={name}&pid={pid}&period={period}")).await?,
            None => None,
        };
        Ok(vm::page(&frame, &Machine { vm, statistics, series, period }))
    };
    let page = page.await;
    Shown::of(&frame, page)
}

/// Shows a VM that another program has started.
pub(super) async fn show_process(
    api: Api,
    pid: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
) -> Shown {
    let frame = api.frame().await;
    let page = async {
        let period = period(query)?;
        let pid = pid.text()?;
        let all: Vec<VmStatistics> = api.get(&format!("{}?period={period}", path::VM_STATISTICS)).await?;
        let its = all
            .into_iter()
            .find(|times| times.foreign && times.pid.is_some_and(|its| its.to_string() == pid));
        let (statistics, pid) = its.and_then(|its| its.pid.map(|pid| (its, pid))).ok_or_else(|| {
            let quoted: String = pid.chars().take(20).collect();
            ApiError::new(
                ErrorKind::NotFound,
                format!(
                    "no VM of another program has the process `{quoted}` and samples of the last {period}"
                ),
                "the list of VMs shows those that run",
            )
        })?;
        let name = encode(&statistics.name);
        let series = api.series(&format!("subject=vm&name={name}&pid={pid}&period={period}")).await?;
        Ok(process::page(&frame, &Foreign { pid, statistics, series, period }))
    };
    let page = page.await;
    Shown::of(&frame, page)
}
