//! Writes all output: escaped for a terminal, and never where a progress line would erase it.

#![expect(clippy::disallowed_methods, reason = "all output is written here")]

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{ExitCode, exit};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use serde::Serialize;

use super::progress::aside;
use super::terminal::{self, Canvas};
use crate::cli::{ColorChoice, Format, Global, Output, ProgressStyle};
use crate::error::ErrorKind;
use crate::failure::Failure;
use crate::printable::{printable_line, printable_text};
use crate::report;

/// The options for colors and progress, once the command line is parsed.
static CHOSEN: OnceLock<(ColorChoice, ProgressStyle)> = OnceLock::new();

/// Stores the options that concern all output; once for each process.
pub fn configure(global: &Global) {
    let _ = CHOSEN.set((global.color, global.progress));
}

/// As `configure`, if the command line cannot be parsed: an error for programs is JSON as well.
pub fn configure_unparsed(arguments: impl Iterator<Item = OsString>) {
    let arguments: Vec<_> = arguments.collect();
    let is_json = |pair: &[OsString]| pair[0] == "--progress" && pair[1] == "json";
    if arguments.windows(2).any(is_json) || arguments.iter().any(|argument| argument == "--progress=json") {
        let _ = CHOSEN.set((ColorChoice::Never, ProgressStyle::Json));
    }
}

/// Whether to use colors on an output.
fn colored(is_terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let allowed = || !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    match CHOSEN.get().map(|(color, _)| color) {
        Some(ColorChoice::Always) => true,
        Some(ColorChoice::Never) => false,
        _ => is_terminal && allowed(),
    }
}

/// Writes clap's help or version to stdout. The exit code says whether it was written.
pub fn print_help(help: &clap::Error) -> ExitCode {
    let written = help.print().and_then(|()| io::stdout().flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            fail(&Failure::without_hint(
                ErrorKind::Tool,
                &format!("write the result: {error}"),
            ));
            ExitCode::from(ErrorKind::Tool.exit_code())
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Writes text for people to stdout.
pub(super) fn print(text: &str) -> Result<()> {
    write_out(printable_text(text).as_bytes())
}

/// Writes a result to stdout in the chosen format: `text` for people, the document for programs.
pub(super) fn print_result(output: &Output, document: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    print(&match output.format {
        // The text is escaped before it is colored.
        Format::Text if colored(terminal::is_there()) => {
            return write_out(highlight(&printable_text(&text())).as_bytes());
        }
        Format::Text => text(),
        // It contains no control characters, so `print` does not change it.
        Format::Json => report::json(document)?,
        Format::Yaml => report::yaml(document)?,
    })
}

/// Colors the cells of tables that contain a state.
fn highlight(text: &str) -> String {
    let paint = |cell: &str| {
        let code = match cell {
            "ok" | "yes" | "running" | "installed" | "complete" => "32",
            "warn" | "off" | "stopped" | "installing" => "33",
            "FAIL" | "no" | "missing" | "failed" | "interrupted" | "broken" => "31",
            _ => return cell.to_owned(),
        };
        format!("\x1b[{code}m{cell}\x1b[0m")
    };
    let line = |line: &str| line.split("  ").map(paint).collect::<Vec<_>>().join("  ");
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Writes a file's content to stdout: unchanged to a file or program, escaped to a terminal.
pub(super) fn print_file(content: &[u8]) -> Result<()> {
    match terminal::is_there() {
        true => print(&String::from_utf8_lossy(content)),
        false => write_out(content),
    }
}

/// Draws on the terminal at stdout, replacing the previous drawing.
pub(super) fn draw(canvas: &mut Canvas, text: &str, size: (usize, usize)) -> Result<()> {
    write_out(canvas.frame(&printable_text(text), size).as_bytes())
}

/// Writes console output unfiltered: only here may a guest control the terminal.
pub(super) fn pass_on(screen: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(screen).and_then(|()| out.flush())
}

/// Writes lines for people to stderr. Errors are ignored, for example if stderr is closed.
pub fn tell(text: &str) {
    prompt(&format!("{text}\n"));
}

/// An error as the last line of progress for programs.
#[derive(Serialize)]
struct ErrorLine<'a> {
    event: &'static str,
    #[serde(flatten)]
    failure: &'a Failure,
}

/// Writes a line to stderr on a terminal in raw mode, where a new line requires an explicit carriage return.
pub(super) fn tell_raw(line: &str) {
    aside(|| write_err(&format!("{}\r\n", printable_line(line))));
}

/// Writes a question to stderr; the answer is typed on the same line.
pub(super) fn prompt(text: &str) {
    aside(|| write_err(&printable_text(text)));
}

/// Erases the line above the cursor: a question that will be repeated.
pub(super) fn erase_line() {
    aside(|| write_err("\x1b[1A\r\x1b[K"));
}

/// Removes progress lines from the terminal, before other code draws on it.
pub(super) fn make_way() {
    aside(|| ());
}

/// Reports why the program fails.
pub fn fail(failure: &Failure) {
    let text = match CHOSEN.get() {
        Some((_, ProgressStyle::Json)) => {
            let line = ErrorLine {
                event: "error",
                failure,
            };
            report::json_line(&line).unwrap_or_default()
        }
        // `render` escapes the text before it adds colors.
        _ => failure.render(colored(terminal::is_for_errors())),
    };
    aside(|| write_err(&text));
}

/// Ends the program immediately, with a last line that nothing erases.
pub(super) fn end(kind: ErrorKind, text: &str) -> ! {
    let text = match CHOSEN.get() {
        Some((_, ProgressStyle::Json)) => {
            let failure = &Failure::without_hint(kind, text);
            let line = ErrorLine {
                event: "error",
                failure,
            };
            report::json_line(&line).unwrap_or_default()
        }
        _ => printable_text(&format!("{text}\n")),
    };
    aside(|| {
        write_err(&text);
        exit(kind.exit_code().into())
    })
}

fn write_err(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Writes to stdout. A closed pipe is not an error: a reader such as `head` has enough.
fn write_out(bytes: &[u8]) -> Result<()> {
    aside(|| {
        let mut out = io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written.context("write the result"),
        }
    })
}
