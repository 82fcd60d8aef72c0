//! Confirmation of operations that lose data.

use std::io::{BufRead, IsTerminal};

use anyhow::Result;

use super::output::prompt;
use crate::cli::Confirmation;
use crate::cluster::ClusterId;
use crate::error::{ErrorKind, OperationError};
use crate::printable::shell_word;

/// An operation that requires a confirmation.
pub(super) struct Loss<'a> {
    /// E.g. `destroy lab.example.com`.
    pub operation: &'a str,
    pub cluster: &'a ClusterId,
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
    /// Unless `--yes` is given, shows what will be lost and prompts; any answer but yes declines.
    pub fn confirm(&self, confirmation: &Confirmation) -> Result<()> {
        if confirmation.yes {
            return Ok(());
        }
        let operation = self.operation;
        if !std::io::stdin().is_terminal() {
            let text = format!("cannot prompt for confirmation to {operation}: stdin is not a terminal");
            return Err(OperationError::new(ErrorKind::Usage, text).hint(self.hint).into());
        }
        let text = format!(
            "cluster {}, id {}\n{}",
            self.cluster,
            self.cluster.deployment(),
            self.text
        );
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

/// The hint with this process's command and `options`, which include `--yes`.
///
/// `--yes` requires CLUSTER: if the command does not name its cluster, `unnamed` is the name. It belongs before `next`,
/// the argument after CLUSTER.
pub(super) fn hint(options: &[&str], unnamed: Option<&str>, next: Option<&str>) -> String {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned()).collect();
    format!(
        "to confirm, run `ocpdeploy {}`",
        completed(words, options, unnamed, next)
    )
}

/// A hint of an operation that also has a preview.
pub(super) fn with_dry_run(hint: &str) -> String {
    format!("{hint}; --dry-run shows what would be removed")
}

fn completed(mut words: Vec<String>, options: &[&str], unnamed: Option<&str>, next: Option<&str>) -> String {
    // All words after `--` are arguments.
    let end = |words: &[String]| words.iter().position(|word| word == "--").unwrap_or(words.len());
    if let Some(cluster) = unnamed {
        let before = next.and_then(|next| words.iter().rposition(|word| word == next));
        let at = before.unwrap_or_else(|| end(&words));
        words.insert(at, cluster.to_owned());
    }
    let at = end(&words);
    words.splice(at..at, options.iter().map(|option| (*option).to_owned()));
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_is_the_same_command_with_the_cluster_and_yes() {
        for (words, unnamed, next, expected) in [
            ("scale lab --workers 1", None, None, "scale lab --workers 1 --yes"),
            ("scale --workers 1", Some("lab"), None, "scale --workers 1 lab --yes"),
            (
                "node replace lab worker-0",
                None,
                Some("worker-0"),
                "node replace lab worker-0 --yes",
            ),
            (
                "--home it's node replace --force worker-0",
                Some("lab"),
                Some("worker-0"),
                r"--home 'it'\''s' node replace --force lab worker-0 --yes",
            ),
            (
                "snapshot delete -- before",
                Some("lab"),
                Some("before"),
                "snapshot delete --yes -- lab before",
            ),
        ] {
            let words = words.split(' ').map(str::to_owned).collect();
            assert_eq!(completed(words, &["--yes"], unnamed, next), expected);
        }
    }
}
