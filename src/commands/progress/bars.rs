//! Progress lines on a terminal.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::note::Note;
use super::steps::{Ended, Steps};
use crate::commands::terminal;

/// The progress lines on a terminal: each open step, and below it what it waits for.
pub(super) struct Bars {
    all: MultiProgress,
    steps: Arc<Mutex<Steps>>,
    /// The lines, which change with the time; `None` while no step is open.
    shown: Option<ProgressBar>,
}

impl Bars {
    pub(super) fn new() -> Self {
        Self {
            all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr()),
            steps: Arc::default(),
            shown: None,
        }
    }

    pub(super) fn show(&mut self, note: &mut Note) {
        let ended = steps(&self.steps).apply(note, Instant::now());
        self.end(&ended);
        match &self.shown {
            Some(shown) => shown.tick(),
            None => {
                let shown = self.all.add(ProgressBar::no_length());
                shown.set_style(style(self.steps.clone()));
                shown.enable_steady_tick(Duration::from_millis(120));
                self.shown = Some(shown);
            }
        }
    }

    /// Shows a line above the others.
    pub(super) fn line(&self, text: &str) {
        drop(self.all.println(text));
    }

    /// Removes all lines and prints a final line of each open step.
    pub(super) fn clear(&mut self) {
        let ended = steps(&self.steps).end_all(Instant::now());
        if let Some(shown) = self.shown.take() {
            shown.finish_and_clear();
            self.all.remove(&shown);
        }
        self.end(&ended);
        drop(self.all.clear());
    }

    fn end(&self, ended: &[Ended]) {
        ended.iter().for_each(|ended| self.line(&ended.text()));
    }
}

/// Not held while anything is drawn: drawing uses the steps.
fn steps(steps: &Mutex<Steps>) -> MutexGuard<'_, Steps> {
    steps.lock().unwrap_or_else(PoisonError::into_inner)
}

fn style(of: Arc<Mutex<Steps>>) -> ProgressStyle {
    const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
    let lines = move |state: &ProgressState, out: &mut dyn fmt::Write| {
        let at = usize::try_from(state.elapsed().as_millis() / 120).unwrap_or(0) % SPINNER.len();
        let lines = steps(&of).lines(SPINNER[at], Instant::now(), terminal::size_for_errors());
        // Writing to a String cannot fail.
        let _ = out.write_str(&lines.join("\n"));
    };
    // The template is a constant; an invalid one falls back to indicatif's default.
    let style = ProgressStyle::with_template("{lines}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    style.with_key("lines", lines)
}
