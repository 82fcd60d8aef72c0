//! Asks the user: with arrow keys on a terminal, otherwise line by line.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, IsTerminal};
use std::rc::Rc;

use anyhow::Result;
use inquire::ui::RenderConfig;
use inquire::{Confirm, InquireError, MultiSelect, Select};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustyline::error::ReadlineError;
use serde::{Deserialize, Serialize};

use crate::backend::{Choice, Finding, Verdict};
use crate::commands::init::line::{BACK, Check, Line, wrapped};
use crate::commands::init::survey::Question;
use crate::commands::output::{erase_line, make_way, prompt, tell};
use crate::commands::terminal;
use crate::error::{ErrorKind, OperationError};
use crate::printable::{printable_block, printable_line};
use crate::settings::parse;

/// The user wants to change the previous answer.
#[derive(Debug, thiserror::Error)]
#[error("back to the previous question")]
pub struct Back;

/// What a question was answered with.
enum Said {
    /// `None`: an optional question was not answered.
    Answer(Option<String>),
    Back,
    /// Ctrl-C.
    Interrupted,
    /// The input ended, as after Ctrl-D.
    End,
}

/// How the user is asked, and the answers so far.
pub struct Ask {
    pub how: How,
    answers: RefCell<Answers>,
}

pub enum How {
    Terminal,
    /// Lines of stdin; questions go to stderr.
    Lines,
}

/// The answers of this run, and those that are given again after a step back or in a later run.
#[derive(Default)]
struct Answers {
    given: Vec<Given>,
    again: VecDeque<Given>,
    /// The answer to change.
    withdrawn: Option<Given>,
}

/// The answer to the question for a setting.
#[derive(Clone, Serialize, Deserialize)]
struct Given {
    setting: String,
    answer: Option<String>,
    #[serde(skip)]
    secret: bool,
}

const OTHER: &str = "other";

impl Ask {
    pub fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let how = match io::stdin().is_terminal() && terminal::is_there() && terminal::is_for_errors() && !dumb {
            true => {
                std::thread::spawn(leave_with_the_terminal);
                // The prompt of an answered list does not change, like that of an answered line.
                let look = RenderConfig::default();
                inquire::set_global_render_config(look.with_answered_prompt_prefix(look.prompt_prefix));
                How::Terminal
            }
            false => How::Lines,
        };
        Self {
            how,
            answers: RefCell::default(),
        }
    }

    /// Whether earlier answers are being repeated: what was shown with them is not shown again.
    pub fn repeats(&self) -> bool {
        !self.answers.borrow().again.is_empty()
    }

    /// Withdraws the last answer: the interview begins again, with the answers before it.
    pub fn step_back(&self) {
        let mut answers = self.answers.borrow_mut();
        answers.withdrawn = answers.given.pop().or(answers.withdrawn.take());
        answers.again = std::mem::take(&mut answers.given).into();
    }

    /// The answers as JSON for `give_again`, without secrets; `None` without answers.
    pub fn kept(&self) -> Option<String> {
        let answers = self.answers.borrow();
        let kept: Vec<&Given> = answers.given.iter().filter(|given| !given.secret).collect();
        serde_json::to_string_pretty(&kept).ok().filter(|_| !kept.is_empty())
    }

    /// Gives these answers of an earlier run again; returns how many there are.
    pub fn give_again(&self, kept: &str) -> Option<usize> {
        let kept: VecDeque<Given> = serde_json::from_str(kept).ok()?;
        let count = kept.len();
        self.answers.borrow_mut().again = kept;
        Some(count)
    }

    /// The earlier answer to this question, if it is still valid.
    fn again(&self, question: &Question, check: &Check) -> Option<Given> {
        let mut answers = self.answers.borrow_mut();
        answers
            .again
            .front()
            .filter(|given| given.setting == question.setting)?;
        let given = answers.again.pop_front()?;
        let is_valid = match &given.answer {
            Some(answer) => check(answer).is_none(),
            None => question.optional,
        };
        if !is_valid {
            // The answers after it may depend on it.
            answers.again.clear();
        }
        is_valid.then_some(given)
    }

    /// Shows a finding, unless it was shown before the user went back.
    pub fn tell(&self, finding: &Finding) {
        if self.repeats() {
            return;
        }
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

    /// Asks a question until the answer is valid; `None` if an optional question was not answered. The error is `Back`
    /// if the user wants to change an earlier answer.
    pub fn ask(&self, question: &Question, check: &Check) -> Result<Option<String>> {
        if let Some(given) = self.again(question, check) {
            let answer = given.answer.clone();
            self.answers.borrow_mut().given.push(given);
            return Ok(answer);
        }
        make_way();
        let withdrawn = self.answers.borrow_mut().withdrawn.take();
        let before = withdrawn.filter(|given| given.setting == question.setting && !given.secret);
        let question = &Question {
            // An empty answer must remain possible.
            default: before
                .and_then(|given| given.answer)
                .filter(|_| !question.optional || question.default.is_some())
                .or(question.default.clone()),
            ..question.clone()
        };
        let said = match self.how {
            How::Terminal => on_terminal(question, check),
            How::Lines => by_lines(question, check),
        };
        match said {
            Said::Answer(answer) => {
                // A pull secret may be pasted.
                let is_text = answer
                    .as_ref()
                    .is_some_and(|answer| answer.trim_start().starts_with('{'));
                self.answers.borrow_mut().given.push(Given {
                    setting: question.setting.to_owned(),
                    answer: answer.clone(),
                    secret: question.secret || is_text,
                });
                Ok(answer)
            }
            Said::Back => Err(Back.into()),
            Said::Interrupted => Err(self.ended(question.setting, true).into()),
            Said::End => Err(self.ended(question.setting, false).into()),
        }
    }

    /// The error if the user interrupts the questions, or if there are fewer lines than questions.
    fn ended(&self, at: &str, interrupted: bool) -> OperationError {
        let (why, kind) = match interrupted {
            true => ("interrupted", ErrorKind::Stopped),
            false => ("the input ended", ErrorKind::Usage),
        };
        let error = OperationError::new(kind, format!("{why} at the question `{at}`; no env file was written"));
        match self.how {
            How::Terminal => error,
            How::Lines => error.hint("write one line for each question; an empty line accepts the default"),
        }
    }

    /// Asks for yes or no; an empty answer means `default`.
    pub fn agree(&self, text: &str, default: bool) -> Result<bool, OperationError> {
        let text = &printable_line(text);
        make_way();
        let ended = || self.ended(text, false);
        match self.how {
            How::Terminal => {
                let agreed = Confirm::new(text).with_default(default).prompt();
                agreed.map_err(|error| self.ended(text, !matches!(error, InquireError::IO(_))))
            }
            How::Lines => loop {
                prompt(&format!(
                    "{text} (yes or no) [{}]: ",
                    if default { "yes" } else { "no" }
                ));
                match line().ok_or_else(ended)?.as_str() {
                    "yes" | "y" => return Ok(true),
                    "no" | "n" => return Ok(false),
                    "" => return Ok(default),
                    _ => tell("answer yes or no"),
                }
            },
        }
    }
}

// On a terminal.

/// Ends the program if its terminal is closed without a signal: a prompt would read the end of input forever.
fn leave_with_the_terminal() {
    let stdin = io::stdin();
    loop {
        let mut watched = [PollFd::new(&stdin, PollFlags::empty())];
        match poll(&mut watched, None) {
            Ok(_) if watched[0].revents().contains(PollFlags::HUP) => {
                std::process::exit(ErrorKind::Stopped.exit_code().into())
            }
            Err(Errno::INTR) => {}
            _ => return,
        }
    }
}

/// A choice in a list.
#[derive(Clone)]
struct Row {
    /// `None`: the user types the value.
    value: Option<String>,
    text: String,
}

impl Row {
    fn is_no_match(&self) -> bool {
        self.text == NO_MATCH
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Longer lists are filtered by what is typed. Shorter ones ignore letters, so no control key is mistaken for a letter.
const PAGE: usize = 7;

/// The row of a filtered list while no other one matches.
const NO_MATCH: &str = "(no match; Enter clears the filter)";

fn on_terminal(question: &Question, check: &Check) -> Said {
    if question.secret || question.choices.is_empty() {
        return typed(question, check);
    }
    let help = in_brackets(&question.text);
    let message = format!("{}:", question.setting);
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
        let is_filtered = add_no_match(&mut rows);
        let rank = rank(&rows);
        let mut select = Select::new(&message, rows.clone())
            .with_help_message(&help)
            .with_starting_cursor(at)
            .with_scorer(&rank);
        if !is_filtered {
            select = select.without_filtering();
        }
        let chosen = match select.prompt() {
            Ok(chosen) if chosen.is_no_match() => continue,
            Ok(chosen) => chosen,
            Err(error) => return unanswered(&error),
        };
        let Some(value) = chosen.value else {
            return typed(question, check);
        };
        if value.is_empty() {
            return Said::Answer(None);
        }
        match check(&value) {
            None => return Said::Answer(Some(value)),
            Some(problem) => refuse(&problem),
        }
    }
}

/// The choices, and a last one to type another value.
fn rows(question: &Question) -> Vec<Row> {
    // The width beside the cursor and the check box of a list; a wrapped line would look like a second row.
    let width = terminal::width().map_or(usize::MAX, |columns| columns.saturating_sub(7));
    let texts = lines_of(&question.choices)
        .into_iter()
        .map(|line| line.chars().take(width).collect());
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

/// Adds `NO_MATCH` to a list that is filtered; returns whether it is.
fn add_no_match(rows: &mut Vec<Row>) -> bool {
    let is_filtered = rows.len() > PAGE;
    if is_filtered {
        rows.push(Row {
            value: None,
            text: NO_MATCH.to_owned(),
        });
    }
    is_filtered
}

/// The rank of a row for the typed text: rows that start with it come before rows that only contain it.
fn rank(rows: &[Row]) -> impl Fn(&str, &Row, &str, usize) -> Option<i64> {
    move |typed, row, text, index| {
        let typed = typed.to_lowercase();
        if row.is_no_match() {
            let matches = |row: &Row| !row.is_no_match() && row.text.to_lowercase().contains(&typed);
            return (!rows.iter().any(matches)).then_some(0);
        }
        let text = text.to_lowercase();
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let behind = if text.starts_with(&typed) { 0 } else { 1 << 32 };
        text.contains(&typed).then(|| -behind - index)
    }
}

/// Any number of the choices; with none, the question is not answered.
fn several(question: &Question, check: &Check) -> Said {
    const HELP: &str = "Space selects, Enter confirms.";
    let message = format!("{}:", question.setting);
    let mut rows = rows(question);
    let help = in_brackets(&format!("{} {HELP}", question.text));
    let known = question.default.as_deref().unwrap_or_default();
    let is_chosen = |row: &Row| parse::list(known).any(|item| row.value.as_deref() == Some(item));
    let before: Vec<usize> = (0..rows.len()).filter(|at| is_chosen(&rows[*at])).collect();
    let is_filtered = add_no_match(&mut rows);
    let rank = rank(&rows);
    loop {
        let mut select = MultiSelect::new(&message, rows.clone())
            .with_help_message(&help)
            .with_default(&before)
            .with_scorer(&rank)
            .with_formatter(&|rows| {
                let values = rows.iter().filter_map(|row| row.value.value.as_deref());
                printable_line(&values.collect::<Vec<_>>().join(","))
            });
        if !is_filtered {
            select = select.without_filtering();
        }
        let chosen = match select.prompt() {
            Ok(chosen) if chosen.iter().any(Row::is_no_match) => continue,
            Ok(chosen) => chosen,
            Err(error) => return unanswered(&error),
        };
        let values: Option<Vec<String>> = chosen.into_iter().map(|row| row.value).collect();
        let Some(values) = values else {
            return typed(question, check);
        };
        let value = values.join(",");
        match check(&value).filter(|_| !value.is_empty()) {
            None => return Said::Answer(Some(value).filter(|value| !value.is_empty())),
            Some(problem) => refuse(&problem),
        }
    }
}

fn typed(question: &Question, check: &Check) -> Said {
    let default = question.default.as_deref();
    let line = Line {
        help: printable_line(&question.text),
        check: Rc::clone(check),
        may_be_empty: question.optional || default.is_some(),
        secret: question.secret,
    };
    let shown = default.map(|default| format!(" [{}]", printable_line(default)));
    match line.read(&format!("? {}{}: ", question.setting, shown.unwrap_or_default())) {
        Err(ReadlineError::Interrupted) => Said::Interrupted,
        Err(_) => Said::End,
        Ok(typed) if typed == BACK => Said::Back,
        Ok(typed) if typed.is_empty() => Said::Answer(question.default.clone()),
        Ok(typed) => Said::Answer(Some(typed)),
    }
}

/// The help below a list, which inquire puts in brackets.
fn in_brackets(text: &str) -> String {
    wrapped(&printable_line(text), terminal::width())
        .trim_start()
        .to_owned()
}

/// Escape goes back.
fn unanswered(error: &InquireError) -> Said {
    match error {
        InquireError::OperationCanceled => {
            erase_line();
            Said::Back
        }
        InquireError::OperationInterrupted => Said::Interrupted,
        _ => Said::End,
    }
}

// Line by line.

fn by_lines(question: &Question, check: &Check) -> Said {
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
        let Some(line) = line() else { return Said::End };
        if line == BACK {
            return Said::Back;
        }
        let value = match (line.is_empty(), &question.default) {
            (true, Some(default)) => default.clone(),
            (true, None) if question.optional => return Said::Answer(None),
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
            None => return Said::Answer(Some(value)),
            Some(problem) => refuse(&problem),
        }
    }
}

/// The choice with this number, or the typed text.
fn chosen(choices: &[Choice], typed: &str) -> String {
    let number = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let choice = number.and_then(|index| choices.get(index));
    choice.map_or(typed, |choice| choice.value.as_str()).to_owned()
}

/// Choices in columns, with their warnings.
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

/// The next line, trimmed; `None` at the end of input.
fn line() -> Option<String> {
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    // Input from a pipe is not echoed, and neither is its line break.
    tell("");
    match read {
        Ok(0) | Err(_) => None,
        Ok(_) => Some(line.trim().to_owned()),
    }
}
