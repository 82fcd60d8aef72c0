//! One progress event, and its text.

use std::fmt::{self, Write as _};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tracing::Level;
use tracing::field::{Field, Visit};

use crate::printable::printable_line;
use crate::report;
use crate::state::durations::about;

/// The fields of one event.
#[derive(Debug, Default, Serialize)]
pub struct Note {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    /// The node that the event is about.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// Something else that is waited for: a file, a cluster operator.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub item: String,
    /// The state of the node or item.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    /// The node or item is no longer waited for in this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// The step's nodes that are complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// The step's nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// How long the step usually takes, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimate: Option<u64>,
    /// What the estimate is based on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub estimate_source: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Other fields of the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub others: String,
}

impl Note {
    fn set(&mut self, field: &Field, text: String) {
        match field.name() {
            "node" => self.node = text,
            "item" => self.item = text,
            "state" => self.state = text,
            "step" => self.step = text,
            "estimate_source" => self.estimate_source = text,
            "message" => self.message = text,
            // Writing to a String cannot fail.
            name => drop(write!(self.others, " {name}={text}")),
        }
    }

    /// The text after the name: the message, otherwise the state.
    pub fn text(&self) -> &str {
        match self.message.is_empty() {
            true => &self.state,
            false => &self.message,
        }
    }

    /// The node or item.
    pub fn subject(&self) -> Option<&str> {
        [&self.node, &self.item]
            .into_iter()
            .map(String::as_str)
            .find(|name| !name.is_empty())
    }

    /// ` (about 12 min, like 3 deployments of 5 nodes)`, or nothing.
    pub fn expected(&self) -> String {
        expected(self.estimate, &self.estimate_source)
    }
}

/// The text of an estimate, to append to a message; empty if there is none.
pub fn expected(seconds: Option<u64>, source: &str) -> String {
    let text = |seconds| format!(" ({}, like {source})", about(Duration::from_secs(seconds)));
    seconds.map(text).unwrap_or_default()
}

/// A line for programs.
#[derive(Serialize)]
struct Line<'a, T> {
    event: &'a str,
    time: Timestamp,
    /// Time since the start of the command.
    seconds: f64,
    level: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

impl Note {
    /// One line of JSON.
    pub fn json(&self, level: Level, elapsed: Duration) -> String {
        let event = match () {
            // It may name a step that is not open.
            () if level != Level::INFO || self.step.is_empty() => "message",
            () if !self.node.is_empty() => "node",
            () if !self.item.is_empty() => "item",
            () => "step",
        };
        line(event, level, elapsed, self)
    }
}

/// One line of JSON with the time of the event.
pub fn line(event: &str, level: Level, elapsed: Duration, content: &impl Serialize) -> String {
    let line = Line {
        event,
        time: Timestamp::now(),
        seconds: (elapsed.as_secs_f64() * 10.0).round() / 10.0,
        level: match level {
            Level::ERROR | Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        },
        content,
    };
    // Texts and numbers can always be serialized.
    report::json_line(&line).unwrap_or_default()
}

impl Visit for Note {
    fn record_u64(&mut self, field: &Field, number: u64) {
        match field.name() {
            "total" => self.total = Some(number),
            "estimate" => self.estimate = Some(number),
            _ => self.set(field, number.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "done" => self.complete = Some(value),
            _ => self.set(field, value.to_string()),
        }
    }

    fn record_i64(&mut self, field: &Field, number: i64) {
        match u64::try_from(number) {
            Ok(number) => self.record_u64(field, number),
            Err(_) => self.set(field, number.to_string()),
        }
    }

    fn record_str(&mut self, field: &Field, text: &str) {
        self.set(field, printable_line(text));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, printable_line(&format!("{value:?}")));
    }
}

/// One event as a line; `None` if it has no text.
pub fn plain(note: &Note) -> Option<String> {
    let name = note.subject().unwrap_or(&note.step);
    let text = note.text();
    (!text.is_empty()).then(|| format!("{name}: {text}{}", note.expected()))
}

/// Below a minute, seconds with tenths; otherwise minutes and seconds.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1}s", time.as_secs_f64()),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s => format!("{}h{:02}m", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_short() {
        for (secs, text) in [(0.04, "0.0s"), (59.94, "59.9s"), (61.0, "1m01s"), (3725.0, "1h02m")] {
            assert_eq!(seconds(Duration::from_secs_f64(secs)), text);
        }
    }
}
