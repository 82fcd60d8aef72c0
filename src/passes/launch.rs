//! Machines that go down soon after their start are started again, on another host where the platform chooses one.

use std::collections::BTreeMap;

use anyhow::Result;
use tracing::warn;

use super::{PassError, Run};
use crate::PROGRESS;
use crate::backend::{Backend, Machine, MachineSpec, Power};
use crate::cluster::MachineName;
use crate::harvest::Seen;
use crate::machines::Planned;

/// How often a machine is started in all.
const STARTS: u32 = 3;

/// How often each machine was started, where that was more than once.
#[derive(Default)]
pub(super) struct Launches(BTreeMap<MachineName, u32>);

impl<B: Backend> Run<'_, B> {
    /// Starts those that are off as they were first started: one that never came up still needs its payload.
    pub(super) async fn start_again(
        &self,
        launches: &mut Launches,
        planned: &[Planned],
        machines: &[Machine],
        spec: impl Fn(&Planned) -> Result<MachineSpec>,
    ) -> Result<()> {
        for plan in planned {
            if !machines
                .iter()
                .any(|machine| machine.name == plan.name && machine.power == Power::Off)
            {
                continue;
            }
            let starts = launches.0.entry(plan.name.clone()).or_insert(1);
            if *starts == STARTS {
                let down = vec![(plan.name.clone(), Seen::Down(STARTS))];
                let machines = self.with_consoles(down).await;
                return Err(PassError::Hopeless {
                    pass: plan.pass,
                    machines,
                }
                .into());
            }
            *starts += 1;
            warn!(target: PROGRESS, machine = %plan.name, "went down and is started again, for the {starts}. time of {STARTS}");
            self.backend.create_machine(&spec(plan)?).await?;
        }
        Ok(())
    }
}
