//! The project that all files here work in, and what is remembered of it.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{OnceCell, OwnedMutexGuard, RwLock};

use super::network::Network;
use super::session::Session;
use super::wire::Flavor;
use crate::backend::BackendError;
use crate::backend::failure::During;
use crate::cluster::{MachineName, OpenStackConfig};

/// Between two looks at something that changes.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// A project of a cloud.
pub struct OpenStack {
    pub(super) session: Session,
    pub(super) config: OpenStackConfig,
    pub(super) flavors: OnceCell<Vec<Flavor>>,
    pub(super) limits: OnceCell<Value>,
    /// By the name or id that was asked for; they do not change under way.
    pub(super) networks: Mutex<HashMap<String, Arc<Network>>>,
    /// Machines that are being made or deleted: one call at a time for each.
    pub(super) busy: Turns<MachineName>,
    /// Server groups whose next member is being placed, by id.
    pub(super) placing: Turns<String>,
    /// Held by whoever makes what machines share: a group or an image.
    pub(super) groups: tokio::sync::Mutex<()>,
    /// Read by whoever is about to use a group, written by whoever deletes unused ones.
    pub(super) in_use: RwLock<()>,
    /// Servers of pass one whose guest was seen to have its address.
    pub(super) live: Mutex<BTreeSet<String>>,
}

impl OpenStack {
    /// Reads how to sign in, and signs in.
    pub async fn connect(config: &OpenStackConfig) -> Result<Self, BackendError> {
        let operation = || match &config.cloud {
            Some(cloud) => format!("sign in to cloud {cloud}"),
            None => "sign in to OpenStack".to_owned(),
        };
        let session = Session::open(config).during(operation())?;
        session.token().await.during(operation())?;
        Ok(Self {
            session,
            config: config.clone(),
            flavors: OnceCell::new(),
            limits: OnceCell::new(),
            networks: Mutex::default(),
            busy: Turns::default(),
            placing: Turns::default(),
            groups: tokio::sync::Mutex::default(),
            in_use: RwLock::default(),
            live: Mutex::default(),
        })
    }
}

/// A lock for each thing.
pub(super) type Turns<K> = Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>;

/// Waits until nobody else is at this thing.
pub(super) async fn turn<K: Clone + Eq + Hash>(turns: &Turns<K>, key: &K) -> OwnedMutexGuard<()> {
    let turn = Arc::clone(lock(turns).entry(key.clone()).or_default());
    turn.lock_owned().await
}

/// A value is whole whenever its lock is free, also after a panic elsewhere.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
