//! An error of an operation: its text, its kind, and what the user can do about it.

use std::error::Error;

/// What kind of failure an error is; each kind has one exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line names something that does not exist.
    Usage,
    /// Env file, profile, catalog, or another given file.
    Settings,
    /// A tool, a local file, or a check before the start.
    Tool,
    /// The platform rejected a request.
    Platform,
    /// A wait timed out.
    Waited,
    /// A signal ended the command.
    Stopped,
    /// Another process has the lock of the cluster.
    Locked,
    /// An internal error.
    Bug,
}

impl ErrorKind {
    /// In the order of their exit codes.
    pub const ALL: [Self; 8] = [
        Self::Usage,
        Self::Settings,
        Self::Tool,
        Self::Platform,
        Self::Waited,
        Self::Stopped,
        Self::Locked,
        Self::Bug,
    ];

    /// What the exit code means, for the reference.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Usage => "Usage error: the command line is invalid, or it names an object that does not exist.",
            Self::Settings => "Invalid input: the env file, a profile, or another file is invalid.",
            Self::Tool => "A tool or local file is missing or failed, or a check before the start failed.",
            Self::Platform => "The platform rejected a request, or it cannot be reached.",
            Self::Waited => "Timeout.",
            Self::Stopped => {
                "A signal ended the command, such as that of Ctrl-C. To resume, run the same command again."
            }
            Self::Locked => "Another process works on the cluster. Run the command again when it has ended.",
            Self::Bug => "Internal error of ocpdeploy. Report it with the output.",
        }
    }

    pub fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Settings => 3,
            Self::Tool => 4,
            Self::Platform => 5,
            Self::Waited => 6,
            Self::Stopped => 7,
            Self::Locked => 8,
            Self::Bug => 70,
        }
    }
}

/// Why an operation failed, for the user. Where code decides by the cause, the error is an enum of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct OperationError {
    pub kind: ErrorKind,
    pub text: String,
    /// What the user can do about it, as a command where there is one.
    pub hints: Vec<String>,
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl OperationError {
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            hints: Vec::new(),
            source: None,
        }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    pub fn source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }
}
