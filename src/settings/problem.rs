//! Problems in the settings, displayed at their places, without secrets.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};

use super::variables;

/// All problems of the settings; nothing was created.
#[derive(Debug)]
pub struct SettingsError {
    /// In the order in which they were found; at least one.
    pub problems: Vec<Problem>,
}

impl std::error::Error for SettingsError {}

/// All problems with their places, one block each. Blocks after the first begin with `error:`; the caller adds it to
/// the first one, as to any other error.
impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let block = problem.rendered.as_str();
            match index {
                0 => f.write_str(block.strip_prefix("error: ").unwrap_or(block))?,
                _ => write!(f, "\n\n{block}")?,
            }
        }
        Ok(())
    }
}

/// One problem.
#[derive(Debug)]
pub struct Problem {
    pub message: String,
    /// Where, e.g. `env.sh:3` or `flag --workers`.
    pub places: Vec<String>,
    pub help: Option<String>,
    /// Only credentials are missing, and the configuration has a placeholder in their place.
    pub(super) has_placeholder: bool,
    rendered: String,
}

/// The origin of a value or a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Bytes of the env file.
    EnvFile(Range<usize>),
    /// Bytes of a file that the settings name, with its path as shown, and its text.
    File(String, Rc<str>, Range<usize>),
    /// A description of a place without text to display.
    Named(String),
}

/// Collects the problems of an env file and the other sources.
pub(super) struct Problems<'a> {
    /// Path as the user wrote it, and text.
    env_file: Option<(String, &'a str)>,
    hidden: Hidden,
    found: Vec<Problem>,
}

impl<'a> Problems<'a> {
    pub fn new(env_file: Option<(String, &'a str)>) -> Self {
        let hidden = Hidden::new(env_file.as_ref().map_or("", |(_, text)| *text));
        Self {
            env_file,
            hidden,
            found: Vec::new(),
        }
    }

    pub fn into_error(self) -> SettingsError {
        SettingsError { problems: self.found }
    }

    pub fn into_found(self) -> Vec<Problem> {
        self.found
    }

    /// Adds a problem; the caret points to the first place.
    pub fn add(&mut self, message: impl Into<String>, places: &[Place], help: Option<String>) {
        let message = message.into();
        let places_in_words: Vec<String> = places.iter().map(|place| self.in_words(place)).collect();
        // A value that is read twice is reported once.
        if self
            .found
            .iter()
            .any(|known| known.message == message && known.places == places_in_words)
        {
            return;
        }
        let rendered = self.render(&message, places, help.as_deref());
        self.found.push(Problem {
            message,
            places: places_in_words,
            help,
            has_placeholder: false,
            rendered,
        });
    }

    /// The last problem was solved by a placeholder.
    pub fn replaced(&mut self) {
        if let Some(last) = self.found.last_mut() {
            last.has_placeholder = true;
        }
    }

    /// A place for one line of text: `env.sh:12`, `flag --workers`, `default`.
    pub fn in_words(&self, place: &Place) -> String {
        match (place, &self.env_file) {
            (Place::EnvFile(span), Some((path, text))) => {
                format!("{path}:{}", line(text, span.start))
            }
            (Place::EnvFile(_), None) => "env file".to_owned(),
            (Place::File(path, text, span), _) => format!("{path}:{}", line(text, span.start)),
            (Place::Named(name), _) => name.clone(),
        }
    }

    fn render(&self, message: &str, places: &[Place], help: Option<&str>) -> String {
        let mut group = Level::ERROR.primary_title(message).elements(Vec::<Origin<'_>>::new());
        let spans: Vec<_> = places
            .iter()
            .filter_map(|place| match place {
                Place::EnvFile(span) => Some(self.hidden.span(span)),
                Place::File(..) | Place::Named(_) => None,
            })
            .collect();
        for place in places {
            if let Place::File(path, text, span) = place {
                let annotation = AnnotationKind::Primary.span(span.clone());
                group = group.element(Snippet::source(&**text).path(path).annotation(annotation));
            }
        }
        if let (Some((path, _)), Some((first, others))) = (&self.env_file, spans.split_first()) {
            let snippet = Snippet::source(&self.hidden.text)
                .path(path)
                .annotation(AnnotationKind::Primary.span(first.clone()))
                .annotations(others.iter().map(|span| AnnotationKind::Context.span(span.clone())));
            group = group.element(snippet);
        }
        for place in places {
            if let Place::Named(name) = place {
                group = group.element(Origin::path(name));
            }
        }
        if let Some(help) = help {
            group = group.element(Level::HELP.message(help));
        }
        Renderer::plain().render(&[group])
    }
}

fn line(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// An env file's text without its secrets.
struct Hidden {
    text: String,
    /// Ranges of the original that were replaced by `***`.
    ranges: Vec<Range<usize>>,
}

const MASK: &str = "***";

impl Hidden {
    /// Removes everything that may be part of a secret, even from a file with syntax errors: what follows `secret=` on
    /// its line, and the next lines up to an assignment.
    fn new(text: &str) -> Self {
        let mut ranges = Vec::new();
        let mut in_secret = false;
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let content = line.trim_end_matches('\n');
            if let Some(value) = secret_value(content) {
                in_secret = true;
                ranges.push(start + value..start + content.len());
            } else if is_assignment(content) {
                in_secret = false;
            } else if in_secret {
                ranges.push(start..start + content.len());
            }
            if !in_secret && let Some(password) = password_in_uri(content) {
                ranges.push(start + password.start..start + password.end);
            }
            start += line.len();
        }
        ranges.retain(|range| !range.is_empty());
        let mut masked = String::new();
        let mut copied = 0;
        for range in &ranges {
            masked.push_str(&text[copied..range.start]);
            masked.push_str(MASK);
            copied = range.end;
        }
        masked.push_str(&text[copied..]);
        Self { text: masked, ranges }
    }

    /// The position of an original span in the displayed text.
    fn span(&self, original: &Range<usize>) -> Range<usize> {
        let start = self.offset(original.start, true);
        start..self.offset(original.end, false).max(start)
    }

    fn offset(&self, at: usize, is_start: bool) -> usize {
        let mut removed = 0isize;
        for range in &self.ranges {
            if range.end <= at {
                removed += range.len() as isize - MASK.len() as isize;
            } else if range.start < at || (range.start == at && is_start) {
                let edge = if is_start {
                    range.start
                } else {
                    range.start + MASK.len()
                };
                return edge.saturating_add_signed(-removed);
            }
        }
        at.saturating_add_signed(-removed)
    }
}

/// Whether a line begins with an assignment; with blanks before the `=`, only one of a setting.
fn is_assignment(line: &str) -> bool {
    let line = line.trim_start();
    let line = line
        .strip_prefix("export")
        .filter(|rest| rest.starts_with([' ', '\t']))
        .unwrap_or(line);
    line.trim_start().split_once('=').is_some_and(|(name, _)| {
        let is_name = name.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric());
        let is_name = is_name && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit());
        is_name || variables::find(name.trim_end()).is_some()
    })
}

/// The start of the first secret's value on a line, in any notation.
fn secret_value(line: &str) -> Option<usize> {
    let in_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let mut rest = line;
    while let Some(start) = rest.find(in_word) {
        let end = rest[start..]
            .find(|c| !in_word(c))
            .map_or(rest.len(), |length| start + length);
        let (word, after) = (&rest[start..end], &rest[end..]);
        if !word.ends_with("_file") && variables::find(word).is_some_and(|variable| variable.is_secret()) {
            return Some(line.len() - after.trim_start_matches([' ', '\t', '=', ':']).len());
        }
        rest = after;
    }
    None
}

/// The password in a `scheme://user:password@host` on a line, if there is one.
fn password_in_uri(line: &str) -> Option<Range<usize>> {
    let user = line.find("://")? + "://".len();
    let end = line.rfind('@').filter(|at| *at > user)?;
    let colon = line[user..end].find(':')?;
    Some(user + colon + 1..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "c2VjcmV0";

    #[test]
    fn a_secret_is_hidden_in_any_notation() {
        for text in [
            format!("pull_secret={SECRET}"),
            format!("export pullsecret='{{{SECRET}}}' # {SECRET}"),
            format!("cluster=lab pull_secret={SECRET}"),
            format!("cluster=\"lab\npull_secret='{SECRET}'"),
            format!("pull_secret='{{\n \"auths\": {SECRET}\n}}'\ncluster=lab"),
            format!("pull_secret = {SECRET}"),
            format!("pull_secret: {SECRET}"),
            format!("pull_secret=\n{SECRET}"),
            format!("libvirt_uri=qemu+tcp://root:{SECRET}@host/system"),
            format!("workrs=http://:{SECRET}/@{SECRET}@host/"),
        ] {
            let hidden = Hidden::new(&text);
            assert!(!hidden.text.contains(SECRET), "{text:?} is shown as {:?}", hidden.text);
        }
    }

    #[test]
    fn a_setting_after_a_secret_is_shown() {
        for line in ["workers = 3", "workers=3", "  export workers =3", "_mine=3"] {
            let hidden = Hidden::new(&format!("pull_secret={SECRET}\n{line}\n"));
            assert_eq!(hidden.text, format!("pull_secret=***\n{line}\n"));
        }
    }

    #[test]
    fn spans_move_with_the_text() {
        let text = format!("pull_secret={SECRET}{SECRET}\ncluster=lab\n");
        let hidden = Hidden::new(&text);
        assert_eq!(hidden.text, "pull_secret=***\ncluster=lab\n");
        let lab = text.find("lab").unwrap();
        assert_eq!(&hidden.text[hidden.span(&(lab..lab + 3))], "lab");
        let secret = text.find(SECRET).unwrap();
        assert_eq!(&hidden.text[hidden.span(&(secret..secret + 16))], "***");
        assert_eq!(&hidden.text[hidden.span(&(secret + 2..secret + 4))], "***");
        assert_eq!(&hidden.text[hidden.span(&(0..11))], "pull_secret");
    }
}
