//! Responses of an engine: read up to a limit, and rejections classified by their text.

use reqwest::{Response, StatusCode};
use secrecy::SecretString;

use crate::backend::{BackendError, BackendErrorKind};
use crate::http_limits;
use crate::xml::{self, Element};

/// The longest part of an engine's text that is shown, in characters.
pub(super) const MOST_WORDS: usize = 1000;

/// The text of a response of `url`, of at most `largest` bytes.
pub(super) async fn read_text(url: &str, answer: Response, largest: usize) -> Result<String, BackendError> {
    let bytes = http_limits::read(answer, largest)
        .await
        .map_err(|error| BackendError::unread(url, &error))?;
    // Checked in place: a response may be large.
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The token of the response, which some engines put into a list.
pub(super) fn read_token(status: StatusCode, text: &str) -> Result<SecretString, BackendError> {
    let json: serde_json::Value = http_limits::json(text.as_bytes()).unwrap_or_default();
    let json = json.get(0).unwrap_or(&json);
    if let Some(token) = json.get("access_token").and_then(|token| token.as_str()) {
        return Ok(token.into());
    }
    let word = |name: &str| json.get(name).and_then(|word| word.as_str());
    let code = word("error_code").or(word("error"));
    let said = word("error_description").or(word("error"));
    let said = said.map(|said| http_limits::words(said, MOST_WORDS));
    match code {
        Some("access_denied" | "invalid_grant") => Err(BackendError::new(
            BackendErrorKind::Denied,
            said.unwrap_or_else(|| "unknown user or wrong password".to_owned()),
        )
        .hint("check ovirt_user, which ends in a profile such as @internal or @ovirt@internalsso, and ovirt_password")),
        Some("unauthorized_client") => Err(BackendError::new(
            BackendErrorKind::Denied,
            said.unwrap_or_else(|| "unauthorized client".to_owned()),
        )
        .hint("set ovirt_url to the engine's fully qualified name")),
        Some(_) => Err(BackendError::new(
            BackendErrorKind::Denied,
            said.unwrap_or_else(|| "no token".to_owned()),
        )),
        None if passes(status) => Err(BackendError::new(kind_of(status, ""), format!("HTTP {status}"))),
        None => Err(BackendError::new(
            BackendErrorKind::Unreachable,
            format!("the server is not an oVirt engine (HTTP {status})"),
        )
        .hint("set ovirt_url to the engine's URL, such as https://engine.example.com/ovirt-engine")),
    }
}

/// A response's document, or its fault.
pub(super) fn read(status: StatusCode, text: &str) -> Result<Element, BackendError> {
    if status.is_success() {
        if text.trim().is_empty() {
            return Ok(Element::new("action"));
        }
        return xml::parse(text).map_err(|error| {
            BackendError::new(
                BackendErrorKind::Rejected,
                format!("the engine's response is not XML: {error}"),
            )
        });
    }
    // HTML of a proxy or of the login page is not shown.
    let fault = xml::parse(text).ok();
    let fault = fault.as_ref().and_then(|document| match document.name.as_str() {
        "fault" => Some(document),
        _ => document.find("fault"),
    });
    let word = |name: &str| fault.and_then(|fault| fault.text_of(name)).unwrap_or_default();
    let detail = word("detail").trim_start_matches('[').trim_end_matches(']');
    let words = match (word("reason"), detail) {
        ("", "") => format!("HTTP {status}"),
        (reason, "") => reason.to_owned(),
        ("Operation Failed" | "", detail) => detail.to_owned(),
        (reason, detail) => format!("{reason}: {detail}"),
    };
    Err(BackendError {
        code: Some(status.as_u16().into()),
        ..BackendError::new(kind_of(status, &words), http_limits::words(&words, MOST_WORDS))
    })
}

/// The kind of a rejection. Most differ only in their text (oVirt/ovirt-engine: AppErrors.properties).
fn kind_of(status: StatusCode, words: &str) -> BackendErrorKind {
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    match status {
        StatusCode::NOT_FOUND => BackendErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BackendErrorKind::Denied,
        _ if is_for_administrators(words) => BackendErrorKind::Denied,
        // From a proxy in front of the engine.
        StatusCode::TOO_MANY_REQUESTS => BackendErrorKind::Timeout,
        _ if passes(status) => BackendErrorKind::Unreachable,
        _ if says(&[
            "Low disk space",
            "quota",
            "Quota",
            "Not enough MAC",
            "not enough memory",
        ]) =>
        {
            BackendErrorKind::Quota
        }
        // The request is repeated; if the lock remains, this is a timeout.
        StatusCode::CONFLICT if is_locked(words) => BackendErrorKind::Timeout,
        StatusCode::CONFLICT if says(&["already in use", "already used", "already exists"]) => {
            BackendErrorKind::Conflict
        }
        _ => BackendErrorKind::Rejected,
    }
}

/// Whether a status comes from a proxy or a starting engine, so that the same request can succeed later.
pub(super) fn passes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Whether a query was rejected because only administrators may send it, or may send it unfiltered.
pub(super) fn is_for_administrators(words: &str) -> bool {
    words.contains("insufficient permissions")
}

/// Whether a rejection ends by itself: another operation on the same object has its lock, or the machine is migrated,
/// saved or backed up.
///
/// oVirt/ovirt-engine: `AppErrors.properties`, the texts of `getExclusiveLocks` and `getSharedLocks` of commands on disks,
/// templates and machines, and of `StopVmCommandBase` and `SnapshotsValidator`.
pub(super) fn is_locked(words: &str) -> bool {
    let sentences = [
        "is locked",
        "are locked",
        "is currently locked",
        "in Image Locked status",
        "is currently in progress",
        "migration is in progress",
        "currently in use to create VM",
        "performing an operation on a Snapshot",
        "in saving/restoring state",
        "during a backup operation",
        "during a checkpoint removal operation",
    ];
    // `VM … is being migrated`, `Snapshot is currently being created for VM …`.
    let operations = [
        "cloned",
        "converted",
        "created",
        "exported",
        "imported",
        "migrated",
        "moved or copied",
        "removed",
        "switched",
        "transferred",
        "updated",
    ];
    sentences.iter().any(|sentence| words.contains(sentence))
        || words
            .split(" being ")
            .skip(1)
            .any(|rest| operations.iter().any(|operation| rest.starts_with(operation)))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn fault(detail: &str) -> String {
        format!("<fault><detail>[{detail}]</detail><reason>Operation Failed</reason></fault>")
    }

    #[test]
    fn a_rejection_is_classified_by_its_text() {
        use BackendErrorKind::{Conflict, Denied, NotFound, Quota, Rejected, Timeout, Unreachable};
        for (status, body, kind, words) in [
            (404, String::new(), NotFound, "HTTP 404 Not Found"),
            (401, "<html>x</html>".to_owned(), Denied, "HTTP 401 Unauthorized"),
            (
                400,
                fault("Query execution failed due to insufficient permissions."),
                Denied,
                "Query execution failed due to insufficient permissions.",
            ),
            (
                503,
                "<html>busy".to_owned(),
                Unreachable,
                "HTTP 503 Service Unavailable",
            ),
            (429, "<html>slower".to_owned(), Timeout, "HTTP 429 Too Many Requests"),
            (
                409,
                fault("Cannot run VM. VM is locked. Please try again."),
                Timeout,
                "Cannot run VM. VM is locked. Please try again.",
            ),
            (
                409,
                fault("Cannot remove VM. Related operation is currently in progress. Please try again later."),
                Timeout,
                "Cannot remove VM. Related operation is currently in progress. Please try again later.",
            ),
            (
                409,
                fault("Cannot add VM. The VM name is already in use, please choose a unique name and try again."),
                Conflict,
                "Cannot add VM. The VM name is already in use, please choose a unique name and try again.",
            ),
            (
                409,
                fault("Cannot add VM. Low disk space on Storage Domain data."),
                Quota,
                "Cannot add VM. Low disk space on Storage Domain data.",
            ),
            (
                400,
                "<fault><detail>Vm [name] required for add</detail><reason>Incomplete parameters</reason></fault>"
                    .to_owned(),
                Rejected,
                "Incomplete parameters: Vm [name] required for add",
            ),
            (
                409,
                format!(
                    "<action>{}<status>failed</status></action>",
                    fault("Cannot run VM. VM is running.")
                ),
                Rejected,
                "Cannot run VM. VM is running.",
            ),
        ] {
            let failure = read(StatusCode::from_u16(status).unwrap(), &body).unwrap_err();
            assert_eq!((failure.kind, failure.message.as_str()), (kind, words), "{body}");
        }
    }

    /// The messages are those of the fake engine. Their codes, which responses do not contain, tell the expected kind.
    #[test]
    fn each_message_of_the_engine_has_its_kind() {
        use BackendErrorKind::{Conflict, Denied, Quota, Rejected, Timeout};
        let messages = include_str!("../../../tests/fixtures/ovirt-messages.txt").lines();
        let mut known = 0;
        for line in messages.filter(|line| !line.starts_with('#')) {
            let (status, message) = line.split_once(' ').unwrap();
            let (code, words) = message.split_once('=').unwrap();
            let is = |parts: &[&str]| parts.iter().any(|part| code.contains(part));
            let kind = match code {
                "ACTION_TYPE_FAILED_DISK_ALREADY_EXISTS"
                | "ACTION_TYPE_FAILED_IMAGE_ALREADY_EXISTS"
                | "ACTION_TYPE_FAILED_NAME_ALREADY_USED"
                | "NETWORK_INTERFACE_NAME_ALREADY_IN_USE"
                | "NETWORK_MAC_ADDRESS_IN_USE"
                | "TAGS_SPECIFY_TAG_IS_IN_USE" => Conflict,
                "VMT_CANNOT_CREATE_TEMPLATE_FROM_DOWN_VM" => Timeout,
                _ if is(&["NOT_AUTHORIZED"]) => Denied,
                _ if is(&["QUOTA", "NOT_ENOUGH_MAC", "DISK_SPACE_LOW"]) => Quota,
                _ if is(&[
                    "LOCKED",
                    "_BEING_",
                    "DURING",
                    "IN_PROGRESS",
                    "SAVING",
                    "USED_FOR_CREATE",
                ]) =>
                {
                    Timeout
                }
                _ => Rejected,
            };
            let failure = read(StatusCode::from_bytes(status.as_bytes()).unwrap(), &fault(words)).unwrap_err();
            assert_eq!(failure.kind, kind, "{line}");
            assert_eq!(failure.code, Some(status.parse().unwrap()), "{line}");
            known += 1;
        }
        assert!(known > 80, "{known}");
    }

    #[test]
    fn a_token_comes_in_an_object_or_a_list() {
        for text in [r#"{"access_token":"T","exp":"1"}"#, r#"[{"access_token":"T"}]"#] {
            assert_eq!(read_token(StatusCode::OK, text).unwrap().expose_secret(), "T");
        }
        let wrong = r#"{"error":"Cannot authenticate user","error_code":"access_denied"}"#;
        let failure = read_token(StatusCode::BAD_REQUEST, wrong).unwrap_err();
        assert_eq!(
            (failure.kind, &*failure.message),
            (BackendErrorKind::Denied, "Cannot authenticate user")
        );
        let other = read_token(StatusCode::OK, "<html>some shop</html>").unwrap_err();
        assert_eq!(other.kind, BackendErrorKind::Unreachable);
        let starts = read_token(StatusCode::SERVICE_UNAVAILABLE, "<html>starting</html>").unwrap_err();
        assert_eq!(
            (starts.kind, &*starts.message, starts.hint),
            (BackendErrorKind::Unreachable, "HTTP 503 Service Unavailable", None)
        );
    }
}
