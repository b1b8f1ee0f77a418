//! Places of a request over TCP among those that are worked on: one among the requests with the
//! same token, and one among all.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use taut_api::ApiError;
use taut_api::error::ErrorKind;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Longest wait of a request for each place.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The places of one request. They are free again when the last copy of this is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    of_token: Arc<Semaphore>,
    of_all: Arc<Semaphore>,
    held: Arc<Mutex<Vec<OwnedSemaphorePermit>>>,
}

impl Places {
    /// Creates the places of a request that has none yet. `of_token` are those of its token, and
    /// `of_all` those of all requests.
    pub(crate) fn new(of_token: Arc<Semaphore>, of_all: Arc<Semaphore>) -> Self {
        Self { of_token, of_all, held: Arc::default() }
    }

    /// Waits for the place among the requests with the same token.
    pub(crate) async fn take_of_token(&self) -> Result<(), ApiError> {
        self.take_one(&self.of_token).await
    }

    /// Waits for the place among all requests.
    pub(crate) async fn take_of_all(&self) -> Result<(), ApiError> {
        self.take_one(&self.of_all).await
    }

    /// Gives the places to others while the request works on nothing.
    pub(crate) fn pause(&self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Waits for both places again, after a pause.
    pub(crate) async fn resume(&self) -> Result<(), ApiError> {
        self.take_of_token().await?;
        self.take_of_all().await
    }

    async fn take_one(&self, places: &Arc<Semaphore>) -> Result<(), ApiError> {
        let place = timeout(PATIENCE, places.clone().acquire_owned()).await.ok().and_then(Result::ok);
        let place = place.ok_or_else(|| {
            let hint = format!("wait {} s, and ask less often", PATIENCE.as_secs());
            ApiError::new(ErrorKind::TooMany, "too many requests are being worked on", hint)
        })?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).push(place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time after which a request waits that has no place.
    const MOMENT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_request_that_pauses_leaves_its_places_to_others() {
        let (of_token, of_all) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(1)));
        let request = || Places::new(of_token.clone(), of_all.clone());
        let (first, second) = (request(), request());
        let waits = |places: Places| async move { timeout(MOMENT, places.resume()).await.is_err() };
        first.resume().await.unwrap();
        assert!(waits(second.clone()).await);
        first.pause();
        second.resume().await.unwrap();
        assert!(waits(first.clone()).await);
        drop(second);
        first.resume().await.unwrap();
    }
}
