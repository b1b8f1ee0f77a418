//! The frame of every page: head, navigation, who the user is, and errors.

use maud::{DOCTYPE, Markup, html};
use taut_api::ApiError;
use taut_api::role::Role;

use crate::{asset, guide, text};

/// Policy for all pages: everything from this server, no inline script or style, no frame.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Address that ends a session.
pub const LOGOUT: &str = "/logout";

/// Seconds after which a browser without script loads a page without a form again.
const REFRESH_S: u32 = 30;

/// Facts in the frame of every page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Name of the host.
    pub hostname: String,
    /// Version of the daemon.
    pub version: String,
    /// Name of the caller, such as `user 0`; empty if it is not known.
    pub user: String,
    /// Role of the caller; absent without one.
    pub role: Option<Role>,
    /// True if the caller has logged in, and can log out.
    pub can_log_out: bool,
}

/// Parts of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// VMs.
    Vms,
    /// vSwitches and ports.
    Networks,
    /// Host.
    Host,
    /// VMCI sockets.
    Sockets,
    /// Event log.
    Events,
    /// Audit record.
    Audit,
}

/// One page, without its frame.
#[derive(Debug)]
pub(crate) struct Page {
    /// Title, also of the browser's window.
    pub(crate) title: String,
    /// Part of the navigation that the page belongs to.
    pub(crate) section: Option<Section>,
    /// True if the content changes by itself.
    pub(crate) live: bool,
    /// True if a browser without script may load the page again: it has no form with input.
    pub(crate) refresh: bool,
    /// Content below the title.
    pub(crate) body: Markup,
}

impl Section {
    /// All parts, in the order of the navigation.
    const ALL: [Self; 6] = [Self::Vms, Self::Networks, Self::Host, Self::Sockets, Self::Events, Self::Audit];

    const fn name(self) -> &'static str {
        match self {
            Self::Vms => "VMs",
            Self::Networks => "Networks",
            Self::Host => "Host",
            Self::Sockets => "Sockets",
            Self::Events => "Events",
            Self::Audit => "Audit",
        }
    }

    /// Returns the address of the part's first page.
    pub const fn address(self) -> &'static str {
        match self {
            Self::Vms => "/",
            Self::Networks => "/networks",
            Self::Host => "/host",
            Self::Sockets => "/sockets",
            Self::Events => "/events",
            Self::Audit => "/audit",
        }
    }
}

impl Frame {
    /// Returns whether the caller has a role that includes this one.
    pub fn may(&self, role: Role) -> bool {
        self.role >= Some(role)
    }

    /// Renders a page.
    pub(crate) fn render(&self, page: &Page) -> String {
        let Page { title, section, live, refresh, body } = page;
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · taut" @if !self.hostname.is_empty() { " on " (self.hostname) } }
                    link rel="icon" type=(asset::ICON.media_type) href=(asset::ICON.address());
                    link rel="stylesheet" href=(asset::STYLE.address());
                    @if *live { script src=(asset::SCRIPT.address()) defer {} }
                    @if *refresh { noscript { meta http-equiv="refresh" content=(REFRESH_S); } }
                }
                body data-live[*live] {
                    a.skip href="#content" { "Skip to content" }
                    header.top {
                        a.brand href="/" { "taut" }
                        nav aria-label="Main" { ul {
                            @for part in Section::ALL {
                                @let current = (*section == Some(part)).then_some("page");
                                li { a href=(part.address()) aria-current=[current] { (part.name()) } }
                            }
                        } }
                        @if !self.user.is_empty() { p.who {
                            (self.user)
                            @match self.role {
                                Some(role) => { ", role " b { (role) } }
                                None => { ", no role" }
                            }
                        } }
                        @if self.can_log_out {
                            form method="post" action=(LOGOUT) { button type="submit" { "Log out" } }
                        }
                    }
                    main #content tabindex="-1" {
                        h1 { (title) }
                        (body)
                    }
                    footer {
                        p {
                            "taut " (self.version)
                            @if !self.hostname.is_empty() { " on " (self.hostname) }
                            @if *live { span #fresh hidden {} }
                        }
                    }
                }
            }
        };
        document.into_string()
    }

    /// Renders an error as a page.
    pub fn error(&self, status: u16, error: &ApiError) -> String {
        let title = match status {
            401 => "Not logged in",
            403 => "Not allowed",
            404 => "Not found",
            405 => "Not possible",
            429 => "Too many requests",
            500.. => "Something failed",
            _ => "Refused",
        };
        let body = html! {
            (refusal(error))
            p { a href="/" { "To the list of VMs" } }
        };
        self.render(&Page { title: title.to_owned(), section: None, live: false, refresh: false, body })
    }
}

/// Shows why a request was refused, and has the keyboard begin there.
pub(crate) fn refusal(error: &ApiError) -> Markup {
    html! { div tabindex="-1" autofocus { (alert(error)) } }
}

/// Shows an error with its causes and its hint.
pub(crate) fn alert(error: &ApiError) -> Markup {
    html! {
        div.alert role="alert" {
            p { strong { (text::shown(&error.message)) } }
            @if !error.causes.is_empty() {
                ul { @for cause in &error.causes { li { "because: " (text::shown(cause)) } } }
            }
            p { "Hint: " (error.hint) }
            p { "More about it: " a href=(guide::address(&error.kind.guide())) { "refusal " (error.kind.code()) } }
        }
    }
}

/// Puts a wide thing into a box of its own, which scrolls by keyboard as well.
pub(crate) fn wide(label: &str, content: &Markup) -> Markup {
    html! { div.wide role="region" aria-label=(label) tabindex="0" { (content) } }
}
