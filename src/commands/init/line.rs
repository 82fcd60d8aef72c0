//! One line typed on a terminal, edited with the keys of readline.

use std::borrow::Cow;
use std::rc::Rc;

use rustyline::completion::Completer;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::{Hint, Hinter};
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{ColorMode, Config, Context, Editor, Helper, Result};

use crate::commands::terminal;

/// Typed in place of an answer: back to the previous question.
pub(super) const BACK: &str = "<";

/// Why a value is invalid; `None` if it is valid.
pub type Check = Rc<dyn Fn(&str) -> Option<String>>;

/// How a line is checked and displayed while it is typed.
pub(super) struct Line {
    /// Help line, shown while the input is valid.
    pub help: String,
    pub check: Check,
    pub may_be_empty: bool,
    pub secret: bool,
}

impl Line {
    /// The trimmed line; an error after Ctrl-C, Ctrl-D, or if the terminal was closed.
    pub fn read(self, prompt: &str) -> Result<String> {
        let color = match self.secret {
            // rustyline draws the characters that mask a secret only if colors are enabled.
            true => ColorMode::Forced,
            false => ColorMode::Disabled,
        };
        let config = Config::builder().color_mode(color).build();
        let mut editor = Editor::with_history(config, MemHistory::new())?;
        editor.set_helper(Some(self));
        Ok(editor.readline(prompt)?.trim().to_owned())
    }

    fn problem(&self, line: &str) -> Option<String> {
        match line.trim() {
            "" if self.may_be_empty => None,
            "" => Some("a value is required".to_owned()),
            BACK => None,
            line => (self.check)(line),
        }
    }

    fn beneath(text: &str) -> String {
        format!("\n{}", wrapped(text, terminal::width()))
    }
}

/// Text below the line, which no key inserts into the line.
pub(super) struct Beneath(String);

impl Hint for Beneath {
    fn display(&self) -> &str {
        &self.0
    }

    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Line {
    type Hint = Beneath;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<Beneath> {
        let problem = match line.is_empty() || self.secret {
            true => None,
            false => self.problem(line),
        };
        Some(Beneath(Self::beneath(problem.as_deref().unwrap_or(&self.help))))
    }
}

impl Validator for Line {
    fn validate(&self, context: &mut ValidationContext) -> Result<ValidationResult> {
        Ok(match self.problem(context.input()) {
            None => ValidationResult::Valid(None),
            Some(problem) => ValidationResult::Invalid(Some(Self::beneath(&problem))),
        })
    }
}

impl Highlighter for Line {
    fn highlight<'l>(&self, line: &'l str, _: usize) -> Cow<'l, str> {
        match self.secret {
            true => Cow::Owned("*".repeat(textwrap::core::display_width(line))),
            false => Cow::Borrowed(line),
        }
    }

    fn highlight_char(&self, _: &str, _: usize, kind: CmdKind) -> bool {
        self.secret && kind != CmdKind::MoveCursor
    }
}

impl Completer for Line {
    type Candidate = String;
}

impl Helper for Line {}

/// Wraps text between words, for a terminal with this number of columns.
pub(super) fn wrapped(text: &str, columns: Option<usize>) -> String {
    let options = textwrap::Options::new(columns.unwrap_or(80).saturating_sub(1))
        .initial_indent("  ")
        .subsequent_indent("  ");
    let lines: Vec<_> = text.lines().flat_map(|line| textwrap::wrap(line, &options)).collect();
    lines.join("\n")
}
