//! The project, with cached facts and locks.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::{OnceCell, OwnedMutexGuard, RwLock};

use super::network::NeutronNetwork;
use super::session::OpenStackSession;
use super::wire::Flavor;
use crate::backend::BackendError;
use crate::cluster::{ClusterId, MachineName, OpenStackConfig};

/// The pause between two queries of a changing object.
pub(super) const PAUSE: Duration = Duration::from_millis(900);

/// A project of a cloud.
pub struct OpenStack {
    pub(super) session: OpenStackSession,
    pub(super) config: OpenStackConfig,
    pub(super) flavors: OnceCell<Vec<Flavor>>,
    pub(super) limits: OnceCell<Value>,
    /// Networks by the requested name or id. They do not change during a run.
    pub(super) networks: Mutex<HashMap<String, Arc<NeutronNetwork>>>,
    /// Locks of machines that are being created or deleted.
    pub(super) busy: Turns<MachineName>,
    /// Locks of server groups whose next member is being placed, by id.
    pub(super) placing: Turns<String>,
    /// The lock for creating shared objects: a group or an image.
    pub(super) groups: tokio::sync::Mutex<()>,
    /// Locked for reading by users of a group, and for writing by the deletion of unused groups.
    pub(super) in_use: RwLock<()>,
    /// Servers of pass one whose guest has been confirmed to have its address.
    pub(super) live: Mutex<BTreeSet<String>>,
    /// The tokens in the user data of machines that fetch their config, until the stored config is deleted.
    pub(super) content_tokens: Mutex<HashMap<(ClusterId, MachineName), Arc<SecretString>>>,
    /// Whether Swift failed although it may not have been used. Then it is not queried again.
    pub(super) swift_failed: AtomicBool,
    /// The lock for changes in Swift: a container exists with the key of all its URLs, or not at all.
    pub(super) swift: tokio::sync::Mutex<()>,
}

impl OpenStack {
    /// Reads the credentials and signs in.
    pub async fn connect(config: &OpenStackConfig) -> Result<Self, BackendError> {
        let session = OpenStackSession::open(config)?;
        session.token().await?;
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
            content_tokens: Mutex::default(),
            swift_failed: AtomicBool::default(),
            swift: tokio::sync::Mutex::default(),
        })
    }
}

/// A lock for each key.
pub(super) type Turns<K> = Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>;

/// Locks this key.
pub(super) async fn turn<K: Clone + Eq + Hash>(turns: &Turns<K>, key: &K) -> OwnedMutexGuard<()> {
    let turn = Arc::clone(lock(turns).entry(key.clone()).or_default());
    turn.lock_owned().await
}

/// The values are valid at any time, also after a panic in another call.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
