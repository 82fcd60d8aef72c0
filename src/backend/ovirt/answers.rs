//! What comes back from an engine: read up to a limit, and faults told apart by their words.

use reqwest::{Response, StatusCode};
use secrecy::SecretString;

use crate::backend::BackendErrorKind;
use crate::backend::failure::Failure;
use crate::http_limits;
use crate::xml::{self, Element};

/// The longest words of an engine that are repeated.
const MOST_WORDS: usize = 1000;

/// The text of an answer of `url`, of at most so many bytes.
pub(super) async fn read_text(url: &str, answer: Response, largest: usize) -> Result<String, Failure> {
    let bytes = http_limits::read(answer, largest)
        .await
        .map_err(|error| Failure::unread(url, &error))?;
    // Checked in place: an answer may be large.
    Ok(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The token of the answer, which some engines put into a list.
pub(super) fn read_token(status: StatusCode, text: &str) -> Result<SecretString, Failure> {
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
        Some("access_denied" | "invalid_grant") => Err(Failure::new(
            BackendErrorKind::Denied,
            said.unwrap_or_else(|| "the engine does not know this user and password".to_owned()),
        )
        .hint("check ovirt_user, which ends in a profile such as @internal or @ovirt@internalsso, and ovirt_password")),
        Some("unauthorized_client") => Err(Failure::new(
            BackendErrorKind::Denied,
            said.unwrap_or_else(|| "unauthorized client".to_owned()),
        )
        .hint("give ovirt_url with the engine's own full name")),
        Some(_) => Err(Failure::new(
            BackendErrorKind::Denied,
            said.unwrap_or_else(|| "no token".to_owned()),
        )),
        None if passes(status) => Err(Failure::new(kind_of(status, ""), format!("HTTP {status}"))),
        None => Err(Failure::new(
            BackendErrorKind::Unreachable,
            format!("no oVirt engine answers there (HTTP {status})"),
        )
        .hint("ovirt_url is the engine's address, such as https://engine.example.com/ovirt-engine")),
    }
}

/// An answer's document, or its fault.
pub(super) fn read(status: StatusCode, text: &str) -> Result<Element, Failure> {
    if status.is_success() {
        if text.trim().is_empty() {
            return Ok(Element::new("action"));
        }
        return xml::parse(text).map_err(|error| {
            Failure::new(
                BackendErrorKind::Rejected,
                format!("the engine's answer is none: {error}"),
            )
        });
    }
    // HTML of a proxy or of the login page is nothing to show.
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
    Err(Failure::new(
        kind_of(status, &words),
        http_limits::words(&words, MOST_WORDS),
    ))
}

/// What a refusal means. Most are told apart by their sentence only (oVirt/ovirt-engine: AppErrors.properties).
fn kind_of(status: StatusCode, words: &str) -> BackendErrorKind {
    let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part));
    match status {
        StatusCode::NOT_FOUND => BackendErrorKind::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => BackendErrorKind::Denied,
        _ if is_for_administrators(words) => BackendErrorKind::Denied,
        // A proxy's, which engines stand behind.
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
        // Asked again, and a time-out when that never ends.
        StatusCode::CONFLICT if is_locked(words) => BackendErrorKind::Timeout,
        StatusCode::CONFLICT => BackendErrorKind::Conflict,
        _ => BackendErrorKind::Rejected,
    }
}

/// Whether an answer tells of the way to the engine, or of an engine that starts, and of nothing that was asked.
pub(super) fn passes(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    )
}

/// Whether a look was refused since only administrators may have it, or only they unfiltered.
pub(super) fn is_for_administrators(words: &str) -> bool {
    words.contains("insufficient permissions")
}

/// Whether a refusal passes by itself.
pub(super) fn is_locked(words: &str) -> bool {
    [
        "is locked",
        "are locked",
        "Related operation is currently in progress",
        "in Image Locked status",
    ]
    .iter()
    .any(|sentence| words.contains(sentence))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn fault(detail: &str) -> String {
        format!("<fault><detail>[{detail}]</detail><reason>Operation Failed</reason></fault>")
    }

    #[test]
    fn a_refusal_is_known_by_its_sentence() {
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
                Conflict,
                "Cannot run VM. VM is running.",
            ),
        ] {
            let failure = read(StatusCode::from_u16(status).unwrap(), &body).unwrap_err();
            assert_eq!((failure.kind, failure.message.as_str()), (kind, words), "{body}");
        }
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
