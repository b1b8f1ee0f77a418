//! The handlers that all plain documents share: list, show, put and delete.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::http::StatusCode;
use serde::de::DeserializeOwned;
use taut_api::{ApiError, Document, Name};
use taut_plan::Desired;

use super::body::{Condition, Failure};
use super::{Shared, not_found};
use crate::board::Seen;
use crate::store::{Change, Kind, State as Documents};

/// A kind of document that users write as a whole.
pub(super) trait Stored {
    /// Settings that users write.
    type Spec: Clone + Send + DeserializeOwned + 'static;
    /// The kind in the store.
    const KIND: Kind;

    /// Returns the documents of this kind.
    fn specs(desired: &Desired) -> &BTreeMap<Name, Self::Spec>;

    /// Returns the write that makes, replaces or (`None`) deletes one.
    fn change(name: Name, spec: Option<Self::Spec>) -> Change;

    /// Fills in what the user left to the daemon.
    fn complete(_desired: &Desired, _name: &Name, _spec: &mut Self::Spec) {}

    /// Refuses a document that does not fit the others.
    fn admit(desired: &Desired, name: &Name, spec: &Self::Spec) -> Result<(), ApiError>;

    /// Refuses to delete a document that others refer to.
    fn check_unused(_desired: &Desired, _name: &Name) -> Result<(), ApiError> {
        Ok(())
    }
}

/// Such a document whose status is on the board.
pub(super) trait Resource: Stored {
    /// Observed state.
    type Status;

    /// Returns what is observed of one.
    fn status(desired: &Desired, seen: &Seen, name: &Name) -> Self::Status;
}

type Answer<R> = Document<<R as Stored>::Spec, <R as Resource>::Status>;

pub(super) fn list<R: Resource>(app: &Shared) -> Json<Vec<Answer<R>>> {
    let (state, seen) = app.look();
    Json(R::specs(&state.desired).keys().filter_map(|name| document::<R>(&state, &seen, name).ok()).collect())
}

pub(super) fn show<R: Resource>(app: &Shared, name: &Name) -> Result<Json<Answer<R>>, Failure> {
    let (state, seen) = app.look();
    Ok(Json(document::<R>(&state, &seen, name)?))
}

pub(super) async fn put<R: Resource>(
    app: Shared,
    name: Name,
    condition: Condition,
    spec: R::Spec,
) -> Result<Json<Answer<R>>, Failure> {
    let state = write::<R>(&app, name.clone(), condition, spec).await?;
    Ok(Json(document::<R>(&state, &app.board.lock(), &name)?))
}

/// Creates or replaces a document, and returns all of them.
pub(super) async fn write<D: Stored>(
    app: &Shared,
    name: Name,
    condition: Condition,
    spec: D::Spec,
) -> Result<Arc<Documents>, Failure> {
    write_if::<D>(app, name, condition, spec, |_, _, _| Ok(())).await
}

/// Does the same if the document passes one more check, which knows what was found out before.
pub(super) async fn write_if<D: Stored>(
    app: &Shared,
    name: Name,
    condition: Condition,
    mut spec: D::Spec,
    check: impl FnOnce(&Desired, &Name, &D::Spec) -> Result<(), ApiError> + Send + 'static,
) -> Result<Arc<Documents>, Failure> {
    app.write(move |state| {
        condition.check(state, D::KIND, &name)?;
        D::complete(&state.desired, &name, &mut spec);
        check(&state.desired, &name, &spec)?;
        D::admit(&state.desired, &name, &spec)?;
        Ok(D::change(name, Some(spec)))
    })
    .await
}

pub(super) async fn delete<R: Stored>(app: Shared, name: Name) -> Result<StatusCode, Failure> {
    app.write(move |state| {
        if !R::specs(&state.desired).contains_key(&name) {
            return Err(not_found(R::KIND, &name));
        }
        R::check_unused(&state.desired, &name)?;
        Ok(R::change(name, None))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

fn document<R: Resource>(state: &Arc<Documents>, seen: &Seen, name: &Name) -> Result<Answer<R>, ApiError> {
    let spec = R::specs(&state.desired).get(name).ok_or_else(|| not_found(R::KIND, name))?;
    Ok(Document {
        name: name.clone(),
        revision: state.revision_of(R::KIND, name),
        spec: spec.clone(),
        status: R::status(&state.desired, seen, name),
    })
}
