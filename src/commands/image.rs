//! `ocpdeploy image`.

use anyhow::{Context, Result};

use super::{Session, print, runtime};
use crate::cli::{Format, Image, ImagePayload, ImageVerb};
use crate::installer::Installer;
use crate::report;

pub fn run(session: &Session, command: &Image) -> Result<()> {
    match &command.verb {
        ImageVerb::Payload(command) => payload(session, command),
    }
}

fn payload(session: &Session, command: &ImagePayload) -> Result<()> {
    let config = session.load(&command.source)?.config;
    let installer = Installer::choose(&config)?;
    let folder = tempfile::tempdir().context("make a folder for the pull secret")?;
    let release = runtime()?.block_on(installer.release(&config, folder.path()))?;
    match command.output.output {
        Format::Text => {
            let lines = release.images.values().map(|image| format!("{image}\n"));
            print(&lines.collect::<String>())
        }
        Format::Json => print(&report::json(&release)?),
    }
}
