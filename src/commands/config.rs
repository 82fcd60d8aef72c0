//! `ocpdeploy config`: every setting, its value and where it came from.

use anyhow::Result;

use super::output::print;
use super::session::Session;
use crate::cli::{Config, Format};
use crate::printable::{printable_json, printable_line};
use crate::settings::Loaded;

pub fn run(session: &Session, command: &Config) -> Result<()> {
    let loaded = session.load(&command.source)?;
    print(&render(&loaded, command.output.output == Format::Json))
}

/// The text or JSON of all settings, ending in a line end. Secrets were masked by `settings`.
pub fn render(loaded: &Loaded, json: bool) -> String {
    if json {
        let document = serde_json::json!({ "settings": loaded.values, "warnings": loaded.warnings });
        return printable_json(&format!("{document:#}\n"));
    }
    let rows: Vec<[String; 3]> = std::iter::once(["NAME", "VALUE", "ORIGIN"].map(str::to_owned))
        .chain(loaded.values.iter().map(|value| {
            let shown = match value.value.as_str() {
                "" => "-".to_owned(),
                text => printable_line(text),
            };
            [value.name.clone(), shown, printable_line(&value.origin)]
        }))
        .collect();
    // A long path may stand out; it does not push the whole column away.
    let width = |column: usize, most: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.filter(|width| *width <= most).max().unwrap_or(0)
    };
    let (names, values) = (width(0, 48), width(1, 40));
    rows.iter()
        .map(|[name, value, origin]| format!("{name:names$}  {value:values$}  {origin}\n"))
        .collect()
}
