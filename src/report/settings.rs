//! All settings, with their values and origins.

use serde::Serialize;

use crate::printable::printable_line;
use crate::settings::{Loaded, ResolvedValue, Sources};

/// The settings of a deployment. Secrets were masked by `settings`.
#[derive(Debug, Serialize)]
pub struct Settings {
    settings: Vec<ResolvedValue>,
    warnings: Vec<String>,
}

impl From<Loaded> for Settings {
    fn from(loaded: Loaded) -> Self {
        Self {
            settings: loaded.values,
            warnings: loaded.warnings,
        }
    }
}

impl Settings {
    pub fn unchecked(settings: Vec<ResolvedValue>) -> Self {
        Self {
            settings,
            warnings: Vec::new(),
        }
    }

    /// Corrects the origins of recorded settings: line numbers of the recorded copy are not those of the env file, and
    /// the numbers of workers are from the cluster, unless they are among those `given` now.
    pub fn of_record(mut self, sources: &Sources<'_>, given: &[(String, String)]) -> Self {
        let is_given = |name: &str| given.iter().any(|(given, _)| given.as_str() == name);
        let file = sources.env_file.as_ref().map(|(path, _)| path.display().to_string());
        for value in &mut self.settings {
            let is_number = matches!(value.name.as_str(), "workers" | "pools");
            if is_number && value.origin.starts_with("flag ") && !is_given(&value.name) {
                value.origin = "nodes of the cluster".to_owned();
            }
            let of_file = file.as_deref().filter(|file| {
                let rest = value.origin.strip_prefix(file);
                rest.is_some_and(|rest| rest.starts_with(':'))
            });
            if let Some(file) = of_file {
                value.origin = format!("{file} when deployed");
            }
        }
        self
    }

    pub fn text(&self) -> String {
        let rows: Vec<[String; 3]> = std::iter::once(["NAME", "VALUE", "ORIGIN"].map(str::to_owned))
            .chain(self.settings.iter().map(|value| {
                let shown = match value.value.as_str() {
                    "" => "-".to_owned(),
                    text => printable_line(text),
                };
                [value.name.clone(), shown, printable_line(&value.origin)]
            }))
            .collect();
        // A long path may exceed the column; it does not widen it.
        let width = |column: usize, most: usize| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            widths.filter(|width| *width <= most).max().unwrap_or(0)
        };
        let names = width(0, 48);
        let values = width(1, 40);
        rows.iter()
            .map(|[name, value, origin]| format!("{name:names$}  {value:values$}  {origin}\n"))
            .collect()
    }
}
