//! The meaning of a failure for the caller: its kind, exit code, causes and hints.

use std::error::Error;
use std::fmt;

use serde::{Serialize, Serializer};

use crate::artifacts::download::DownloadError;
use crate::backend::{BackendError, BackendErrorKind};
use crate::error::{ErrorKind, OperationError};
use crate::ignition::IgnitionError;
use crate::local::client_dns::ClientDnsError;
use crate::local::coreos_installer::CoreosInstallerError;
use crate::local::registry::RegistryError;
use crate::node::services::ServiceError;
use crate::openshift::api::ApiError;
use crate::openshift::drain::DrainError;
use crate::openshift::mcs::McsError;
use crate::openshift::wait::WaitError;
use crate::passes::PartialFailure;
use crate::passes::diagnose::InstallFailed;
use crate::passes::image_sources::ImageError;
use crate::printable::{printable_block, printable_text};
use crate::settings::SettingsError;
use crate::state::archive::ArchiveError;
use crate::state::inventory::InventoryError;
use crate::state::journal::JournalError;
use crate::state::parameters::ParametersError;
use crate::templates::TemplateError;

/// Exit code of a query whose answer is not the wanted one, such as a difference: a result, not a failure.
pub const DIFFERENT: u8 = 1;

/// Kind and hints of one error of a chain.
type Classification = (ErrorKind, Vec<String>);

/// The table of all typed errors, one line each.
fn classify(error: &(dyn Error + 'static)) -> Option<Classification> {
    /// Applies `f` if the error is an `E`.
    fn if_is<E: Error + 'static>(
        error: &(dyn Error + 'static),
        f: impl FnOnce(&E) -> Classification,
    ) -> Option<Classification> {
        error.downcast_ref().map(f)
    }
    let one = |hint: &str| vec![hint.to_owned()];
    None.or_else(|| if_is(error, |e: &OperationError| (e.kind, e.hints.clone())))
        .or_else(|| if_is(error, |e: &PartialFailure| (of_causes(e), vec![e.hint()])))
        .or_else(|| if_is(error, of_backend))
        .or_else(|| if_is(error, of_journal))
        .or_else(|| if_is(error, |_: &ArchiveError| (ErrorKind::Settings, vec![])))
        .or_else(|| if_is(error, of_inventory))
        .or_else(|| if_is(error, |_: &ParametersError| (ErrorKind::Settings, one(PARAMETERS_HINT))))
        .or_else(|| if_is(error, |_: &SettingsError| (ErrorKind::Settings, vec![])))
        .or_else(|| if_is(error, of_ignition))
        .or_else(|| {
            if_is(error, |e: &ServiceError| {
                (ErrorKind::Tool, e.hint().map(str::to_owned).into_iter().collect())
            })
        })
        .or_else(|| if_is(error, of_client_dns))
        .or_else(|| if_is(error, |e: &CoreosInstallerError| (ErrorKind::Tool, one(e.hint()))))
        .or_else(|| if_is(error, |e: &RegistryError| (ErrorKind::Tool, one(e.hint()))))
        .or_else(|| if_is(error, |e: &InstallFailed| (of_wait(&e.source).0, e.hints())))
        .or_else(|| if_is(error, of_wait))
        .or_else(|| if_is(error, of_drain))
        .or_else(|| if_is(error, of_api))
        .or_else(|| if_is(error, of_image))
        .or_else(|| {
            if_is(error, |e: &DownloadError| {
                (ErrorKind::Tool, e.hint().into_iter().collect())
            })
        })
        .or_else(|| if_is(error, of_mcs))
        .or_else(|| if_is(error, |_: &TemplateError| (ErrorKind::Settings, vec![])))
        .or_else(|| if_is(error, |_: &std::io::Error| (ErrorKind::Tool, vec![])))
}

/// The kind of the nearest cause that `classify` knows: a failure has the same exit code before and after the first
/// object was created.
fn of_causes(error: &PartialFailure) -> ErrorKind {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some((kind, _)) = classify(error) {
            return kind;
        }
        cause = error.source();
    }
    ErrorKind::Bug
}

fn of_journal(error: &JournalError) -> Classification {
    let kind = match error {
        JournalError::Locked { .. } => ErrorKind::Locked,
        JournalError::Damaged { .. } | JournalError::Version { .. } | JournalError::OtherInput { .. } => {
            ErrorKind::Settings
        }
        JournalError::Io { .. } => ErrorKind::Tool,
    };
    (kind, vec![error.hint()])
}

const UNKNOWN_HINT: &str = "`ocpdeploy list` shows the clusters in the state directory. To use a cluster of another \
                            computer, import its record: `ocpdeploy state import FILE`";
const PARAMETERS_HINT: &str = "correct the file, or create it again with `ocpdeploy harvest`";

fn of_client_dns(error: &ClientDnsError) -> Classification {
    let kind = match error {
        ClientDnsError::Markers { .. } | ClientDnsError::Version { .. } => ErrorKind::Settings,
        _ => ErrorKind::Tool,
    };
    (kind, error.hint().into_iter().collect())
}

fn of_backend(error: &BackendError) -> Classification {
    let kind = match error.kind {
        BackendErrorKind::Timeout => ErrorKind::Waited,
        BackendErrorKind::LocalFile => ErrorKind::Settings,
        BackendErrorKind::NotBuiltIn | BackendErrorKind::NoLibrary => ErrorKind::Tool,
        _ => ErrorKind::Platform,
    };
    let hint = error.hint.clone().unwrap_or_else(|| error.kind.hint().to_owned());
    (kind, vec![hint])
}

fn of_wait(error: &WaitError) -> Classification {
    let kind = match error {
        WaitError::TooLong { .. } => ErrorKind::Waited,
        WaitError::Hopeless { source, .. } => of_api(source).0,
    };
    (kind, vec![error.hint().to_owned()])
}

fn of_drain(error: &DrainError) -> Classification {
    let kind = match error {
        DrainError::Loses { .. } => ErrorKind::Platform,
        DrainError::Stuck { .. } => ErrorKind::Waited,
        DrainError::Api(error) => return of_api(error),
    };
    (kind, error.hint().into_iter().map(str::to_owned).collect())
}

fn of_api(error: &ApiError) -> Classification {
    let kind = match error {
        ApiError::Kubeconfig { .. } | ApiError::ClientExpired { .. } => ErrorKind::Tool,
        ApiError::Unreachable { .. } => ErrorKind::Waited,
        ApiError::Untrusted { .. } | ApiError::ServerExpired { .. } | ApiError::Refused { .. } => ErrorKind::Platform,
    };
    (kind, vec![error.hint()])
}

fn of_mcs(error: &McsError) -> Classification {
    let kind = match error {
        _ if error.is_timeout() => ErrorKind::Waited,
        _ => ErrorKind::Platform,
    };
    (kind, error.hint().into_iter().collect())
}

fn of_ignition(error: &IgnitionError) -> Classification {
    (
        ErrorKind::Settings,
        error.hint().into_iter().map(str::to_owned).collect(),
    )
}

fn of_image(error: &ImageError) -> Classification {
    (ErrorKind::Tool, error.hint().into_iter().map(str::to_owned).collect())
}

fn of_inventory(error: &InventoryError) -> Classification {
    match error {
        InventoryError::Unknown { .. } => (ErrorKind::Usage, vec![UNKNOWN_HINT.to_owned()]),
        InventoryError::Parameters(_) => (ErrorKind::Settings, vec![PARAMETERS_HINT.to_owned()]),
        _ => (ErrorKind::Tool, vec![]),
    }
}

/// A failure for display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    #[serde(rename = "exit_code", serialize_with = "exit_code")]
    pub kind: ErrorKind,
    /// What failed, then its causes from near to far, without repetition.
    #[serde(rename = "error")]
    pub chain: Vec<String>,
    pub hints: Vec<String>,
    #[serde(skip)]
    /// Whether the causes are problems of the settings, which are shown as blocks with their locations.
    diagnostics: bool,
}

fn exit_code<S: Serializer>(kind: &ErrorKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(kind.exit_code())
}

impl Failure {
    /// A failure without causes.
    pub fn without_hint(kind: ErrorKind, what: &str) -> Self {
        Self {
            kind,
            chain: vec![what.to_owned()],
            hints: Vec::new(),
            diagnostics: false,
        }
    }

    /// A mistake on the command line.
    pub fn of_usage(what: String, hints: Vec<String>) -> Self {
        Self {
            kind: ErrorKind::Usage,
            chain: vec![what],
            hints,
            diagnostics: false,
        }
    }
}

/// Evaluates a chain of errors. The outermost error of a known type determines the kind.
pub fn explain(error: &anyhow::Error) -> Failure {
    let mut chain: Vec<String> = Vec::new();
    let (mut kind, mut hints) = (None, Vec::new());
    for cause in error.chain() {
        let text = cause.to_string();
        // Many libraries include their source's text in their own.
        if !text.is_empty() && !chain.last().is_some_and(|before| before.contains(&text)) {
            chain.push(text);
        }
        if let Some((of_cause, hints_of_cause)) = classify(cause) {
            kind = kind.or(Some(of_cause));
            for hint in hints_of_cause {
                if !hints.contains(&hint) {
                    hints.push(hint);
                }
            }
        }
    }
    let kind = kind.unwrap_or(ErrorKind::Bug);
    if kind == ErrorKind::Bug && hints.is_empty() {
        hints.push(REPORT.to_owned());
    }
    Failure {
        kind,
        chain,
        hints,
        diagnostics: error.is::<SettingsError>(),
    }
}

const REPORT: &str = "this is an internal error in ocpdeploy; please report it with the text above";

impl Failure {
    /// The text for a terminal: `error:`, the causes, an empty line, the hints.
    pub fn render(&self, colour: bool) -> String {
        let paint = |word: &str, code: &str| match colour {
            true => format!("\x1b[1;{code}m{word}\x1b[0m"),
            false => word.to_owned(),
        };
        let mut text = String::new();
        for (index, cause) in self.chain.iter().enumerate() {
            let head = match index {
                0 => paint("error:", "31"),
                _ => paint("caused by:", "31"),
            };
            // Diagnostics consist of several blocks, so their lines are not indented.
            let cause = match self.diagnostics {
                true => printable_text(cause.trim_end()),
                false => printable_block(cause),
            };
            text += &format!("{head} {cause}\n");
        }
        if !self.hints.is_empty() {
            text.push('\n');
        }
        for hint in &self.hints {
            text += &format!("{} {}\n", paint("hint:", "36"), printable_block(hint));
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Replaces Rust's message for a panic with a request to report it.
pub fn report_panics(show: fn(&Failure)) {
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload_as_str().unwrap_or("panic without a message");
        let place = panic.location().map(|place| format!(" at {place}")).unwrap_or_default();
        show(&Failure {
            kind: ErrorKind::Bug,
            diagnostics: false,
            chain: vec![format!("{text}{place}")],
            hints: vec![REPORT.to_owned()],
        });
    }));
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    fn unreachable() -> anyhow::Error {
        BackendError::new(BackendErrorKind::Unreachable, "no route to host")
            .during("create machine lab-master-0")
            .into()
    }

    #[test]
    fn chain_hint_and_exit_code_come_from_the_typed_error() {
        let failure = explain(&unreachable().context("pass two"));
        insta::assert_snapshot!(failure, @r"
        error: pass two
        caused by: create machine lab-master-0: the platform is unreachable
        caused by: no route to host

        hint: check the address, the network, and whether the service runs, then run the same command again
        ");
        assert_eq!(failure.kind.exit_code(), 5);
    }

    #[test]
    fn a_hint_of_several_problems_is_shown_once() {
        let error = ["free it", "free it", "wait"]
            .into_iter()
            .fold(OperationError::new(ErrorKind::Tool, "3 problems"), OperationError::hint);
        assert_eq!(explain(&error.into()).hints, ["free it", "wait"]);
    }

    #[test]
    fn each_known_error_has_its_code() {
        let timeout = BackendError::new(BackendErrorKind::Timeout, "").during("look").into();
        let absent = BackendError::new(BackendErrorKind::NotBuiltIn, "")
            .during("backend ovirt")
            .into();
        let held = JournalError::Locked {
            cluster: "lab".to_owned(),
            holder: "pid 7".to_owned(),
        };
        let unknown = OperationError::new(ErrorKind::Usage, "no cluster `lab` is known here").into();
        for (error, code) in [
            (timeout, 6),
            (absent, 4),
            (held.into(), 8),
            (unknown, 2),
            (std::io::Error::other("disk full").into(), 4),
            (anyhow::anyhow!("cannot happen"), 70),
        ] {
            assert_eq!(explain(&error).kind.exit_code(), code, "{error}");
        }
    }

    #[test]
    fn a_message_that_repeats_its_source_is_shown_once() {
        let inner = std::io::Error::other("disk full");
        let outer = std::io::Error::other(format!("cannot write x: {inner}"));
        let error = Err::<(), _>(inner)
            .context(outer)
            .context("cannot write x")
            .unwrap_err();
        insta::assert_snapshot!(explain(&error), @r"
        error: cannot write x
        caused by: cannot write x: disk full
        ");
    }

    #[test]
    fn control_characters_from_outside_do_not_reach_the_terminal() {
        let error = anyhow::anyhow!("name \x1b[2Jlab\u{202e}\u{9b}1m\rx\nhint: y").context("look");
        let text = explain(&error).render(false);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(text.contains("\\u{1b}[2Jlab\\u{202e}"), "{text:?}");
        assert!(!text.contains("\nhint: y"), "{text:?}");
    }
}
