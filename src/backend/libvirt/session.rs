//! The connection. Each call runs in its own thread, with limits of number and time, and returns typed errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use virt::connect::Connect;
use virt::error::{Error, ErrorDomain, ErrorNumber};

use super::ffi;
use crate::backend::capabilities::LIBVIRT_CONCURRENCY;
use crate::backend::{BackendError, BackendErrorKind};
use crate::xml::{self, Element};

/// libvirtd runs 5 calls of one connection concurrently (`max_client_requests`), and queues further ones.
const CALLS_PER_CONNECTION: usize = 4;
/// The longest time without progress of one call. `virt` has no timeout, and a lost peer is detected only by the
/// kernel's timeout.
const PROGRESS_TIMEOUT: Duration = Duration::from_secs(60);

impl BackendError {
    pub fn is(&self, code: ErrorNumber) -> bool {
        self.code == Some(code as u32)
    }

    /// Whether the driver does not support the function or these flags.
    pub fn is_unsupported(&self) -> bool {
        self.is(ErrorNumber::NoSupport)
            || self.is(ErrorNumber::OperationUnsupported)
            || self.is(ErrorNumber::InvalidArg) && self.message.starts_with("unsupported flags")
    }

    /// Whether the call can be repeated because the object is in use by another operation.
    ///
    /// libvirt has no error code for this.
    pub fn is_temporary(&self) -> bool {
        (self.is(ErrorNumber::OperationInvalid) && self.message.contains("is still "))
            || (self.is(ErrorNumber::InternalError) && self.message.contains("has asynchronous jobs running"))
    }
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        use ErrorNumber as E;
        let code = error.code().known();
        let message = error.message().to_owned();
        let lower = message.to_lowercase();
        let of_connection = error.domain().is(ErrorDomain::Rpc) || error.domain().is(ErrorDomain::Remote);
        let kind = match code {
            Some(E::AuthFailed | E::AuthCancelled | E::AuthUnavailable | E::OperationDenied | E::AccessDenied) => {
                BackendErrorKind::Denied
            }
            Some(E::NoDomain | E::NoDomainSnapshot | E::NoNetwork | E::NoStoragePool | E::NoStorageVolume) => {
                BackendErrorKind::NotFound
            }
            Some(E::DomExist | E::NetworkExist | E::StorageVolExist) => BackendErrorKind::Conflict,
            Some(E::OperationTimeout | E::AgentUnresponsive | E::AgentCommandTimeout) => BackendErrorKind::Timeout,
            Some(E::NoMemory) => BackendErrorKind::Quota,
            _ if lower.contains("no space left") || lower.contains("cannot allocate memory") => BackendErrorKind::Quota,
            Some(E::Rpc | E::NoConnect | E::InvalidConn | E::UnknownHost | E::GnutlsError) => {
                BackendErrorKind::Unreachable
            }
            Some(E::SystemError | E::InternalError) if of_connection => BackendErrorKind::Unreachable,
            _ => BackendErrorKind::Rejected,
        };
        let hint = match kind {
            BackendErrorKind::Denied => Some(
                "add this user to the group `libvirt`: `sudo usermod -aG libvirt $USER`, then log in again; or run as root"
                    .to_owned(),
            ),
            _ if of_connection && lower.contains("permission denied") => {
                Some("add this user to the group `libvirt`, or run as root".to_owned())
            }
            BackendErrorKind::Rejected if lower.contains("fw_cfg") || lower.contains("permission denied") => Some(
                "the user of QEMU must be able to read the directory of the pool; with AppArmor, allow it in \
                 /etc/apparmor.d/local/abstractions/libvirt-qemu"
                    .to_owned(),
            ),
            BackendErrorKind::Rejected if lower.contains("kvm") => {
                Some("set libvirt_virt_type=qemu to emulate without KVM".to_owned())
            }
            _ => None,
        };
        Self {
            kind,
            message,
            hint,
            code: code.map(|code| code as u32),
            pause: None,
        }
    }
}

impl From<xml::BadXml> for BackendError {
    fn from(error: xml::BadXml) -> Self {
        Self::new(BackendErrorKind::Rejected, error.to_string())
    }
}

/// `None` if the driver does not support the function.
pub(super) fn if_supported<T>(answer: Result<T, BackendError>) -> Result<Option<T>, BackendError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.is_unsupported() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The progress of a long call, such as sent bytes.
#[derive(Clone, Default)]
pub(super) struct CallProgress(Arc<AtomicU64>);

impl CallProgress {
    pub fn report(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens a new connection. No other function of `virt` may be called before the first call of this one.
pub(super) fn open_connection(uri: &str) -> Result<Connect, BackendError> {
    ffi::load().map_err(|reason| BackendError::new(BackendErrorKind::NoLibrary, reason))?;
    Ok(Connect::open(Some(uri))?)
}

/// A libvirt host, with as many connections as the concurrent calls require.
pub(super) struct LibvirtSession {
    uri: String,
    connections: Mutex<Vec<Arc<Connect>>>,
    permits: Semaphore,
}

impl LibvirtSession {
    pub async fn open(uri: &str) -> Result<Self, BackendError> {
        let own = uri.to_owned();
        let connect = bounded(CallProgress::default(), move || open_connection(&own)).await;
        let connect = connect.map_err(|failure| of_ssh(uri, failure))?;
        Ok(Self {
            uri: uri.to_owned(),
            connections: Mutex::new(vec![Arc::new(connect)]),
            permits: Semaphore::new(LIBVIRT_CONCURRENCY),
        })
    }

    /// Runs blocking libvirt calls. `work` gets more time when it reports progress.
    pub async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Connect, &CallProgress) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let session = Arc::clone(self);
        let progress = CallProgress::default();
        let inner = progress.clone();
        let answer = bounded(progress, move || work(session.connection()?.as_ref(), &inner)).await;
        if let Err(failure) = &answer
            && failure.kind == BackendErrorKind::Unreachable
        {
            // The daemon was restarted or a tunnel was closed. The next call connects again.
            lock(&self.connections).clear();
        }
        answer
    }

    /// The connection with the fewest concurrent calls; a new one if all are busy.
    fn connection(&self) -> Result<Arc<Connect>, BackendError> {
        let mut connections = lock(&self.connections);
        connections.retain(|connection| connection.is_alive().unwrap_or(false));
        // Each call has a reference, and so has this list.
        let least_busy = connections
            .iter()
            .min_by_key(|connection| Arc::strong_count(connection))
            .cloned();
        match least_busy {
            // The reference of `least_busy` counts, too.
            Some(connection) if Arc::strong_count(&connection) - 2 < CALLS_PER_CONNECTION => Ok(connection),
            other => match (open_connection(&self.uri), other) {
                (Ok(connect), _) => {
                    let connection = Arc::new(connect);
                    connections.push(Arc::clone(&connection));
                    Ok(connection)
                }
                // The daemon may reject more clients. Then the existing connections are shared.
                (Err(_), Some(connection)) => Ok(connection),
                (Err(failure), None) => Err(failure),
            },
        }
    }
}

/// Adds a hint if ssh failed: the user has to run it in a terminal, where it asks about an unknown host key.
fn of_ssh(uri: &str, failure: BackendError) -> BackendError {
    let Some((_, rest)) = uri.split_once("+ssh://") else {
        return failure;
    };
    let place = rest.split('/').next().unwrap_or_default();
    let message = failure.message.to_lowercase();
    match message.contains("host key verification failed") || message.contains("permission denied (") {
        true if place.contains(':') => failure.hint(format!("first make sure that `ssh ssh://{place}` succeeds")),
        true => failure.hint(format!("first make sure that `ssh {place}` succeeds")),
        false => failure,
    }
}

/// Runs `work` in a thread, and returns a timeout if it makes no progress. The thread itself cannot be stopped.
async fn bounded<T: Send + 'static>(
    progress: CallProgress,
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let mut work = tokio::task::spawn_blocking(work);
    loop {
        let before = progress.0.load(Ordering::Relaxed);
        match tokio::time::timeout(PROGRESS_TIMEOUT, &mut work).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(ended)) => return Err(BackendError::new(BackendErrorKind::Rejected, ended.to_string())),
            Err(_) if progress.0.load(Ordering::Relaxed) != before => {}
            Err(_) => {
                let message = format!("libvirt has not responded for {} s", PROGRESS_TIMEOUT.as_secs());
                return Err(BackendError::new(BackendErrorKind::Timeout, message));
            }
        }
    }
}

/// A poisoned lock means that another call panicked. The values are valid at any time.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rejects text with control characters: some functions of `virt` panic on NUL.
pub(super) fn checked_text<'a>(what: &str, text: &'a str) -> Result<&'a str, BackendError> {
    match text.chars().any(char::is_control) || text.is_empty() {
        true => Err(BackendError::new(
            BackendErrorKind::Rejected,
            format!("{what} {text:?} is empty or contains control characters"),
        )),
        false => Ok(text),
    }
}

/// Parses a document of libvirt.
pub(super) fn document(answer: Result<String, Error>) -> Result<Element, BackendError> {
    Ok(xml::parse(&answer?)?)
}

/// libvirt's test driver with one network and one pool, for this connection alone: the connections of a process to
/// `test:///default` share their objects.
/// Source: libvirt/libvirt: src/test/test_driver.c, `testOpenFromFile`, `testOpenDefault`.
#[cfg(test)]
pub(super) fn open_test_driver() -> Connect {
    const HOST: &str = "<node>
  <network>
    <name>default</name>
    <bridge name='virbr0'/>
    <forward/>
    <ip address='192.168.122.1' netmask='255.255.255.0'>
      <dhcp><range start='192.168.122.2' end='192.168.122.254'/></dhcp>
    </ip>
  </network>
  <pool type='dir'><name>default-pool</name><target><path>/default-pool</path></target></pool>
</node>";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, HOST).unwrap();
    open_connection(&format!("test://{}", file.path().display())).unwrap()
}
