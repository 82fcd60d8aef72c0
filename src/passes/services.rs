//! The inputs of the services' files on an installed cluster: the release whose images they have, and leased VIPs.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::reserve::HOLD;
use super::run::{Run, leased_vips};
use crate::cluster::AddressAssignment;
use crate::node::services::{self, Release};
use crate::openshift::releases::ClusterRelease;
use crate::state::journal::{Journal, Step};
use crate::state::parameters::Parameters;

/// The journal's entry of the last renewal.
const RENEWED: &str = "renewed-release";

/// The release of the last renewal, and its images.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RenewedRelease {
    pub(super) of: ClusterRelease,
    pub(super) images: Release,
}

impl RenewedRelease {
    /// `None` before the first renewal.
    pub(super) fn read(journal: &Journal) -> Result<Option<Self>> {
        journal.output(RENEWED)
    }

    pub(super) async fn record(self, journal: &Journal) -> Result<()> {
        if Self::read(journal)?.is_some_and(|last| last.of == self.of) {
            return Ok(());
        }
        journal.forget(RENEWED)?;
        let step = Step::new(RENEWED, &self.of)?;
        journal.run(&step, async { Ok(self) }).await?;
        Ok(())
    }
}

/// The inputs of the services' files, besides settings and table.
pub(super) struct Services {
    pub(super) release: Release,
    pub(super) leased: Vec<AddressAssignment>,
}

impl Services {
    pub(super) fn input<'a>(&'a self, run: &'a Run<'_>, table: &'a Parameters) -> services::Input<'a> {
        services::Input {
            config: run.config,
            parameters: table,
            release: &self.release,
            leased: &self.leased,
        }
    }
}

impl Run<'_> {
    /// The inputs of the services, with the release of the last renewal or of the installation.
    pub(super) fn services(&self, table: &Parameters) -> Result<Services> {
        let held = self.journal.output(HOLD)?.unwrap_or_default();
        let release = match RenewedRelease::read(&self.journal)? {
            Some(renewed) => renewed.images,
            None => self.installed_release()?,
        };
        Ok(Services {
            release,
            leased: leased_vips(self.config, table, &held),
        })
    }

    /// The release of the installation.
    pub(super) fn installed_release(&self) -> Result<Release> {
        self.journal.output("release")?.context("the journal has no release")
    }
}
