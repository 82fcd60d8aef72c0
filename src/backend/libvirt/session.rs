//! The connection: every call in a thread of its own, bounded in number and time, with typed errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use virt::connect::Connect;
use virt::error::{Error, ErrorDomain, ErrorNumber};

use crate::backend::capabilities::LIBVIRT_CONCURRENCY;
use crate::backend::failure::{During, Failure};
use crate::backend::{BackendError, BackendErrorKind};
use crate::xml::{self, Element};

/// libvirtd admits 5 calls of one client at once (`max_client_requests`), and keeps further ones waiting.
const CALLS_PER_LINE: usize = 4;
/// Longest silence of one call; `virt` has no time-out of its own, and a lost peer is noticed only when the kernel gives up.
const PATIENCE: Duration = Duration::from_secs(60);

impl Failure {
    pub fn is(&self, code: ErrorNumber) -> bool {
        self.code == Some(code as u32)
    }

    /// Whether the driver behind the connection has no such function at all, or not with these flags.
    pub fn is_unsupported(&self) -> bool {
        self.is(ErrorNumber::NoSupport)
            || self.is(ErrorNumber::OperationUnsupported)
            || self.is(ErrorNumber::InvalidArg) && self.words.starts_with("unsupported flags")
    }

    /// Whether libvirt only wants to be asked again: someone just fills, reads or makes something there.
    ///
    /// It has no code of its own for that.
    pub fn is_passing(&self) -> bool {
        (self.is(ErrorNumber::OperationInvalid) && self.words.contains("is still "))
            || (self.is(ErrorNumber::InternalError) && self.words.contains("has asynchronous jobs running"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use ErrorNumber as E;
        let code = error.code().known();
        let words = error.message().to_owned();
        let lower = words.to_lowercase();
        let of_connection = error.domain().is(ErrorDomain::Rpc) || error.domain().is(ErrorDomain::Remote);
        let kind = match code {
            Some(E::AuthFailed | E::AuthCancelled | E::AuthUnavailable | E::OperationDenied | E::AccessDenied) => {
                BackendErrorKind::Denied
            }
            Some(E::NoDomain | E::NoNetwork | E::NoStoragePool | E::NoStorageVolume) => BackendErrorKind::NotFound,
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
                "QEMU's user must be able to read the pool's folder; with AppArmor, allow it in \
                 /etc/apparmor.d/local/abstractions/libvirt-qemu"
                    .to_owned(),
            ),
            BackendErrorKind::Rejected if lower.contains("kvm") => {
                Some("set virt_type=qemu to do without KVM".to_owned())
            }
            _ => None,
        };
        Self {
            kind,
            words,
            hint,
            code: code.map(|code| code as u32),
            pause: None,
        }
    }
}

impl From<xml::BadXml> for Failure {
    fn from(error: xml::BadXml) -> Self {
        Self::new(BackendErrorKind::Rejected, error.to_string())
    }
}

/// `None` where libvirt says that there is no such thing.
pub(super) fn if_there<T>(answer: Result<T, Error>) -> Result<Option<T>, Failure> {
    match answer.map_err(Failure::from) {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.kind == BackendErrorKind::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// `None` where the driver cannot tell.
pub(super) fn if_supported<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(failure) if failure.is_unsupported() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Signs of life of a long call, such as bytes sent.
#[derive(Clone, Default)]
pub(super) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// One libvirt, by as many connections as the calls under way need.
pub(super) struct Session {
    uri: String,
    lines: Mutex<Vec<Arc<Connect>>>,
    permits: Semaphore,
}

impl Session {
    pub async fn open(uri: &str) -> Result<Self, BackendError> {
        // libvirt's own handler writes every error on stderr, the expected ones too.
        virt::error::clear_error_callback();
        let own = uri.to_owned();
        let connect = bounded(Pulse::default(), move || Ok(Connect::open(Some(&own))?)).await;
        let connect = connect.during(format!("connect to {uri}"))?;
        Ok(Self {
            uri: uri.to_owned(),
            lines: Mutex::new(vec![Arc::new(connect)]),
            permits: Semaphore::new(LIBVIRT_CONCURRENCY),
        })
    }

    /// Runs blocking libvirt calls; `work` may beat the pulse to be granted more time.
    pub async fn call<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl Into<String>,
        work: impl FnOnce(&Connect, &Pulse) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, BackendError> {
        let operation = operation.into();
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let session = Arc::clone(self);
        let pulse = Pulse::default();
        let inner = pulse.clone();
        let answer = bounded(pulse, move || work(session.line()?.as_ref(), &inner)).await;
        answer.map_err(|failure| {
            if failure.kind == BackendErrorKind::Unreachable {
                // The daemon was restarted or a tunnel fell; the next call connects anew.
                lock(&self.lines).clear();
            }
            failure.during(operation)
        })
    }

    /// The connection with the fewest calls under way; a new one when all have enough to do.
    fn line(&self) -> Result<Arc<Connect>, Failure> {
        let mut lines = lock(&self.lines);
        lines.retain(|line| line.is_alive().unwrap_or(false));
        // Each call holds a reference, and so does this list.
        let idlest = lines.iter().min_by_key(|line| Arc::strong_count(line)).cloned();
        match idlest {
            // The one just taken counts as well.
            Some(line) if Arc::strong_count(&line) - 2 < CALLS_PER_LINE => Ok(line),
            other => match (Connect::open(Some(&self.uri)), other) {
                (Ok(connect), _) => {
                    let line = Arc::new(connect);
                    lines.push(Arc::clone(&line));
                    Ok(line)
                }
                // The daemon may not want more clients; then the others are shared.
                (Err(_), Some(line)) => Ok(line),
                (Err(error), None) => Err(error.into()),
            },
        }
    }
}

/// Runs `work` in a thread and gives up when it is silent for too long; the thread itself cannot be stopped.
async fn bounded<T: Send + 'static>(
    pulse: Pulse,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let mut work = tokio::task::spawn_blocking(work);
    loop {
        let heard = pulse.0.load(Ordering::Relaxed);
        match tokio::time::timeout(PATIENCE, &mut work).await {
            Ok(Ok(answer)) => return answer,
            Ok(Err(ended)) => return Err(Failure::new(BackendErrorKind::Rejected, ended.to_string())),
            Err(_) if pulse.0.load(Ordering::Relaxed) != heard => {}
            Err(_) => {
                let words = format!("libvirt has not answered for {} s", PATIENCE.as_secs());
                return Err(Failure::new(BackendErrorKind::Timeout, words));
            }
        }
    }
}

/// A poisoned lock only says that another call panicked; what is in these locks is whole at every moment.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The documents of `virt` take text with NUL for a mistake of ours and some of its calls panic on it.
pub(super) fn plain<'a>(what: &str, text: &'a str) -> Result<&'a str, Failure> {
    match text.chars().any(char::is_control) || text.is_empty() {
        true => Err(Failure::new(
            BackendErrorKind::Rejected,
            format!("{what} {text:?} is empty or holds control characters"),
        )),
        false => Ok(text),
    }
}

/// Reads a document that libvirt gave.
pub(super) fn document(answer: Result<String, Error>) -> Result<Element, Failure> {
    Ok(xml::parse(&answer?)?)
}
