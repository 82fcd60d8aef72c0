//! The terminal at stdout: its size, and text that is redrawn in place.

#![expect(clippy::disallowed_methods, reason = "asks whether they are a terminal")]

use std::io::{self, IsTerminal};

use rustix::termios::tcgetwinsize;

use crate::printable::count;

/// Whether stdout is a terminal.
pub fn is_there() -> bool {
    io::stdout().is_terminal()
}

/// Whether stderr is a terminal.
pub fn is_for_errors() -> bool {
    io::stderr().is_terminal()
}

/// Columns and rows; `None` if stdout is not a terminal, or a terminal of unknown size.
pub fn size() -> Option<(usize, usize)> {
    let out = io::stdout();
    let size = tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    let columns = usize::from(size.ws_col);
    let rows = usize::from(size.ws_row);
    (columns > 0 && rows > 1).then_some((columns, rows))
}

/// As `size`, of the terminal at stderr; if unknown, the size of a VT100.
pub fn size_for_errors() -> (usize, usize) {
    let size = tcgetwinsize(io::stderr()).ok();
    let size = size.filter(|size| size.ws_col > 0 && size.ws_row > 1);
    size.map_or((80, 24), |size| (size.ws_col.into(), size.ws_row.into()))
}

/// The maximum width of text; unlimited if stdout is not a terminal.
pub fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// A text that replaces the previously drawn one.
#[derive(Default)]
pub struct Canvas {
    drawn: usize,
    columns: usize,
}

impl Canvas {
    /// The output that replaces the last text on the terminal by this one, cut to the terminal's size.
    pub fn frame(&mut self, text: &str, (columns, rows): (usize, usize)) -> String {
        let mut lines: Vec<String> = text.lines().map(|line| line.chars().take(columns).collect()).collect();
        // The last row is for the cursor.
        if lines.len() >= rows {
            let more = lines.len() - (rows - 2).min(lines.len());
            lines.truncate(rows - 2);
            let more = format!("… {}", count(more, "more line"));
            lines.push(more.chars().take(columns).collect());
        }
        // A terminal of another size has wrapped the old lines differently.
        let mut frame = match self.drawn {
            0 => String::new(),
            _ if self.columns != columns => "\x1b[2J\x1b[H".to_owned(),
            drawn => format!("\x1b[{drawn}A"),
        };
        for line in &lines {
            frame += &format!("\r{line}\x1b[K\n");
        }
        (self.drawn, self.columns) = (lines.len(), columns);
        frame + "\x1b[J"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_replaces_the_last_one_and_never_scrolls() {
        let mut canvas = Canvas::default();
        assert_eq!(canvas.frame("a\nbcdef\n", (4, 24)), "\ra\x1b[K\n\rbcde\x1b[K\n\x1b[J");
        assert_eq!(canvas.frame("c\n", (4, 24)), "\x1b[2A\rc\x1b[K\n\x1b[J");
        let long = "x\n".repeat(30);
        let frame = canvas.frame(&long, (20, 10));
        assert!(frame.starts_with("\x1b[2J\x1b[H"), "the width changed: {frame:?}");
        assert_eq!(frame.matches('\n').count(), 9);
        assert!(frame.contains("… 22 more lines"), "{frame}");
    }
}
