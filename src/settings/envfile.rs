//! Parses `env.sh`: assignments that bash can source, parsed without a shell.
//!
//! Supports `name=value`, `export`, quotes, `$x`, `${x}`, `${x:-default}`, `~/` and comments; anything else is an
//! error with its position. Accepted files have the same meaning in bash, as `tests/it/env_file.rs` verifies.
//! Limits on files, values and nesting bound memory, stack and time.
//!
//! All errors of a file are reported together. After an error, parsing continues at the next line that looks like an
//! assignment: the lines before it belong to the same mistake, such as a pull secret without quotes.

use std::collections::BTreeSet;
use std::ops::Range;

use super::variables;

/// Maximum size of an env file, in bytes; a file with every setting and a pull secret has 30 KiB.
pub const MOST_BYTES: usize = 256 << 10;

/// Maximum size of a value with its variables expanded; a pull secret of many registries has 20 KiB.
const MOST_OF_VALUE: usize = 64 << 10;

/// Maximum number of assignments in a file; there are about a hundred settings.
const MOST_ASSIGNMENTS: usize = 1_000;

/// Maximum number of reported errors of a file.
const MOST_ERRORS: usize = 20;

/// Maximum nesting of `${a:-${b:-c}}`.
const DEEPEST: usize = 16;

/// One `name=value` of an env file. Spans are byte ranges of the file's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    pub name: String,
    /// With quotes removed and variables expanded.
    pub value: String,
    pub name_span: Range<usize>,
    /// As written; empty if nothing follows the `=`.
    pub value_span: Range<usize>,
}

/// A syntax error in an env file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SyntaxError {
    pub span: Range<usize>,
    /// Never repeats text of the file, which may be a secret.
    pub message: String,
    pub help: &'static str,
}

/// Parses all assignments, in order; `environment` returns the variables that the file did not set.
///
/// If parsing fails, returns at least one error, in order.
pub fn parse(text: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Assignment>, Vec<SyntaxError>> {
    let mut parser = Parser {
        text,
        at: 0,
        depth: 0,
        assignments: Vec::new(),
        environment,
        errors: Vec::new(),
        not_understood: BTreeSet::new(),
        name: String::new(),
        open_quote: None,
        swallows: None,
    };
    parser.file();
    match parser.errors.is_empty() {
        true => Ok(parser.assignments),
        false => Err(parser.errors),
    }
}

/// Variables that a shell sets itself, so that their values would differ from ours.
const SHELLS_OWN: [&str; 21] = [
    "_",
    "COLUMNS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HOSTNAME",
    "HOSTTYPE",
    "IFS",
    "LINENO",
    "LINES",
    "MACHTYPE",
    "OPTIND",
    "OSTYPE",
    "PPID",
    "RANDOM",
    "SECONDS",
    "SRANDOM",
    "UID",
];

const WINDOWS: &str = "this file has Windows line endings; convert it with `dos2unix`";

struct Parser<'a> {
    text: &'a str,
    at: usize,
    /// The current nesting of defaults.
    depth: usize,
    assignments: Vec<Assignment>,
    environment: &'a dyn Fn(&str) -> Option<String>,
    errors: Vec<SyntaxError>,
    /// Variables whose assignment had an error: using them is not reported as a second error.
    not_understood: BTreeSet<String>,
    /// The name in the current assignment.
    name: String,
    /// The start of the open quote.
    open_quote: Option<usize>,
    /// The first quote of this assignment that contains an assignment: if an error follows, this quote is not closed.
    swallows: Option<usize>,
}

/// The context of a word, which determines how it ends and what it may contain.
#[derive(Clone, Copy, PartialEq)]
enum Word {
    /// After `name=`.
    Value,
    /// After `export name=`, where bash expands braces.
    Exported,
    /// After `${name:-`.
    Default,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Rejects the text from `from` up to and including the next character.
    fn refuse<T>(&self, from: usize, message: impl Into<String>, help: &'static str) -> Result<T, SyntaxError> {
        let end = match self.peek() {
            Some('\n') | None => self.at,
            Some(c) => self.at + c.len_utf8(),
        };
        Err(SyntaxError {
            span: from..end,
            message: message.into(),
            help,
        })
    }

    fn file(&mut self) {
        if self.text.len() > MOST_BYTES {
            self.errors.push(SyntaxError {
                span: 0..self.peek().map_or(0, char::len_utf8),
                message: "this file is larger than 256 KiB".to_owned(),
                help: "an env file contains only `name=value` lines",
            });
            return;
        }
        let mut after_error = false;
        while self.at < self.text.len() && self.errors.len() < MOST_ERRORS {
            let line = self.rest_of_line().trim_start_matches([' ', '\t']);
            let is_blank = line.is_empty() || line.starts_with('#');
            if is_blank || after_error && !is_assignment_perhaps(line) {
                after_error &= !is_blank;
                self.at += self.rest_of_line().len() + 1;
                continue;
            }
            (self.depth, self.open_quote, self.swallows) = (0, None, None);
            if self.assignments.len() == MOST_ASSIGNMENTS {
                self.errors.push(SyntaxError {
                    span: self.at..self.at + self.rest_of_line().len(),
                    message: "this file has more than 1000 assignments".to_owned(),
                    help: "remove those that are not used",
                });
                return;
            }
            after_error = match self.line() {
                Ok(()) => false,
                Err(error) => {
                    self.recover(error);
                    true
                }
            };
        }
    }

    /// Reports an error and continues at the next line that looks like an assignment.
    fn recover(&mut self, error: SyntaxError) {
        let open = self.open_quote.take();
        let missing_end = self
            .swallows
            .take()
            .or(open.filter(|open| self.has_assignment_in(*open)));
        let error = match missing_end {
            Some(quote) => {
                self.at = quote;
                unclosed(quote)
            }
            None => {
                if open == Some(error.span.start) {
                    self.at = error.span.start;
                }
                error
            }
        };
        self.not_understood.insert(std::mem::take(&mut self.name));
        // A file from Windows has the same error on every line; one message is enough.
        if error.help != WINDOWS || self.errors.iter().all(|known| known.help != WINDOWS) {
            self.errors.push(error);
        }
        self.at += self.rest_of_line().len() + 1;
    }

    /// Whether the quoted text so far, after its first line, has a line that looks like an assignment.
    fn has_assignment_in(&self, quote: usize) -> bool {
        let quoted = &self.text[quote..self.at];
        quoted
            .split('\n')
            .skip(1)
            .any(|line| name_at_begin(line).is_some_and(|(_, rest)| rest.starts_with('=')))
    }

    /// Marks the open quote as closed.
    fn close_quote(&mut self) {
        if let Some(open) = self.open_quote.take()
            && self.swallows.is_none()
            && self.has_assignment_in(open)
        {
            self.swallows = Some(open);
        }
    }

    fn rest_of_line(&self) -> &str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        &rest[..rest.find('\n').unwrap_or(rest.len())]
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
    }

    /// Parses an assignment and the rest of its line.
    fn line(&mut self) -> Result<(), SyntaxError> {
        self.skip_blanks();
        self.assignment()?;
        self.skip_blanks();
        match self.peek() {
            None => {}
            Some('\n') => self.at += 1,
            Some('#') => self.at += self.rest_of_line().len() + 1,
            Some(_) => {
                return self.refuse(
                    self.at,
                    "a line can have only one assignment",
                    "move this to its own line, or quote the value before it",
                );
            }
        }
        Ok(())
    }

    fn assignment(&mut self) -> Result<(), SyntaxError> {
        let exported = self.rest().starts_with("export ") || self.rest().starts_with("export\t");
        if exported {
            self.at += "export".len();
            self.skip_blanks();
        }
        let from = self.at;
        let name = self.name();
        self.name.clone_from(&name);
        let name_span = from..self.at;
        if name.is_empty() || self.peek() != Some('=') {
            return self.not_an_assignment(from, exported && !name.is_empty());
        }
        self.at += 1;
        let from = self.at;
        let value = self.word(if exported { Word::Exported } else { Word::Value })?;
        self.assignments.push(Assignment {
            name,
            value,
            name_span,
            value_span: from..self.at,
        });
        Ok(())
    }

    fn not_an_assignment<T>(&self, from: usize, exported_name: bool) -> Result<T, SyntaxError> {
        let word = self.text[from..].split([' ', '\t', '\n']).next().unwrap_or_default();
        let rest_of_line = self.rest().lines().next().unwrap_or_default();
        let help = if exported_name && word.len() == self.at - from {
            "write `export name=value`"
        } else if rest_of_line.trim_start().starts_with('=') {
            "write `name=value` without a space before the `=`"
        } else if rest_of_line.starts_with("+=") {
            "write the complete value with `=`"
        } else if rest_of_line.contains('\r') && word.trim_end_matches('\r').is_empty() {
            WINDOWS
        } else {
            "an env file contains only `name=value` lines; commands are never run"
        };
        Err(SyntaxError {
            span: from..from + word.len(),
            message: "this is not an assignment".to_owned(),
            help,
        })
    }

    /// Reads a variable's name; empty if there is none.
    fn name(&mut self) -> String {
        let from = self.at;
        while let Some(c) = self.peek() {
            if c != '_' && !c.is_ascii_alphabetic() && (self.at == from || !c.is_ascii_digit()) {
                break;
            }
            self.at += 1;
        }
        self.text[from..self.at].to_owned()
    }

    fn word(&mut self, word: Word) -> Result<String, SyntaxError> {
        let start = self.at;
        let in_default = word == Word::Default;
        let mut value = String::new();
        loop {
            let at = self.at;
            self.check_length(&value, start)?;
            let Some(c) = self.peek() else {
                if in_default {
                    return self.refuse(start, "`${` is not closed", "add the missing `}`");
                }
                return Ok(value);
            };
            match c {
                ' ' | '\t' | '\n' if !in_default => return Ok(value),
                '}' if in_default => return Ok(value),
                '\n' if in_default => {
                    return self.refuse(start, "`${` is not closed on its line", "add the missing `}`");
                }
                '$' => self.expansion(&mut value)?,
                '`' => return self.command_substitution(at),
                '(' | ')' => {
                    return self.refuse(
                        at,
                        format!("`{c}` is shell syntax"),
                        "commands are never run and arrays are not supported; write a list as `name=a,b`",
                    );
                }
                '|' | '&' | ';' | '<' | '>' => {
                    return self.refuse(
                        at,
                        format!("`{c}` is shell syntax"),
                        "commands are never run; quote the value if this is part of it",
                    );
                }
                '{' if word == Word::Exported => {
                    return self.refuse(at, "bash may expand this `{`", "put the value in quotes");
                }
                '\'' | '"' | '\\' | '*' | '?' | '[' | '{' if in_default => {
                    return self.refuse(
                        at,
                        format!("`{c}` is not supported in a default"),
                        "use plain text as the default",
                    );
                }
                '\'' => {
                    self.at += 1;
                    self.open_quote = Some(at);
                    let Some(length) = self.rest().find('\'') else {
                        self.at = self.text.len();
                        return Err(unclosed(at));
                    };
                    let quoted = &self.text[self.at..self.at + length];
                    if let Some(offset) = quoted.find(is_control) {
                        self.at += offset;
                        return self.control_character();
                    }
                    value.push_str(quoted);
                    self.at += length + 1;
                    self.close_quote();
                }
                '"' => {
                    self.at += 1;
                    self.open_quote = Some(at);
                    self.double_quoted(at, &mut value)?;
                    self.close_quote();
                }
                '\\' => {
                    self.at += 1;
                    match self.next() {
                        Some('\n') | None => {
                            self.at = at;
                            return self.refuse(at, "a line cannot be continued", "put the value on one line");
                        }
                        Some(c) if is_control(c) => {
                            self.at -= c.len_utf8();
                            return self.control_character();
                        }
                        Some(c) => value.push(c),
                    }
                }
                '~' if at == start && !in_default => {
                    self.at += 1;
                    if !matches!(self.peek(), None | Some('/' | ' ' | '\t' | '\n')) {
                        self.at = at;
                        return self.refuse(at, "`~user` is not supported", "write the full path");
                    }
                    let home = self.value_of("HOME", at)?;
                    value.push_str(&home);
                }
                '~' => return self.refuse(at, "bash may expand this `~`", "quote it, or write the full path"),
                c if is_control(c) => return self.control_character(),
                c => {
                    value.push(c);
                    self.next();
                }
            }
        }
    }

    /// Rejects a value that is too long: variables can make it a thousand times longer.
    fn check_length(&self, value: &str, from: usize) -> Result<(), SyntaxError> {
        match value.len() > MOST_OF_VALUE {
            true => Err(SyntaxError {
                span: from..self.at,
                message: "this value is longer than 64 KiB".to_owned(),
                help: "put the value in a file and set its path, or use fewer variables in it",
            }),
            false => Ok(()),
        }
    }

    fn double_quoted(&mut self, open: usize, value: &mut String) -> Result<(), SyntaxError> {
        loop {
            let at = self.at;
            self.check_length(value, open)?;
            match self.peek() {
                None => return Err(unclosed(open)),
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => {
                    self.at += 1;
                    match self.peek() {
                        Some('\n') => {
                            self.at = at;
                            return self.refuse(at, "a line cannot be continued", "put the value on one line");
                        }
                        Some(c @ ('$' | '`' | '"' | '\\')) => {
                            value.push(c);
                            self.at += 1;
                        }
                        // Before any other character, the backslash is literal.
                        _ => value.push('\\'),
                    }
                }
                Some('$') => self.expansion(value)?,
                Some('`') => return self.command_substitution(at),
                Some(c) if is_control(c) => return self.control_character(),
                Some(c) => {
                    value.push(c);
                    self.next();
                }
            }
        }
    }

    /// Reads what begins with `$`.
    fn expansion(&mut self, value: &mut String) -> Result<(), SyntaxError> {
        const ONLY: &str = "use `$name`, `${name}` or `${name:-default}`";
        let at = self.at;
        self.at += 1;
        match self.peek() {
            Some('(') => self.command_substitution(at),
            Some('{') => {
                self.at += 1;
                let name = self.name();
                if name.is_empty() {
                    return self.refuse(at, "this expansion is not supported", ONLY);
                }
                if self.rest().starts_with(":-") {
                    self.check_not_shells_own(&name, at)?;
                    let known = self.known(&name).filter(|known| !known.is_empty());
                    self.at += 2;
                    if self.depth == DEEPEST {
                        return self.refuse(
                            at,
                            "defaults are nested too deeply",
                            "use fewer nested `${name:-default}`",
                        );
                    }
                    self.depth += 1;
                    let default = self.word(Word::Default)?;
                    self.depth -= 1;
                    self.at += 1;
                    value.push_str(&known.unwrap_or(default));
                    return Ok(());
                }
                if self.peek() != Some('}') {
                    return self.refuse(at, "this expansion is not supported", ONLY);
                }
                self.at += 1;
                value.push_str(&self.value_of(&name, at)?);
                Ok(())
            }
            Some(c) if c == '_' || c.is_ascii_alphabetic() => {
                let name = self.name();
                value.push_str(&self.value_of(&name, at)?);
                Ok(())
            }
            _ => {
                self.at = at;
                self.refuse(at, "a bare `$` is not supported", "write `\\$` for a dollar sign")
            }
        }
    }

    fn command_substitution<T>(&self, from: usize) -> Result<T, SyntaxError> {
        self.refuse(
            from,
            "command substitution is not supported",
            "write the value itself, or set it in the environment",
        )
    }

    fn control_character<T>(&self) -> Result<T, SyntaxError> {
        if self.peek() == Some('\r') {
            return self.refuse(self.at, "a value cannot contain a carriage return", WINDOWS);
        }
        self.refuse(self.at, "a value cannot contain a control character", "remove it")
    }

    fn known(&self, name: &str) -> Option<String> {
        let assigned = self.assignments.iter().rev().find(|assignment| assignment.name == name);
        assigned
            .map(|assignment| assignment.value.clone())
            .or_else(|| (self.environment)(name))
            .or_else(|| self.not_understood.contains(name).then(String::new))
    }

    /// The value of a variable that must be set; its expansion starts at `from`.
    fn value_of(&mut self, name: &str, from: usize) -> Result<String, SyntaxError> {
        self.check_not_shells_own(name, from)?;
        Ok(self.known(name).unwrap_or_else(|| {
            // The rest of the line can be parsed without the value.
            self.errors.push(SyntaxError {
                span: from..self.at,
                message: format!("`{name}` is not set"),
                help: "set it above this line, or write `${name:-default}`",
            });
            self.not_understood.insert(name.to_owned());
            String::new()
        }))
    }

    fn check_not_shells_own(&self, name: &str, from: usize) -> Result<(), SyntaxError> {
        if !SHELLS_OWN.contains(&name) && !name.starts_with("BASH") {
            return Ok(());
        }
        Err(SyntaxError {
            span: from..self.at,
            message: format!("`{name}` is a variable of the shell itself"),
            help: "write the value itself",
        })
    }
}

fn unclosed(quote: usize) -> SyntaxError {
    SyntaxError {
        span: quote..quote + 1,
        message: "this quote is not closed".to_owned(),
        help: "close the quote",
    }
}

/// The variable's name at the start of a line, and the rest of the line.
fn name_at_begin(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start_matches([' ', '\t']);
    let line = line
        .strip_prefix("export")
        .filter(|rest| rest.starts_with([' ', '\t']))
        .map_or(line, |rest| rest.trim_start_matches([' ', '\t']));
    let end = line
        .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
        .unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some((name, rest))
}

/// Whether a line looks like an assignment: `a=1`, `a = 1`, `a+=1`, `cluster: lab`.
fn is_assignment_perhaps(line: &str) -> bool {
    name_at_begin(line).is_some_and(|(name, rest)| {
        let rest = rest.trim_start_matches([' ', '\t']);
        rest.starts_with('=') || rest.starts_with("+=") || variables::find(name).is_some()
    })
}

/// Line ends and tabs are text. Bash drops some of the other control characters and keeps the rest.
fn is_control(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\n' | '\t')
}
