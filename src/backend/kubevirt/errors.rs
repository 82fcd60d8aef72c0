//! Errors of the API server and of the login to it, as errors of the backend.

use std::time::Duration;

use kube::Error;
use kube::client::AuthError;

use crate::backend::{BackendError, BackendErrorKind};
use crate::http_limits::{self, innermost};

/// The longest message of a server that is quoted.
const MOST_WORDS: usize = 1000;

/// The length from which a word with a digit may be a token, in characters.
const LONG_WORD: usize = 20;

/// In the server's message for an object that a ResourceQuota rejects (kubernetes/kubernetes:
/// `staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go`).
pub(super) const EXCEEDED_QUOTA: &str = "exceeded quota";

/// In the messages of KubeVirt and CDI for a clone of a volume in another namespace (containerized-data-importer:
/// `staging/src/kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1/authorize_utils.go`).
pub(super) const NO_CLONE: &str = "has insufficient permissions in clone source namespace ";

/// Messages of the server that are more specific than its status code.
const SAID: &[(&str, BackendErrorKind, &str)] = &[
    (
        EXCEEDED_QUOTA,
        BackendErrorKind::Quota,
        "reduce sizes or the number of nodes, or ask an administrator to raise the namespace's ResourceQuota",
    ),
    (
        // From the webhook of KubeVirt 1.4 and older; newer ones report it in a condition of the machine.
        NO_CLONE,
        BackendErrorKind::Denied,
        "KubeVirt clones with the rights of the namespace's service account default: `ocpdeploy check` shows how to \
         allow it",
    ),
    (
        "requested mac address",
        BackendErrorKind::Conflict,
        "KubeMacPool reports that another machine has this MAC: set other MACs with master_macs and worker_macs",
    ),
];

/// How an administrator lets KubeVirt clone images of one namespace for machines of another. CDI has a cluster role for
/// this only since 1.66 (kubevirt/containerized-data-importer#4219).
pub(super) fn let_clone(from: &str, to: &str) -> String {
    format!(
        "an administrator of namespace {from} runs `kubectl -n {from} create role clone-images --verb=create \
         --resource=datavolumes.cdi.kubevirt.io/source` and `kubectl -n {from} create rolebinding clone-images-{to} \
         --role=clone-images --serviceaccount={to}:default`"
    )
}

impl From<Error> for BackendError {
    fn from(error: Error) -> Self {
        use BackendErrorKind::{Conflict, Denied, NotFound, Rejected, Timeout, TooLarge, Unreachable};
        match error {
            Error::Api(status) => {
                let said = SAID.iter().find(|(words, ..)| status.message.contains(words));
                let code = match status.code {
                    422 if is_other_uid(&status.message) => 409,
                    code => code,
                };
                let (kind, hint) = match (said, code) {
                    (Some((_, kind, hint)), _) => (*kind, Some(*hint)),
                    (_, 401) => (
                        Denied,
                        Some(
                            "the kubeconfig's token is invalid or has expired: log in again, then run the same command",
                        ),
                    ),
                    (_, 403) if has_not_read_roles(&status.message) => (Unreachable, None),
                    (_, 403) => (Denied, Some("`ocpdeploy check` lists the missing rights")),
                    (_, 404) => (NotFound, None),
                    (_, 409) => (Conflict, None),
                    (_, 413) => (TooLarge, None),
                    // The server asks to repeat the request.
                    (_, 408 | 429 | 504) => (Timeout, None),
                    (_, 500 | 502 | 503) => (Unreachable, None),
                    _ => (Rejected, None),
                };
                // The Retry-After header is not available here; API servers repeat it in the body.
                let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
                Self {
                    kind,
                    message: http_limits::words(&status.message, MOST_WORDS),
                    hint: hint.map(str::to_owned),
                    code: Some(code.into()),
                    pause: (asked > 0 && matches!(status.code, 429 | 503)).then(|| Duration::from_secs(asked.into())),
                }
            }
            Error::Auth(error) => auth(&error),
            // The connection failed; the innermost cause says why.
            error => Self::new(Unreachable, innermost(&error)),
        }
    }
}

/// Whether a patch was rejected because the object of this name has another uid. To the API server the uid is an
/// immutable field, so this is a validation error and not the 409 of a failed precondition.
/// Source: kubernetes/apimachinery: `pkg/api/validation/objectmeta.go`, `ValidateObjectMetaAccessorUpdate`.
fn is_other_uid(message: &str) -> bool {
    message.contains("metadata.uid: Invalid value") && message.contains("field is immutable")
}

/// Whether an API server that has just started denied a request because it has not read the roles yet: its denial says
/// that even the roles of every cluster are missing.
/// Source: kubernetes/kubernetes: `plugin/pkg/auth/authorizer/rbac/rbac.go`, `Authorize`.
fn has_not_read_roles(message: &str) -> bool {
    message.contains("RBAC: ") && message.contains("clusterrole.rbac.authorization.k8s.io \"system:")
}

fn auth(error: &AuthError) -> BackendError {
    let hint = match error {
        AuthError::AuthExecStart(_) => {
            "install the command that the kubeconfig names under `exec`, or use another kubeconfig"
        }
        AuthError::AuthExecRun { .. } | AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "run the command that the kubeconfig names under `exec` by hand; it may require a login"
        }
        _ => "check the user's entry in the kubeconfig",
    };
    // The output of an exec plugin may contain a token.
    let words = match error {
        AuthError::AuthExecRun { out, .. } => {
            // Without interactiveMode=Never, kube lets the command write to the terminal.
            let said = http_limits::words(&String::from_utf8_lossy(&out.stderr), MOST_WORDS);
            let separator = if said.is_empty() { "" } else { ": " };
            format!(
                "the kubeconfig's exec command ended with {}{separator}{}",
                out.status,
                masked(&said)
            )
        }
        AuthError::AuthExecStart(error) => format!("the kubeconfig's exec command cannot be started: {error}"),
        AuthError::AuthExecParse(_) | AuthError::ExecPluginFailed => {
            "the kubeconfig's exec command printed no credential".to_owned()
        }
        other => other.to_string(),
    };
    BackendError::new(BackendErrorKind::Denied, words).hint(hint)
}

/// A text in which everything that may be a token or a part of one is replaced.
fn masked(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-+/=".contains(c);
    let mut masked = String::new();
    for piece in text.split_inclusive(|c| !is_part(c)) {
        let word = piece.trim_end_matches(|c| !is_part(c));
        match word.len() >= LONG_WORD && word.contains(|c: char| c.is_ascii_digit()) {
            true => masked += &piece.replace(word, "***"),
            false => masked += piece,
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn tokens_in_the_text_of_an_exec_command_are_masked() {
        for (text, expected) in [
            ("Session expired: run `aws sso login --profile lab-1`", None),
            (
                "token eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJpc3MiOiJrdWJlcm5ldGVzL3Nl.c2ln rejected",
                Some("token ***.***.c2ln rejected"),
            ),
            (
                "refresh_token=\"sha256~0123456789abcdefghijkl\"",
                Some("refresh_token=\"sha256~***\""),
            ),
        ] {
            assert_eq!(masked(text), expected.unwrap_or(text));
        }
    }

    #[test]
    fn only_temporary_errors_are_retryable() {
        use BackendErrorKind::{Conflict, Denied, Quota, Rejected, Timeout, Unreachable};
        for (code, message, kind) in [
            (403, "virtualmachines.kubevirt.io is forbidden: no", Denied),
            (
                403,
                "pods is forbidden: RBAC: clusterrole.rbac.authorization.k8s.io \"ours\" not found",
                Denied,
            ),
            (
                403,
                "pods is forbidden: RBAC: [clusterrole.rbac.authorization.k8s.io \"system:basic-user\" not found, \
                 clusterrole.rbac.authorization.k8s.io \"ours\" not found]",
                Unreachable,
            ),
            (403, "pods \"a\" is forbidden: exceeded quota: small", Quota),
            // `fieldValidation=Strict` (kubernetes/kubernetes: `staging/src/k8s.io/apiserver/pkg/endpoints/handlers/create.go`).
            (
                400,
                "VirtualMachine in version \"v1\" cannot be handled as a VirtualMachine: strict decoding error: unknown \
                 field \"spec.nosuch\"",
                Rejected,
            ),
            // Pod Security admission, and owners that may not be blocked (`staging/src/k8s.io/pod-security-admission/`
            // `admission/admission.go`, `plugin/pkg/admission/gc/gc_admission.go`).
            (
                403,
                "pods \"a\" is forbidden: violates PodSecurity \"restricted:latest\": seccompProfile",
                Denied,
            ),
            (
                403,
                "secrets \"a\" is forbidden: cannot set blockOwnerDeletion if an ownerReference refers to a resource you \
                 can't set finalizers on: , <nil>",
                Denied,
            ),
            (409, "the object has been modified", Conflict),
            (422, "spec.domain: Required value", Rejected),
            (
                422,
                "DataVolume.cdi.kubevirt.io \"a\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable",
                Conflict,
            ),
            (429, "Too many requests, please try again later.\n", Timeout),
            (500, "etcdserver: request timed out", Unreachable),
            (503, "the server is currently unable to handle the request", Unreachable),
            (504, "Timeout: request did not complete", Timeout),
        ] {
            let status = Status::failure(message, "").with_code(code);
            assert_eq!(
                BackendError::from(Error::Api(status.boxed())).kind,
                kind,
                "{code} {message}"
            );
        }
    }
}
