//! Puts questions to a person: with arrow keys on a terminal, by lines everywhere else.

use std::fmt;
use std::io::{self, BufRead, IsTerminal};
use std::rc::Rc;

use inquire::autocompletion::{Autocomplete, Replacement};
use inquire::validator::Validation;
use inquire::{Confirm, CustomUserError, InquireError, MultiSelect, Password, PasswordDisplayMode, Select, Text};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::backend::{Choice, Finding, Verdict};
use crate::commands::init::survey::Question;
use crate::commands::output::{make_way, prompt, tell};
use crate::commands::terminal;
use crate::failure::{CommandError, Kind};
use crate::printable::{printable_block, printable_line};
use crate::settings::parse;

/// Why a value will not do, if it will not.
pub type Check = Rc<dyn Fn(&str) -> Option<String>>;

/// Nobody answers any more.
fn ended(at: &str) -> CommandError {
    CommandError::new(
        Kind::Stopped,
        format!("stdin ended at the question `{at}`; no env file was written"),
    )
    .hint("to start over, run the same command again")
}

/// Whoever is asked.
pub enum Ask {
    Terminal,
    /// Lines of stdin; questions go to stderr.
    Lines,
}

const OTHER: &str = "other";

impl Ask {
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match io::stdin().is_terminal() && terminal::is_for_errors() && !dumb {
            true => {
                std::thread::spawn(leave_with_the_terminal);
                Ask::Terminal
            }
            false => Ask::Lines,
        }
    }

    pub fn tell(&self, finding: &Finding) {
        let word = match finding.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warning",
            Verdict::Fail => "missing",
        };
        tell(&format!("{word}: {}", printable_line(&finding.text)));
        if let Some(hint) = &finding.hint {
            tell(&format!("  hint: {}", printable_line(hint)));
        }
    }

    /// One question until its answer passes; `None` when it was left open and may be.
    pub fn ask(&self, question: &Question, check: &Check) -> Result<Option<String>, CommandError> {
        make_way();
        let answer = match self {
            Ask::Terminal => on_terminal(question, check),
            Ask::Lines => by_lines(question, check),
        };
        answer.ok_or_else(|| ended(question.setting))
    }

    /// Yes or no; nothing is no.
    pub fn agree(&self, text: &str) -> Result<bool, CommandError> {
        let text = &printable_line(text);
        make_way();
        let ended = || ended(text);
        match self {
            Ask::Terminal => Confirm::new(text).with_default(false).prompt().map_err(|_| ended()),
            Ask::Lines => loop {
                prompt(&format!("{text} (yes or no) [no]: "));
                match line().ok_or_else(ended)?.as_str() {
                    "yes" | "y" => return Ok(true),
                    "no" | "n" | "" => return Ok(false),
                    _ => tell("answer yes or no"),
                }
            },
        }
    }
}

// On a terminal.

/// Ends the program when its terminal goes away and no signal tells so: whoever waits for keys would read its end for ever.
fn leave_with_the_terminal() {
    let stdin = io::stdin();
    loop {
        let mut watched = [PollFd::new(&stdin, PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) if watched[0].revents().contains(PollFlags::HUP) => {
                std::process::exit(Kind::Stopped.exit_code().into())
            }
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

/// A choice as it stands in a list.
#[derive(Clone)]
struct Row {
    /// `None`: it is to be typed.
    value: Option<String>,
    text: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn on_terminal(question: &Question, check: &Check) -> Option<Option<String>> {
    let help = printable_line(&question.text);
    let message = format!("{}:", question.setting);
    if question.secret {
        return patiently(|| {
            let check = Rc::clone(check);
            Password::new(&message)
                .with_help_message(&help)
                .with_display_mode(PasswordDisplayMode::Masked)
                .without_confirmation()
                .with_validator(move |text: &str| Ok::<_, CustomUserError>(validation(&check, text, false)))
                .prompt()
        })
        .map(Some);
    }
    if question.choices.is_empty() {
        return typed(question, check);
    }
    if question.many {
        return several(question, check);
    }
    loop {
        let mut rows = rows(question);
        if question.optional && question.default.is_none() {
            let text = "(leave empty)".to_owned();
            let value = Some(String::new());
            rows.insert(rows.len() - usize::from(question.open), Row { value, text });
        }
        let at = rows.iter().position(|row| row.value == question.default).unwrap_or(0);
        let chosen = patiently(|| {
            Select::new(&message, rows.clone())
                .with_help_message(&help)
                .with_starting_cursor(at)
                .with_scorer(&rank)
                .prompt()
        })?;
        let Some(value) = chosen.value else {
            return typed(question, check);
        };
        if value.is_empty() {
            return Some(None);
        }
        match check(&value) {
            None => return Some(Some(value)),
            Some(problem) => refuse(&problem),
        }
    }
}

/// The choices, and last that which lets other be typed.
fn rows(question: &Question) -> Vec<Row> {
    let texts = lines_of(&question.choices).into_iter();
    let row = |(text, choice): (String, &Choice)| Row {
        value: Some(choice.value.clone()),
        text,
    };
    let mut rows: Vec<Row> = texts.zip(&question.choices).map(row).collect();
    if question.open {
        let text = format!("({OTHER})");
        rows.push(Row { value: None, text });
    }
    rows
}

/// Where a row stands when this was typed: one that begins so is before those that only have it somewhere.
fn rank(typed: &str, _: &Row, text: &str, index: usize) -> Option<i64> {
    let (typed, text) = (typed.to_lowercase(), text.to_lowercase());
    let index = i64::try_from(index).unwrap_or(i64::MAX);
    let behind = if text.starts_with(&typed) { 0 } else { 1 << 32 };
    text.contains(&typed).then(|| -behind - index)
}

/// Any number of the choices; none of them leaves it open.
fn several(question: &Question, check: &Check) -> Option<Option<String>> {
    const HELP: &str = "↑↓ to move, space to select, enter to confirm";
    let (message, rows) = (format!("{}:", question.setting), rows(question));
    let known = question.default.as_deref().unwrap_or_default();
    let is_chosen = |row: &Row| parse::list(known).any(|item| row.value.as_deref() == Some(item));
    let before: Vec<usize> = (0..rows.len()).filter(|at| is_chosen(&rows[*at])).collect();
    loop {
        let chosen = patiently(|| {
            MultiSelect::new(&message, rows.clone())
                .with_help_message(&format!("{} [{HELP}]", printable_line(&question.text)))
                .with_default(&before)
                .with_scorer(&rank)
                .with_formatter(&|rows| {
                    let values = rows.iter().filter_map(|row| row.value.value.as_deref());
                    printable_line(&values.collect::<Vec<_>>().join(","))
                })
                .prompt()
        })?;
        let values: Option<Vec<String>> = chosen.into_iter().map(|row| row.value).collect();
        let Some(values) = values else {
            return typed(question, check);
        };
        let value = values.join(",");
        match check(&value).filter(|_| !value.is_empty()) {
            None => return Some(Some(value).filter(|value| !value.is_empty())),
            Some(problem) => refuse(&problem),
        }
    }
}

fn typed(question: &Question, check: &Check) -> Option<Option<String>> {
    let help = printable_line(&question.text);
    let message = format!("{}:", question.setting);
    let optional = question.optional;
    let answer = patiently(|| {
        let mut text = Text::new(&message)
            .with_help_message(&help)
            .with_autocomplete(AsOneTypes(Rc::clone(check)));
        let judge = Rc::clone(check);
        let has_default = question.default.is_some();
        text = text.with_validator(move |text: &str| {
            Ok::<_, CustomUserError>(validation(&judge, text, optional || has_default))
        });
        // It is shown as it is.
        if let Some(default) = question.default.as_ref().filter(|text| printable_line(text) == **text) {
            text = text.with_default(default);
        }
        text.prompt()
    })?;
    Some(Some(answer).filter(|answer| !answer.is_empty()))
}

fn validation(check: &Check, text: &str, may_be_empty: bool) -> Validation {
    match check(text) {
        _ if text.is_empty() && may_be_empty => Validation::Valid,
        _ if text.is_empty() => Validation::Invalid("a value is required".into()),
        Some(problem) => Validation::Invalid(one_line(&problem).into()),
        None => Validation::Valid,
    }
}

fn one_line(text: &str) -> String {
    printable_line(&text.replace('\n', "; "))
}

/// Shows beneath the line, at each key, why what stands there will not do.
#[derive(Clone)]
struct AsOneTypes(Check);

impl Autocomplete for AsOneTypes {
    fn get_suggestions(&mut self, input: &str) -> Result<Vec<String>, CustomUserError> {
        let problem = Some(input)
            .filter(|input| !input.is_empty())
            .and_then(|input| (self.0)(input));
        Ok(problem.map(|problem| one_line(&problem)).into_iter().collect())
    }

    fn get_completion(&mut self, _: &str, _: Option<String>) -> Result<Replacement, CustomUserError> {
        Ok(None)
    }
}

/// Escape asks again, Ctrl-C and the end of input are the end.
fn patiently<T>(ask: impl Fn() -> Result<T, InquireError>) -> Option<T> {
    loop {
        match ask() {
            Ok(answer) => return Some(answer),
            Err(InquireError::OperationCanceled) => {}
            Err(_) => return None,
        }
    }
}

// By lines.

fn by_lines(question: &Question, check: &Check) -> Option<Option<String>> {
    tell(&format!("\n{}", question.text));
    for (index, text) in lines_of(&question.choices).iter().enumerate() {
        tell(&format!("  {:>2}  {text}", index + 1));
    }
    loop {
        let default = match (&question.default, question.optional) {
            (Some(default), _) => format!(" [{}]", printable_line(default)),
            (None, true) => " []".to_owned(),
            (None, false) => String::new(),
        };
        prompt(&format!("{}{default}: ", question.setting));
        let line = line()?;
        let value = match (line.is_empty(), &question.default) {
            (true, Some(default)) => default.clone(),
            (true, None) if question.optional => return Some(None),
            (true, None) => {
                refuse("a value is required");
                continue;
            }
            (false, _) if question.many => {
                let items: Vec<_> = parse::list(&line).map(|item| chosen(&question.choices, item)).collect();
                items.join(",")
            }
            (false, _) => chosen(&question.choices, &line),
        };
        let is_known = question.choices.iter().any(|choice| choice.value == value);
        if !question.open && !question.choices.is_empty() && !is_known {
            refuse(&format!("`{value}` is not one of the choices"));
            continue;
        }
        match check(&value) {
            None => return Some(Some(value)),
            Some(problem) => refuse(&problem),
        }
    }
}

/// The choice of this number, or what was typed.
fn chosen(choices: &[Choice], typed: &str) -> String {
    let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let choice = number.and_then(|index| choices.get(index));
    choice.map_or(typed, |choice| choice.value.as_str()).to_owned()
}

/// Choices in columns, each with what speaks against it.
fn lines_of(choices: &[Choice]) -> Vec<String> {
    let wide = choices
        .iter()
        .map(|choice| choice.value.chars().count())
        .max()
        .unwrap_or(0);
    let line = |choice: &Choice| {
        let mut line = format!("{:wide$}  {}", choice.value, choice.about);
        if let Some(warning) = &choice.warning {
            line = format!("{}  (warning: {warning})", line.trim_end());
        }
        printable_line(line.trim_end())
    };
    choices.iter().map(line).collect()
}

fn refuse(problem: &str) {
    tell(&format!("  {}", printable_block(problem)));
}

/// The next line without blanks around it; `None` at the end.
fn line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    // What was typed is not shown where it comes from a pipe, and neither is the end of its line.
    tell("");
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}
