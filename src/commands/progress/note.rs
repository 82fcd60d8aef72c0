//! One progress event, and its text.

use std::fmt::{self, Write as _};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tracing::Level;
use tracing::field::{Field, Visit};

use crate::printable::printable_line;
use crate::report;

/// The fields of one event.
#[derive(Debug, Default, Serialize)]
pub struct Note {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub step: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// This machine has completed its step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub machine_done: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Other fields of the event.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub others: String,
}

impl Note {
    fn set(&mut self, field: &Field, text: String) {
        match field.name() {
            "machine" => self.machine = text,
            "state" => self.state = text,
            "step" => self.step = text,
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
}

/// A note for programs, with its time.
#[derive(Serialize)]
struct Line<'a> {
    time: Timestamp,
    /// Time since the start of the command.
    seconds: f64,
    level: &'static str,
    #[serde(flatten)]
    note: &'a Note,
}

impl Note {
    /// One line of JSON.
    pub fn json(&self, level: Level, elapsed: Duration) -> String {
        let line = Line {
            time: Timestamp::now(),
            seconds: (elapsed.as_secs_f64() * 10.0).round() / 10.0,
            level: match level {
                Level::ERROR | Level::WARN => "warning",
                Level::INFO => "info",
                _ => "debug",
            },
            note: self,
        };
        // Texts and numbers can always be serialized.
        report::json_line(&line).unwrap_or_default()
    }
}

impl Visit for Note {
    fn record_u64(&mut self, field: &Field, number: u64) {
        match field.name() {
            "done" => self.done = Some(number),
            "total" => self.total = Some(number),
            _ => self.set(field, number.to_string()),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "done" => self.machine_done = value,
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

/// One event as a line.
pub fn plain(note: &Note) -> String {
    let name = match note.machine.is_empty() {
        true => &note.step,
        false => &note.machine,
    };
    let mut line = match (name.is_empty(), note.text().is_empty()) {
        (true, _) => note.text().to_owned(),
        (false, true) => name.clone(),
        (false, false) => format!("{name}: {}", note.text()),
    };
    if let (Some(done), Some(total)) = (note.done, note.total) {
        line += &format!(" ({done} of {total})");
    }
    line
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
