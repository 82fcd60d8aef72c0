//! Restarts machines that stop, on another host where the platform chooses one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::time::Duration;

use anyhow::Result;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::images::Handles;
use super::power;
use super::run::Run;
use crate::PROGRESS;
use crate::backend::{Machine, MachineSpec};
use crate::backoff::Backoff;
use crate::cluster::MachineName;
use crate::plan::harvest::Seen;
use crate::plan::machines::Planned;

/// The first and the longest pause between two queries for stopped machines, while a command waits for a cluster. Most
/// machines that stop do so soon after their start.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// How often each machine was started, and when last; the first start counts from the first query.
#[derive(Default)]
pub(super) struct Launches(BTreeMap<MachineName, (u32, Instant)>);

impl Run<'_> {
    /// The maximum number of starts of a machine.
    fn all_starts(&self) -> u32 {
        self.config.launch.retries.saturating_add(1)
    }

    /// Starts stopped machines as at their first start: one that never came up still needs its payload.
    pub(super) async fn start_again(
        &self,
        launches: &mut Launches,
        planned: &[Planned],
        machines: &[Machine],
        spec: impl Fn(&Planned) -> Result<MachineSpec>,
    ) -> Result<()> {
        let all = self.all_starts();
        for plan in planned {
            let launched = launches.0.entry(plan.name.clone());
            let (starts, since) = launched.or_insert_with(|| (1, Instant::now()));
            if !is_stopped(plan, machines) {
                continue;
            }
            if *starts >= all || since.elapsed() > self.config.launch.limit {
                let down = vec![(plan.name.clone(), Seen::Down(*starts))];
                let machines = self.with_consoles(down).await;
                return Err(self.subject().hopeless(plan.pass, &machines).into());
            }
            (*starts, *since) = (*starts + 1, Instant::now());
            self.restart(plan, *starts, spec(plan)).await?;
        }
        Ok(())
    }

    /// Starts a stopped machine again; `starts` includes this start.
    async fn restart(&self, plan: &Planned, starts: u32, spec: Result<MachineSpec>) -> Result<()> {
        let all = self.all_starts();
        warn!(target: PROGRESS, "{} stopped and is started again ({starts} of {all})", plan.name);
        self.backend.create_machine(&spec?).await?;
        Ok(())
    }

    /// Waits, and meanwhile restarts these machines if they stop: the wait for a cluster does not notice a machine that
    /// is off. A machine may never have come up although its address is known, for example that of an OpenStack port.
    pub(super) async fn while_running<T>(
        &self,
        planned: &[Planned],
        images: &Handles,
        wait: Pin<Box<impl Future<Output = T>>>,
    ) -> T {
        // Boxed like the wait: both are large, and parts of an even larger future.
        tokio::select! {
            waited = wait => waited,
            never = Box::pin(self.keep_running(planned, images)) => match never {},
        }
    }

    /// An error only delays the next query: the wait for the cluster decides success or failure.
    async fn keep_running(&self, planned: &[Planned], images: &Handles) -> Infallible {
        let all = self.all_starts();
        let mut starts: BTreeMap<&MachineName, u32> = BTreeMap::new();
        let mut backoff = Backoff::doubling(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            tokio::time::sleep(backoff.pause(None)).await;
            let machines = match self.backend.list_machines(&self.config.id()).await {
                Ok(machines) => machines,
                Err(error) => {
                    debug!("cannot look for stopped machines: {error}");
                    continue;
                }
            };
            for plan in planned.iter().filter(|plan| is_stopped(plan, &machines)) {
                let name = &plan.name;
                let starts = starts.entry(name).or_insert(1);
                if *starts > all {
                    continue;
                }
                *starts += 1;
                // Limit reached: warn once.
                if *starts > all {
                    warn!(target: PROGRESS, "{name} stopped and is not started again: check its console, then start it on the platform");
                } else if let Err(error) = self.restart(plan, *starts, self.node_spec(plan, images)).await {
                    warn!(target: PROGRESS, "{name}: {error:#}");
                }
            }
        }
    }
}

fn is_stopped(plan: &Planned, machines: &[Machine]) -> bool {
    let mut machines = machines.iter();
    machines.any(|machine| machine.name == plan.name && power::is_off(machine))
}
