//! Parses the text of a systemd unit as Ignition does. Source: coreos/go-systemd, `unit/deserialize.go`.
//!
//! It differs from systemd's own parser: text before the first section is skipped, an unclosed bracket swallows lines,
//! and whether a long line is rejected depends on the buffered text. All of that is reproduced, because a config must
//! be rejected here exactly if the machine would reject it.

use std::fmt;

/// The relevant properties of a valid unit.
#[derive(Debug, PartialEq, Eq)]
pub struct UnitText<'t> {
    /// Whether the section `[Install]` has an option.
    pub has_install: bool,
    /// `Where` of a mount or automount unit.
    pub mount_point: Option<&'t str>,
}

/// Why a unit is invalid.
#[derive(Debug, PartialEq, Eq)]
pub struct UnitFault {
    /// Counted from 1.
    line: usize,
    reason: &'static str,
}

impl fmt::Display for UnitFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid unit: line {}: {}", self.line, self.reason)
    }
}

pub fn read(text: &str) -> Result<UnitText<'_>, UnitFault> {
    let mut lexer = Lexer {
        text,
        pos: 0,
        buffered: 0,
        section: "",
        option: "",
        has_install: false,
        mount_point: None,
    };
    let fault = |pos: usize, reason| UnitFault {
        line: 1 + text.as_bytes()[..pos].iter().filter(|byte| **byte == b'\n').count(),
        reason,
    };
    let mut state = State::Outside;
    while state != State::End {
        let start = lexer.pos;
        if lexer.line_is_too_long() {
            return Err(fault(start, "longer than 2048 bytes"));
        }
        state = lexer.step(state).map_err(|reason| fault(start, reason))?;
    }
    Ok(UnitText {
        has_install: lexer.has_install,
        mount_point: lexer.mount_point,
    })
}

/// The longest line that systemd accepts.
const LINE_MAX: usize = 2048;
/// The size of the read buffer.
const BUFFER: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first section.
    Outside,
    CommentOutside,
    SectionName,
    SectionEnd,
    InSection,
    CommentInSection,
    OptionName,
    OptionValue,
    End,
}

struct Lexer<'t> {
    text: &'t str,
    /// The next byte to read.
    pos: usize,
    /// The end of the buffered text.
    buffered: usize,
    section: &'t str,
    option: &'t str,
    has_install: bool,
    mount_point: Option<&'t str>,
}

impl<'t> Lexer<'t> {
    fn step(&mut self, state: State) -> Result<State, &'static str> {
        Ok(match state {
            State::Outside => match self.next() {
                None => State::End,
                Some('[') => State::SectionName,
                Some('#' | ';') => State::CommentOutside,
                Some(_) => state,
            },
            State::CommentOutside => {
                self.skip_comment();
                State::Outside
            }
            State::SectionName => {
                let (name, found) = self.until(b']');
                if !found {
                    return Err("the section's name has no closing `]`");
                }
                self.section = name;
                State::SectionEnd
            }
            State::SectionEnd => match self.line().trim().is_empty() {
                true => State::InSection,
                false => return Err("text after a section's name"),
            },
            State::InSection => match self.next() {
                None => State::End,
                Some('[') => State::SectionName,
                Some('#' | ';') => State::CommentInSection,
                Some(space) if space.is_whitespace() => state,
                Some(other) => {
                    self.pos -= other.len_utf8();
                    State::OptionName
                }
            },
            State::CommentInSection => {
                self.skip_comment();
                State::InSection
            }
            State::OptionName => {
                let start = self.pos;
                loop {
                    match self.next() {
                        None | Some('\n' | '\r') => return Err("option without `=`"),
                        Some('=') => break,
                        Some(_) => {}
                    }
                }
                self.option = self.text[start..self.pos].trim_end_matches('=').trim();
                State::OptionValue
            }
            State::OptionValue => {
                let line = self.line();
                if line.ends_with('\\') {
                    State::OptionValue
                } else {
                    self.has_install |= self.section == "Install";
                    if matches!(self.section, "Mount" | "Automount") && self.option == "Where" {
                        self.mount_point = Some(line.trim());
                    }
                    State::InSection
                }
            }
            State::End => State::End,
        })
    }

    fn line_is_too_long(&self) -> bool {
        let ahead = &self.text.as_bytes()[self.pos..self.buffered];
        ahead
            .get(..LINE_MAX)
            .is_some_and(|line| !line.iter().any(|byte| matches!(byte, b'\n' | b'\r')))
    }

    fn read_ahead(&mut self) {
        self.buffered = self.text.len().min(self.pos + BUFFER);
    }

    fn next(&mut self) -> Option<char> {
        let next = self.text[self.pos..].chars().next()?;
        if self.pos + next.len_utf8() > self.buffered {
            self.read_ahead();
        }
        self.pos += next.len_utf8();
        Some(next)
    }

    /// The text up to a byte, which is skipped, and whether the byte was found.
    fn until(&mut self, end: u8) -> (&'t str, bool) {
        let rest = &self.text[self.pos..];
        let found = rest.bytes().position(|byte| byte == end);
        let stop = self.pos + found.map_or(rest.len(), |length| length + 1);
        while self.buffered < stop {
            // A full buffer is consumed before it is filled again.
            if self.buffered - self.pos >= BUFFER {
                self.pos = self.buffered;
            }
            self.read_ahead();
        }
        self.pos = stop;
        (&rest[..found.unwrap_or(rest.len())], found.is_some())
    }

    /// The rest of the line, without its end.
    fn line(&mut self) -> &'t str {
        let (line, ended) = self.until(b'\n');
        match ended {
            true => line,
            false => line.strip_suffix('\r').unwrap_or(line),
        }
    }

    /// A comment continues after a backslash.
    fn skip_comment(&mut self) {
        loop {
            let line = self.line();
            if !line.strip_suffix(' ').unwrap_or(line).ends_with('\\') {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_rejected_as_by_the_reference() {
        let long = |length| format!("[Service]\nEnvironment={}\n", "x".repeat(length));
        for (text, fault) in [
            ("", None),
            ("no section at all", None),
            ("[Unit]\n", None),
            ("[Unit]\r\nA=b\r\n", None),
            ("[Unit]\n# a comment \\\ngoes on\nA=b", None),
            ("[Unit]\nA=b \\\n  c \\\n\nB=c", None),
            ("[Unit\nDescription=x]\n", None),
            ("[Unit]\nA=\n=b\n", None),
            ("# [Unit\n[Service]\n", None),
            ("[Unit\n", Some((1, "the section's name has no closing `]`"))),
            ("[Unit] x\n", Some((1, "text after a section's name"))),
            ("[Unit]\nA=b\nwords\n", Some((3, "option without `=`"))),
            ("[Unit]\nwords", Some((2, "option without `=`"))),
            (&long(2000), None),
            (&long(2100), Some((2, "longer than 2048 bytes"))),
            // Less than a whole LINE_MAX is buffered after the name: the reference implementation does not check it.
            (&long(2030)[..2050], None),
        ] {
            let fault = fault.map(|(line, reason)| UnitFault { line, reason });
            assert_eq!(read(text).err(), fault, "{text}");
        }
    }

    #[test]
    fn only_an_option_makes_an_install_section() {
        for (text, has_install) in [
            ("[Install]\nWantedBy=a.target\n", true),
            ("[Unit]\nA=b\n[Install]\nAlias=", true),
            ("[Install]\n", false),
            ("[Install]\n#WantedBy=a.target\n", false),
            ("[install]\nWantedBy=a.target\n", false),
            ("[Unit]\nA=[Install]\n", false),
        ] {
            assert_eq!(read(text).unwrap().has_install, has_install, "{text}");
        }
    }

    #[test]
    fn the_mount_point_is_that_of_a_mount_or_automount_section() {
        for (text, expected) in [
            ("[Mount]\nWhat=/dev/vdb\nWhere=/var/a\n", Some("/var/a")),
            ("[Automount]\r\nWhere = /var/a \r\n", Some("/var/a")),
            ("[Unit]\nWhere=/var/a\n", None),
            ("[Mount]\nWhat=Where=/var/a\n", None),
        ] {
            assert_eq!(read(text).unwrap().mount_point, expected, "{text}");
        }
    }
}
