//! The project, with cached facts and locks.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::{OnceCell, OwnedMutexGuard, RwLock};
use tokio::time::timeout;
use tracing::warn;

use super::auth::Service;
use super::network::NeutronNetwork;
use super::session::OpenStackSession;
use super::wire::Flavor;
use crate::backend::{BackendError, BackendErrorKind};
use crate::cluster::{ClusterId, MachineName, OpenStackConfig, OsIgnition};

/// The pause between two queries of a changing object.
pub(super) const PAUSE: Duration = Duration::from_millis(900);

/// How long to wait for a service that the settings do not use.
const OPTIONAL: Duration = Duration::from_secs(15);

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
    /// Services that failed and are not used by the settings. They are not queried again.
    skipped: Mutex<BTreeSet<Service>>,
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
            skipped: Mutex::default(),
            swift: tokio::sync::Mutex::default(),
        })
    }
}

impl OpenStack {
    /// Whether the settings require a service that a cloud may lack.
    fn uses(&self, service: Service) -> bool {
        match service {
            Service::Balancer => self.config.balancers.is_some(),
            Service::Volume => self.config.volumes,
            // `auto` uses Swift only if Glance rejects a config. An object that is left over expires.
            Service::Object => self.config.ignition == OsIgnition::Swift,
            Service::Compute | Service::Network | Service::Image => true,
        }
    }

    /// The response of a service about the cluster's objects; `None` if it can have none. A failure of a service that
    /// the settings do not use is only a warning.
    pub(super) async fn if_used<T>(
        &self,
        service: Service,
        asked: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<Option<T>, BackendError> {
        if self.uses(service) {
            return asked.await.map(Some);
        }
        if !self.session.has(service).await? || lock(&self.skipped).contains(&service) {
            return Ok(None);
        }
        let failure = match timeout(OPTIONAL, asked).await {
            Ok(Ok(answer)) => return Ok(Some(answer)),
            Ok(Err(failure)) => failure,
            Err(_) => {
                let message = format!("no response within {} s", OPTIONAL.as_secs());
                BackendError::new(BackendErrorKind::Timeout, message)
            }
        };
        // Concurrent requests fail for the same reason, so the user is warned once.
        if lock(&self.skipped).insert(service) {
            let (name, why) = (service.name(), failure.message);
            warn!("{name} is skipped, because the settings do not use it: {why}");
        }
        Ok(None)
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
