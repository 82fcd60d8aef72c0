//! Confirmation of operations that lose data.

use std::io::{BufRead, IsTerminal};

use anyhow::Result;

use super::output::prompt;
use crate::error::{ErrorKind, OperationError};

/// An operation that requires a confirmation.
pub(super) struct Loss<'a> {
    /// E.g. `destroy lab.example.com`.
    pub operation: &'a str,
    /// What will be lost, with a trailing line break.
    pub text: &'a str,
    /// How to run the command without a prompt.
    pub hint: &'a str,
    /// The message if the user declines.
    pub canceled: &'a str,
    /// The text to type if `yes` does not suffice.
    pub typed: Option<&'a str>,
}

impl Loss<'_> {
    /// Shows what will be lost and prompts; any answer but yes declines.
    pub fn confirm(&self) -> Result<()> {
        let operation = self.operation;
        if !std::io::stdin().is_terminal() {
            let text = format!("cannot prompt for confirmation to {operation}: stdin is not a terminal");
            return Err(OperationError::new(ErrorKind::Usage, text).hint(self.hint).into());
        }
        let text = self.text;
        match self.typed {
            Some(typed) => prompt(&format!("{text}{operation}? Type {typed} to confirm: ")),
            None => prompt(&format!("{text}{operation}? [y/N] ")),
        }
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        match (answer.trim(), self.typed) {
            (answer, Some(typed)) if answer == typed => Ok(()),
            ("y" | "Y" | "yes", None) => Ok(()),
            _ => Err(OperationError::new(ErrorKind::Usage, format!("canceled; {}", self.canceled)).into()),
        }
    }
}
