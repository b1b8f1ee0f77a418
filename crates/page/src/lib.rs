//! The page: HTML and SVG of what the HTTP API shows, for browsers.
//!
//! Each view is a function from answers of the API to the text of an HTML document. Nothing here
//! reads, waits or decides: `tautd` asks its API as the browser's user, and passes the answers on.
//!
//! - [`asset`] has the style sheet, the script and the icon, with a hash in their names.
//! - [`frame`] surrounds each view: title, navigation, who the user is.
//! - [`guide`] renders the guide's pages of reasons and checks.
//! - [`form`] reads and shows the form of traffic shaping.
//! - [`chart`] and [`drawing`] make SVG, beside tables: of averages for charts, and of the same
//!   facts for drawings.
//! - The modules of [`view`] are the views.
//!
//! Every view works without script, and the policy of [`frame::CONTENT_SECURITY_POLICY`] holds: no
//! inline script, no inline style, nothing from elsewhere.

pub mod asset;
pub mod chart;
pub mod drawing;
pub mod form;
pub mod frame;
pub mod guide;
pub mod text;
pub mod view;
