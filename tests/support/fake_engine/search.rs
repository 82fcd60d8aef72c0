//! The engine's search language, as far as clients of virtual machines need it.
//!
//! `name="a" and tag=b or status=down`. Values compare as LIKE does: `*` is any text, and letters'
//! case does not count unless the request says `case_sensitive=true` (oVirt/ovirt-engine: ParametersHelper, searchbackend).

use std::collections::BTreeMap;

use super::faults::{Outcome, Refusal, like};

/// The searchable fields of an entity; a field may have several values.
pub type Fields = Vec<(&'static str, String)>;

/// Filters and cuts a collection by the request's `search`, `max` and `case_sensitive`.
pub fn select<T>(
    all: Vec<T>,
    query: &BTreeMap<String, String>,
    known: &[&str],
    fields: impl Fn(&T) -> Fields,
) -> Outcome<Vec<T>> {
    let text = query.get("search").map_or("", String::as_str);
    let case_sensitive = query.get("case_sensitive").is_some_and(|value| value == "true");
    let any = parse(text, known)?;
    let max = match query.get("max") {
        Some(max) => Some(
            max.parse::<usize>()
                .map_err(|_| Refusal::failed(400, "max is no number"))?,
        ),
        None => None,
    };
    let mut found: Vec<T> = all
        .into_iter()
        .filter(|entity| {
            let fields = fields(entity);
            let holds = |term: &Term| term.holds(&fields, case_sensitive);
            any.is_empty() || any.iter().any(|every| every.iter().all(holds))
        })
        .collect();
    found.truncate(max.unwrap_or(usize::MAX));
    Ok(found)
}

#[derive(Debug)]
struct Term {
    key: String,
    is_not: bool,
    value: String,
}

impl Term {
    fn holds(&self, fields: &Fields, case_sensitive: bool) -> bool {
        let fits = |text: &str| match case_sensitive {
            true => like(&self.value, text),
            false => like(&self.value.to_lowercase(), &text.to_lowercase()),
        };
        fields.iter().any(|(name, text)| *name == self.key && fits(text)) != self.is_not
    }
}

/// One of these, in which each term holds.
fn parse(text: &str, known: &[&str]) -> Outcome<Vec<Vec<Term>>> {
    // Assumed: the text that rejects a search.
    let wrong = || Refusal::failed(400, format!("Invalid search expression: {text}"));
    if text.contains(['\'', ';']) {
        return Err(wrong());
    }
    let (mut any, mut every) = (Vec::new(), Vec::new());
    for word in words(text).ok_or_else(wrong)? {
        match word.to_lowercase().as_str() {
            "and" if !every.is_empty() => {}
            "or" if !every.is_empty() => any.push(std::mem::take(&mut every)),
            _ => {
                let (key, value) = word.split_once('=').ok_or_else(wrong)?;
                let (key, is_not) = key.strip_suffix('!').map_or((key, false), |key| (key, true));
                let key = key.trim().to_lowercase();
                if !known.contains(&key.as_str()) || value.is_empty() {
                    return Err(wrong());
                }
                every.push(Term {
                    key,
                    is_not,
                    value: value.to_owned(),
                });
            }
        }
    }
    if !every.is_empty() {
        any.push(every);
    }
    Ok(any)
}

/// Words at spaces; quotes keep some together and are dropped, and a `*` within them is refused.
fn words(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for character in text.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            '*' if is_quoted => return None,
            ' ' if !is_quoted => words.extend((!word.is_empty()).then(|| std::mem::take(&mut word))),
            character => word.push(character),
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    (!is_quoted).then_some(words)
}
