//! Deletes objects and waits until they are gone.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::kind::Kind;
use super::labels;
use super::look;
use super::session::Session;
use crate::backend::{BackendError, BackendErrorKind};

/// The longest time until a deleted object is gone; a guest has one minute to shut down.
const GOING: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(250);

/// Deletes all objects of a kind that match the selector, and waits until they are gone.
pub(super) async fn sweep(session: &Session, kind: Kind, selector: &str) -> Result<bool, BackendError> {
    let found = session.of_kind(kind, selector).await?;
    for object in found.iter().filter(|object| !look::is_going(object)) {
        session.delete(kind, object).await?;
    }
    for object in &found {
        gone(session, kind, object).await?;
    }
    Ok(!found.is_empty())
}

/// Deletes exactly this object, and waits until it is gone.
pub(super) async fn remove(session: &Session, kind: Kind, object: &Value) -> Result<(), BackendError> {
    session.delete(kind, object).await?;
    gone(session, kind, object).await
}

/// Waits until exactly this object is gone; a new object of the same name is not waited for.
pub(super) async fn gone(session: &Session, kind: Kind, object: &Value) -> Result<(), BackendError> {
    let begun = Instant::now();
    while let Some(there) = session.again(kind, object).await? {
        if begun.elapsed() > GOING {
            let finalizers = &there["metadata"]["finalizers"];
            let words = format!(
                "{} {} was deleted but still exists; its finalizers: {finalizers}",
                kind.word(),
                labels::name(object)
            );
            return Err(BackendError::new(BackendErrorKind::Timeout, words));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
