//! The page of vSwitches.

use taut_api::{ApiError, path};
use taut_page::frame::Frame;
use taut_page::view::networks::{self, Networks};

use super::api::Api;
use super::shown::Shown;

pub(super) async fn show(api: Api) -> Shown {
    let frame = api.frame().await;
    let page = render(&api, &frame).await;
    Shown::of(&frame, page)
}

async fn render(api: &Api, frame: &Frame) -> Result<String, ApiError> {
    let view = Networks {
        vswitches: api.get(path::VSWITCHES).await?,
        portgroups: api.get(path::PORTGROUPS).await?,
        ports: api.get(path::PORTS).await?,
        uplinks: api.get(path::UPLINKS).await?,
        vms: api.get(path::VMS).await?,
    };
    Ok(networks::page(frame, &view))
}
