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

    /// The settings that a cluster was deployed with. The lines of their copy are not those of the env file.
    pub fn of_record(mut self, sources: &Sources<'_>) -> Self {
        let file = sources.env_file.as_ref().map(|(path, _)| path.display().to_string());
        for value in &mut self.settings {
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
