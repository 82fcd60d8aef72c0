//! The env file that contains the answers.

use std::collections::BTreeMap;

use crate::settings::variables::VARIABLES;

const HEAD: &str = "\
# Written by `ocpdeploy init`. You can edit it. It is read without a shell.
# `ocpdeploy config` shows every setting with its value; env.sh.sample explains all settings.
";

/// An answer as it is written to the env file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The setting's name, or `<name>_file` for a secret in its own file.
    pub written: String,
    pub value: String,
    /// Whether it is the default, which is written as a comment.
    pub is_default: bool,
}

/// The text of an env file, and the line of each setting.
pub(super) struct Rendered {
    pub text: String,
    /// Counted from 1.
    pub lines: BTreeMap<&'static str, usize>,
}

/// Writes answers in the order and with the help of the table of settings.
pub(super) fn render(answers: &BTreeMap<&'static str, Answer>) -> Rendered {
    let mut text = HEAD.to_owned();
    let mut lines = BTreeMap::new();
    let mut group = None;
    for variable in VARIABLES {
        let Some(answer) = answers.get(variable.name) else {
            continue;
        };
        if group.replace(variable.group) != Some(variable.group) {
            text += &format!("\n# -- {}\n", variable.group.title);
        }
        text += &format!("\n# {}\n", variable.doc);
        // A comment is one line, so it cannot contain a value with line breaks.
        if answer.is_default && !answer.value.contains('\n') {
            text += &format!("# {}={}\n", answer.written, quoted(&answer.value));
        } else {
            lines.insert(variable.name, text.matches('\n').count() + 1);
            text += &format!("{}={}\n", answer.written, quoted(&answer.value));
        }
    }
    Rendered { text, lines }
}

/// A value in the notation of an env file, which bash and ocpdeploy read alike.
pub fn quoted(value: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:@%+,".contains(&b);
    match value.bytes().all(is_plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}
