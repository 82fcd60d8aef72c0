//! Rejections in the engine's form, and faults that a test injects.

use super::http::Answer;
use super::xml::{Node, node};

/// Why a request was not fulfilled.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// A missing entity: 404 without a body (oVirt/ovirt-engine: BaseBackendResource).
    NotFound,
    Fault {
        status: u16,
        reason: &'static str,
        detail: String,
    },
    /// An uncaught exception: 500 with HTML.
    Exception,
    /// Unknown to the fake.
    Unknown,
}

pub type Outcome<T> = Result<T, Refusal>;

/// The engine's messages: status, code and text.
const MESSAGES: &str = include_str!("../../fixtures/ovirt-messages.txt");

/// The status and the text of a message of the engine. `operation` has its words for `${action} ${type}`: `add VM`.
pub fn message(code: &str, operation: &str, values: &[(&str, &str)]) -> (u16, String) {
    let line = MESSAGES.lines().find_map(|line| {
        let (status, message) = line.split_once(' ')?;
        Some((status, message.strip_prefix(code)?.strip_prefix('=')?))
    });
    let (status, text) = line.unwrap_or_else(|| panic!("{code} is not in tests/fixtures/ovirt-messages.txt"));
    let (action, kind) = operation.split_once(' ').unwrap_or((operation, ""));
    let known = [("action", action), ("type", kind)];
    let values = values.iter().chain(&known);
    let text = values.fold(text.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value)
    });
    (status.parse().unwrap(), text)
}

impl Refusal {
    /// A message of the engine, see `message`.
    pub fn engine(code: &str, operation: &str, values: &[(&str, &str)]) -> Self {
        let (status, text) = message(code, operation, values);
        Self::failed(status, text)
    }

    /// As `engine`, for the end of an operation.
    pub fn because<T>(code: &str, operation: &str, values: &[(&str, &str)]) -> Outcome<T> {
        Err(Self::engine(code, operation, values))
    }

    pub fn failed(status: u16, sentence: impl Into<String>) -> Self {
        Self::Fault {
            status,
            reason: "Operation Failed",
            detail: format!("[{}]", sentence.into()),
        }
    }

    /// `Vm [name] required for add`.
    pub fn incomplete<T>(what: &str, fields: &str, operation: &str) -> Outcome<T> {
        Err(Self::Fault {
            status: 400,
            reason: "Incomplete parameters",
            detail: format!("{what} [{fields}] required for {operation}"),
        })
    }

    /// `what` is not part of the engine's answer: the path of the unknown element.
    pub fn syntax(usage: &str, what: &str) -> Self {
        let usage = format!("https://127.0.0.1/ovirt-engine/apidoc#services/{usage}");
        Self::Fault {
            status: 400,
            reason: "Request syntactically incorrect.",
            detail: format!("For correct usage, see: {usage} (at {what})"),
        }
    }

    /// The answer; in an action, the fault is inside of the `<action>`.
    pub fn answer(&self, is_action: bool) -> Answer {
        let (status, reason, detail) = match self {
            Self::NotFound | Self::Unknown => return Answer::new(404, "", ""),
            Self::Exception => return html(500, "Internal Server Error"),
            Self::Fault { status, reason, detail } => (*status, *reason, detail),
        };
        let fault = node("fault").text("detail", detail).text("reason", reason);
        let body: Node = match is_action {
            true => node("action").add(fault).text("status", "failed"),
            false => fault,
        };
        Answer::new(status, "application/xml;charset=UTF-8", body.to_string())
    }
}

/// A fault of requests of one kind. A fault that never happened fails the test.
#[derive(Clone, Debug)]
pub struct Fault {
    /// `*` stands for any.
    pub method: String,
    /// Below `/ovirt-engine/api`, or a whole path; `*` stands for any text.
    pub path: String,
    /// The number of requests that succeed first.
    pub skip: usize,
    /// How often it happens.
    pub times: usize,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// The engine's own form.
    Refuse(Refusal),
    /// A proxy in front of the engine, or the engine while it starts: HTML.
    Html(u16),
    /// As `Html`, with a Retry-After in seconds.
    Later(u16, u32),
    /// The session ended: the token is forgotten.
    Expired,
    /// The connection breaks before the engine gets the request.
    LostRequest,
    /// The engine executes the request, and its answer is lost.
    LostAnswer,
    /// The engine executes the request, and the connection breaks during its answer.
    HalfAnswer,
}

impl Fault {
    /// A fault that happens once: the object is locked by another operation.
    pub fn on(method: &str, path: &str) -> Self {
        let locked = Refusal::engine("ACTION_TYPE_FAILED_OBJECT_LOCKED", "edit VM", &[]);
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            skip: 0,
            times: 1,
            what: What::Refuse(locked),
        }
    }

    pub fn skip(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    pub fn what(mut self, what: What) -> Self {
        self.what = what;
        self
    }

    /// A message of the engine, see `message`.
    pub fn because(self, code: &str, operation: &str, values: &[(&str, &str)]) -> Self {
        self.what(What::Refuse(Refusal::engine(code, operation, values)))
    }

    /// A status with a sentence that the engine does not have.
    pub fn refused(self, status: u16, sentence: &str) -> Self {
        self.what(What::Refuse(Refusal::failed(status, sentence)))
    }

    pub fn matches(&self, method: &str, path: &str) -> bool {
        let below = path.strip_prefix("/ovirt-engine/api").unwrap_or(path);
        like(&self.method, method) && (like(&self.path, below) || like(&self.path, path))
    }
}

/// Whether a text matches a pattern in which `*` stands for any text.
pub fn like(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(first) else {
        return false;
    };
    let mut ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    ends.any(|at| like(rest, &text[at..]))
}

// Assumed: the pages of a proxy, and of an engine that starts or fails.
pub fn html(status: u16, title: &str) -> Answer {
    Answer::new(
        status,
        "text/html;charset=UTF-8",
        format!("<html><head><title>Error</title></head><body>{title}</body></html>"),
    )
}
