//! Restarts machines that stop soon after their start, on another host where the platform chooses one.

use std::collections::BTreeMap;

use anyhow::Result;
use tokio::time::Instant;
use tracing::warn;

use super::error::PassError;
use super::run::Run;
use crate::PROGRESS;
use crate::backend::{Machine, MachineSpec, Power};
use crate::cluster::MachineName;
use crate::plan::harvest::Seen;
use crate::plan::machines::Planned;

/// How often each machine was started, and when last.
pub(super) struct Launches {
    begun: Instant,
    starts: BTreeMap<MachineName, (u32, Instant)>,
}

impl Launches {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            starts: BTreeMap::new(),
        }
    }
}

impl Run<'_> {
    /// Starts stopped machines as at their first start: one that never came up still needs its payload.
    pub(super) async fn start_again(
        &self,
        launches: &mut Launches,
        planned: &[Planned],
        machines: &[Machine],
        spec: impl Fn(&Planned) -> Result<MachineSpec>,
    ) -> Result<()> {
        let all = self.config.launch.retries.saturating_add(1);
        for plan in planned {
            if !machines
                .iter()
                .any(|machine| machine.name == plan.name && machine.power == Power::Off)
            {
                continue;
            }
            let (starts, since) = launches.starts.entry(plan.name.clone()).or_insert((1, launches.begun));
            if *starts >= all || since.elapsed() > self.config.launch.limit {
                let down = vec![(plan.name.clone(), Seen::Down(*starts))];
                let machines = self.with_consoles(down).await;
                return Err(PassError::Hopeless {
                    of: self.subject(),
                    pass: plan.pass,
                    machines,
                }
                .into());
            }
            (*starts, *since) = (*starts + 1, Instant::now());
            warn!(target: PROGRESS, "{} stopped and is started again ({starts} of {all})", plan.name);
            self.backend.create_machine(&spec(plan)?).await?;
        }
        Ok(())
    }
}
