//! Handlers of the pages with the form of traffic shaping: those of ports and of port groups.

use axum::Form;
use axum::extract::Query;
use axum::extract::rejection::{FormRejection, QueryRejection};
use taut_api::statistics::Period;
use taut_api::{ApiError, Name};
use taut_page::form::Fields;
use taut_page::frame::Frame;
use taut_page::text::{port_address, portgroup_address};
use taut_page::view::port::Port;
use taut_page::view::portgroup::Group;
use taut_page::view::{port as port_view, portgroup as portgroup_view};

use super::api::Api;
use super::shown::Shown;
use super::{ChangedQuery, Part, PeriodQuery, form, is_changed, period, port, portgroup};

/// Subject of a page with the form.
#[derive(Debug)]
enum Subject {
    /// A port, by its owner.
    Port(String),
    /// A port group.
    Group(Name),
}

impl Subject {
    /// Returns the address of the subject's page.
    fn address(&self) -> String {
        match self {
            Self::Port(owner) => port_address(owner),
            Self::Group(name) => portgroup_address(name.as_str()),
        }
    }

    /// Changes the shaping of the subject as the form asks.
    async fn apply(&self, api: &Api, fields: &Fields) -> Result<(), ApiError> {
        match self {
            Self::Port(owner) => port::apply(api, owner, fields).await,
            Self::Group(name) => portgroup::apply(api, name, fields).await,
        }
    }

    /// Renders the page of the subject. `changed` tells whether a form has just changed the
    /// shaping, and `refused` is the form that was refused, and why.
    async fn page(
        &self,
        api: &Api,
        frame: &Frame,
        period: Period,
        changed: bool,
        refused: Option<(Fields, ApiError)>,
    ) -> Result<String, ApiError> {
        match self {
            Self::Port(owner) => {
                let view = port::view(api, owner, period).await?;
                Ok(port_view::page(frame, &Port { changed, refused, ..view }))
            }
            Self::Group(name) => {
                let view = portgroup::view(api, name, period).await?;
                Ok(portgroup_view::page(frame, &Group { changed, refused, ..view }))
            }
        }
    }
}

/// Shows the page of a port.
pub(super) async fn show_port(
    api: Api,
    owner: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    changed: Result<Query<ChangedQuery>, QueryRejection>,
) -> Shown {
    show(&api, owner.text().map(Subject::Port), query, is_changed(changed)).await
}

/// Shows the page of a port group.
pub(super) async fn show_group(
    api: Api,
    name: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    changed: Result<Query<ChangedQuery>, QueryRejection>,
) -> Shown {
    show(&api, name.name().map(Subject::Group), query, is_changed(changed)).await
}

/// Changes the shaping of a VM's card, by the same request as `taut vm set`.
pub(super) async fn change_port(
    api: Api,
    owner: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    fields: Result<Form<Fields>, FormRejection>,
) -> Shown {
    change(&api, owner.text().map(Subject::Port), query, fields).await
}

/// Changes the shaping of a port group, by the same request as `taut portgroup set`.
pub(super) async fn change_group(
    api: Api,
    name: Part,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    fields: Result<Form<Fields>, FormRejection>,
) -> Shown {
    change(&api, name.name().map(Subject::Group), query, fields).await
}

async fn show(
    api: &Api,
    subject: Result<Subject, ApiError>,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    changed: bool,
) -> Shown {
    let frame = api.frame().await;
    let page = async { subject?.page(api, &frame, period(query)?, changed, None).await };
    let page = page.await;
    Shown::of(&frame, page)
}

/// Changes the shaping of the subject and redirects to the subject's page. If the change is
/// refused, the answer is that page with the form that was refused, and why.
async fn change(
    api: &Api,
    subject: Result<Subject, ApiError>,
    query: Result<Query<PeriodQuery>, QueryRejection>,
    fields: Result<Form<Fields>, FormRejection>,
) -> Shown {
    let frame = api.frame().await;
    let read = subject.and_then(|subject| Ok((subject, period(query)?, form(fields)?)));
    let (subject, period, fields) = match read {
        Ok(read) => read,
        Err(error) => return Shown::error(&frame, &error),
    };
    let Err(error) = subject.apply(api, &fields).await else {
        return Shown::SeeOther(format!("{}?period={period}&changed=shaping", subject.address()));
    };
    match subject.page(api, &frame, period, false, Some((fields, error.clone()))).await {
        Ok(page) => Shown::with_status(error.kind.http_status(), page),
        Err(_) => Shown::error(&frame, &error),
    }
}
