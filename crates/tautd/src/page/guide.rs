//! The pages of the guide: reasons and checks.

use taut_page::guide::Document;
use taut_page::view::guide;

use super::api::Api;
use super::shown::Shown;

pub(super) async fn reasons(api: Api) -> Shown {
    Shown::page(guide::page(&api.frame().await, Document::Reasons))
}

pub(super) async fn checks(api: Api) -> Shown {
    Shown::page(guide::page(&api.frame().await, Document::Checks))
}
