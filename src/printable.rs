//! Makes external text safe to display: it cannot move the cursor, use the clipboard, change direction or forge a line.
//!
//! Names, messages and consoles come from platforms, guests, mirrors and files. All output passes through this module:
//! in `commands/output.rs` and `commands/progress`, and line by line where one line is required (tables, causes,
//! hints). Escapes are shown, as kubectl shows them (kubernetes/kubernetes:
//! staging/src/k8s.io/cli-runtime/pkg/printers/terminal.go), and not removed: an unusual name remains recognizable.

use std::fmt::Display;
use std::path::Path;

/// Longest displayed line in characters: a response of megabytes must not push everything else off the screen.
const LONGEST: usize = 8192;

/// Deceptive characters: controls (C0, DEL, C1), those that change the direction of text, and all others without a glyph.
/// Spaces and combining marks are visible.
fn is_hidden(c: char) -> bool {
    match c {
        '\u{2028}' | '\u{2029}' => true,
        c if c.is_ascii() || c.is_control() => c.is_control(),
        c if c.is_whitespace() => false,
        c => is_blank(c) || !is_printable(c),
    }
}

/// Whether a character is blank although its general category is that of letters, marks or symbols.
///
/// The first two lines are the rest of `Default_Ignorable_Code_Point` (unicode.org: `DerivedCoreProperties.txt`). The
/// last line has an empty glyph: the Braille pattern without dots, two fillers of hieroglyphs and a notehead.
fn is_blank(c: char) -> bool {
    matches!(c,
        '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{ffa0}' | '\u{e0100}'..='\u{e01ef}'
        | '\u{2800}' | '\u{13441}'..='\u{13442}' | '\u{1d159}')
}

/// Whether Unicode's general category has a glyph, by the tables of the standard library: `Debug` escapes format, private
/// and unassigned characters, and spaces (rust-lang/rust: `library/core/src/unicode/printable.py`). It also escapes a
/// combining mark, but only where it is the first character.
fn is_printable(c: char) -> bool {
    let mut bytes = [b'x'; 5];
    let end = 1 + c.encode_utf8(&mut bytes[1..]).len();
    std::str::from_utf8(&bytes[..end]).is_ok_and(|text| text.escape_debug().nth(2).is_none())
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) && !stays(c) {
            true => safe.extend(c.escape_default()),
            false => safe.push(c),
        }
    }
    safe
}

/// Text as one line: new lines and tabs are shown as escapes, and very long text is cut.
pub fn printable_line(text: &str) -> String {
    match text.char_indices().nth(LONGEST) {
        None => escaped(text, |_| false),
        Some((end, _)) => {
            let more = text[end..].chars().count();
            format!("{}… ({more} more characters)", escaped(&text[..end], |_| false))
        }
    }
}

/// A word of a command that is shown for pasting into a shell.
pub fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:@%+=".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A path as a word of a command.
pub fn shell_path(path: &Path) -> String {
    shell_word(&path.to_string_lossy())
}

/// Text of several lines: new lines and tabs are kept.
///
/// Use [`printable_line`] for external text within a line of this program.
pub fn printable_text(text: &str) -> String {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// Text of several lines that cannot be mistaken for other lines: those after the first are indented.
pub fn printable_block(text: &str) -> String {
    let mut lines = text.trim_end().lines().map(printable_line);
    let mut block = lines.next().unwrap_or_default();
    for line in lines {
        let indent = if line.is_empty() || line.starts_with(' ') {
            ""
        } else {
            "  "
        };
        block += &format!("\n{indent}{line}");
    }
    block
}

/// A guest's console as text: colors and similar sequences, which boot messages use often, are removed.
pub fn printable_console(text: &str) -> String {
    let line = |line: &str| printable_text(&without_formatting(line.trim_end_matches('\r')));
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// JSON without hidden characters; serde escapes only C0.
///
/// Only strings contain such characters, and there the escape has the same meaning.
pub fn printable_json(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match is_hidden(c) && c != '\n' {
            true => {
                let mut units = [0; 2];
                let units = c.encode_utf16(&mut units);
                safe.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => safe.push(c),
        }
    }
    safe
}

/// A number of things: `1 CPU`, `4 addresses`. The noun is that of one thing.
pub fn count<T: Display + PartialEq + From<u8>>(number: T, noun: &str) -> String {
    if number == T::from(1) {
        return format!("{number} {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) => format!("{number} {stem}ies"),
        None if noun.ends_with('s') => format!("{number} {noun}es"),
        None => format!("{number} {noun}s"),
    }
}

/// A line without its CSI sequences (ECMA-48, 5.4: ESC, `[`, parameters, one final byte).
fn without_formatting(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("\u{1b}[") {
        let (before, sequence) = rest.split_at(at);
        text += before;
        let body = &sequence[2..];
        let end = body.find(|c: char| !(' '..='?').contains(&c));
        match end.and_then(|end| body[end..].chars().next().map(|last| (end, last))) {
            Some((end, '@'..='~')) => rest = &body[end + 1..],
            // Incomplete, so it is shown.
            _ => {
                text += &sequence[..2];
                rest = body;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOSTILE: &str = "a\u{1b}]52;c;cm0=\u{7}b\u{9b}2Jc\u{202e}d\u{7f}\r\ne\tf\u{e0041}g\u{200b}";

    #[test]
    fn escapes_are_shown() {
        insta::assert_snapshot!(printable_line(HOSTILE), @r"a\u{1b}]52;c;cm0=\u{7}b\u{9b}2Jc\u{202e}d\u{7f}\r\ne\tf\u{e0041}g\u{200b}");
        assert_eq!(printable_line("Grüße, ✓ 日本"), "Grüße, ✓ 日本");
        assert_eq!(printable_text("a\r\n\tb\u{1b}"), "a\\r\n\tb\\u{1b}");
        assert_eq!(
            printable_block("cause\nhint: rm -rf\n  indented\n\nerror: x\n"),
            "cause\n  hint: rm -rf\n  indented\n\n  error: x"
        );
        let long = printable_line(&"x".repeat(LONGEST + 3));
        assert!(long.ends_with("x… (3 more characters)"), "{}", &long[LONGEST..]);
    }

    #[test]
    fn invisible_characters_are_escaped_and_visible_ones_are_not() {
        // One of each range and category: soft hyphen, joiner, fillers, selectors, private, unassigned.
        for c in "\u{ad}\u{34f}\u{115f}\u{17b4}\u{180b}\u{180e}\u{200d}\u{2065}\u{2800}\u{3164}\u{e000}\u{fe0f}\u{ffa0}\
                  \u{fff9}\u{fffe}\u{13441}\u{1d159}\u{1d173}\u{e0100}\u{e01ef}\u{10ffff}"
            .chars()
        {
            let expected = format!("a\\u{{{:x}}}b", u32::from(c));
            assert_eq!(printable_line(&format!("a{c}b")), expected);
        }
        for text in [
            "e\u{301}",
            "हिन्दी",
            "한글",
            "« à »",
            "a\u{a0}b\u{202f}c\u{3000}d",
            "العربية",
            "😀 ✓ … 日本",
        ] {
            assert_eq!(printable_line(text), text);
        }
    }

    #[test]
    fn nouns_follow_their_number() {
        for (text, expected) in [
            (count(0usize, "machine"), "0 machines"),
            (count(1u32, "CPU"), "1 CPU"),
            (count(4u32, "CPU"), "4 CPUs"),
            (count(1u64, "address"), "1 address"),
            (count(2u64, "free address"), "2 free addresses"),
            (count(3usize, "entry"), "3 entries"),
        ] {
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn a_console_is_its_text_without_colours() {
        for (console, shown) in [
            (
                "[\u{1b}[0;32m  OK  \u{1b}[0m] Started sshd.\r\r\nlogin: ",
                "[  OK  ] Started sshd.\nlogin: ",
            ),
            ("\u{1b}[2J\u{1b}[1;1Ha\tb", "a\tb"),
            // Incomplete, or not formatting.
            (
                "\u{1b}[\u{1b}[0mx \u{1b}]0;title\u{7} \u{1b}[3",
                "\\u{1b}[x \\u{1b}]0;title\\u{7} \\u{1b}[3",
            ),
            ("\u{1b}[é", "\\u{1b}[é"),
        ] {
            assert_eq!(printable_console(console), shown, "{console:?}");
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ HOSTILE: [HOSTILE, 1] });
        let json = printable_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!json.chars().any(|c| is_hidden(c) && c != '\n'), "{json:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }

    proptest! {
        #[test]
        fn no_hidden_character_is_left(text in any::<String>(), hostile in "[\u{0}-\u{2f}\u{5b}-\u{5d}\u{7f}-\u{9f}\u{200b}-\u{206f}]{0,40}") {
            for text in [text, hostile] {
                prop_assert!(!printable_line(&text).chars().any(is_hidden));
                for shown in [printable_text(&text), printable_console(&text), printable_block(&text)] {
                    prop_assert!(!shown.chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'));
                }
                let block = printable_block(&text);
                prop_assert!(block.lines().skip(1).all(|line| line.is_empty() || line.starts_with(' ')));
                // Safe text is unchanged.
                prop_assert_eq!(printable_text(&printable_text(&text)), printable_text(&text));
            }
        }

        /// The classes are those of the crate `regex-syntax`, made from Unicode's own files.
        #[test]
        fn no_ignorable_character_is_left(text in "[\\p{Cf}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}]{0,80}") {
            let shown = printable_line(&text);
            prop_assert!(shown.is_ascii(), "{:?} of {:?}", shown, text);
        }
    }
}
