//! `ocpdeploy config`: every setting, its value and where it came from.

use std::path::Path;

use anyhow::Result;

use super::output::{print, print_result};
use super::session::{ENV_FILE, Session};
use crate::cli::Config;
use crate::report::settings::Settings;
use crate::settings;

/// All settings with their defaults.
const SAMPLE: &str = include_str!("../../env.sh.sample");

pub fn run(session: &Session, command: &Config) -> Result<()> {
    if command.sample {
        return print(SAMPLE);
    }
    let source = &command.source;
    let settings = match source.env.is_none() && !Path::new(ENV_FILE).exists() {
        // Without an env file, required settings have no value.
        true => Settings::unchecked(settings::resolve(&session.flags(source)?)?),
        false => Settings::from(session.load(source)?),
    };
    print_result(&command.output, &settings, || settings.text())
}
