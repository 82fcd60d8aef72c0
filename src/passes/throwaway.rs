//! The throwaway machines of pass one: their creation, their addresses, and their deletion.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tracing::info;

use super::destroy::delete_machines;
use super::guest_addresses::GuestAddresses;
use super::images::Handles;
use super::launch::Launches;
use super::reserve::{leases_step, vips_step};
use super::run::Run;
use crate::PROGRESS;
use crate::backend::{BackendErrorKind, Machine, MachineSpec, Owned};
use crate::cluster::{AddressAssignment, Evidence, MachineName, NodeName, Pass, Role, Vip};
use crate::error::{ErrorKind, OperationError};
use crate::node::cloud_init;
use crate::node::services::Release;
use crate::plan::egress;
use crate::plan::harvest::{BOOTING, Watch};
use crate::plan::machines::{self, MacTable, Planned, VipSource};
use crate::printable::count;
use crate::state::durations::Phase;
use crate::state::journal::Step;

/// Time between two reads of a machine's serial console.
const CONSOLE: Duration = Duration::from_millis(700);

/// How long a machine may take to report that it reaches the image registries.
const EGRESS: Duration = Duration::from_secs(30);

/// Time between two queries whether the network of machines without an address still exists.
const NETWORK: Duration = Duration::from_secs(10);

/// The step that creates the machines.
fn create_step(workflow: &str, planned: &[Planned], images: &Handles) -> Result<Step> {
    Step::new(format!("{workflow}/create"), &(planned, images))
}

impl Run<'_> {
    /// Compares the inputs of `boot_and_look` with those of earlier runs.
    pub(super) async fn judge_boot(&self, workflow: &str, macs: &MacTable) -> Result<()> {
        let images = self.judge_harvest_images(workflow).await?;
        let planned = self.throwaway_machines(macs);
        self.journal.judge(&leases_step(workflow, &planned)?)?;
        let vips = machines::unleased_vips(self.config, macs, &planned);
        self.journal.judge(&vips_step(&vips)?)?;
        if let Some(images) = images {
            self.journal.judge(&create_step(workflow, &planned, &images)?)?;
        }
        Ok(())
    }

    /// The machines of pass one.
    fn throwaway_machines(&self, macs: &MacTable) -> Vec<Planned> {
        machines::pass_one(self.config, macs, self.vip_source())
    }

    pub(super) fn vip_source(&self) -> VipSource {
        VipSource::of(self.config, &self.backend.capabilities(Role::Master), Some(self.facts))
    }

    /// Boots throwaway machines and waits until each has shown one stable address; the steps' names begin with
    /// `workflow`.
    pub(super) async fn boot_and_look(&self, workflow: &str, macs: &MacTable) -> Result<Vec<AddressAssignment>> {
        let images = self.harvest_images(workflow).await?;
        let planned = self.throwaway_machines(macs);
        let looking = leases_step(workflow, &planned)?;
        if self.journal.done_at(looking.name()).is_none() {
            let total = planned.len();
            // Other workflows create fewer machines.
            let about = self.estimate.seconds(Phase::PassOne).filter(|_| workflow == "pass-one");
            info!(target: PROGRESS, step = "pass one", total, estimate = about, estimate_source = self.estimate.source(),
                "waiting for the addresses of {}", count(total, "throwaway machine"));
        }
        let (created, of_created) = watch::channel(Vec::new());
        let mut look = Box::pin(self.look_for_leases(workflow, &planned, of_created, &images));
        let create = async {
            tokio::select! {
                done = self.create_throwaways(workflow, &planned, &images, &created) => done,
                // Ends only with an error here: while `created` exists, it waits for further machines.
                failed = &mut look => failed.map(|_| ()),
            }
        };
        let step = create_step(workflow, &planned, &images)?;
        // As in pass two, a machine without an address is asked for again: the platform may have refused it.
        if self.journal.done_at(step.name()).is_some() && self.journal.done_at(looking.name()).is_none() {
            self.journal.forget(step.name())?;
        }
        self.journal.run(&step, create).await?;
        // An earlier run may have created them.
        created.send_replace(planned.clone());
        drop(created);
        let vips = machines::unleased_vips(self.config, macs, &planned);
        let look = self.journal.run(&looking, look);
        // While the machines boot: libvirt locks the network for a reservation, and their creation would wait.
        let (mut leases, vips) = futures::try_join!(look, self.reserve_vips(&vips))?;
        leases.extend(vips);
        let endpoints = self.egress()?;
        let step = Step::new(format!("{workflow}/egress"), &endpoints)?;
        self.journal.run(&step, self.check_egress(&planned, &endpoints)).await?;
        leases.extend(Vip::ALL.into_iter().filter_map(|vip| {
            let name = NodeName::vip(vip);
            Some(AddressAssignment {
                ip: self.config.given.vip(vip)?,
                mac: *macs.get(&name)?,
                name,
            })
        }));
        Ok(leases)
    }

    /// Creates machines, each after its address is reserved if that is done before they boot, and adds them to
    /// `created`.
    async fn create_throwaways(
        &self,
        workflow: &str,
        planned: &[Planned],
        images: &Handles,
        created: &watch::Sender<Vec<Planned>>,
    ) -> Result<()> {
        // Not for new workers: until they are in the table, a reservation would not be released.
        let reserves = workflow == "pass-one" && self.reserves_before_boot();
        let macs = planned
            .iter()
            .map(|machine| (machine.node.clone(), machine.mac))
            .collect();
        let choice = match reserves {
            true => Some(Mutex::new(self.choose(&macs).await?)),
            false => None,
        };
        let reserve_and_create = async |machine: &Planned| {
            if let Some(choice) = &choice {
                let mut choice = choice.lock().await;
                self.reserve_next(&mut choice, &machine.node, machine.mac).await?;
            }
            self.create_throwaway(workflow, machine, images).await?;
            created.send_modify(|created| created.push(machine.clone()));
            Ok(())
        };
        self.backend.concurrently(planned, reserve_and_create).await.map(drop)
    }

    async fn create_throwaway(&self, workflow: &str, machine: &Planned, images: &Handles) -> Result<()> {
        let node = &machine.node;
        info!(target: PROGRESS, step = "pass one", %node, state = "creating");
        self.backend
            .create_machine(&self.throwaway_spec(machine, images)?)
            .await?;
        info!(target: PROGRESS, step = "pass one", %node, state = "booting", "{BOOTING}");
        self.journal.note(&format!("{workflow}/create/{}", machine.node), &())
    }

    fn throwaway_spec(&self, machine: &Planned, images: &Handles) -> Result<MachineSpec> {
        let egress: Vec<String> = self.egress()?.into_iter().flatten().collect();
        let payload =
            cloud_init::throwaway_payload(machine.name.as_str(), machine.mac, &self.config.ssh_keys, &egress)?;
        Ok(machine.spec(self.config, images.of(machine), payload))
    }

    /// The endpoints that nodes must reach; none if no release is installed.
    fn egress(&self) -> Result<Vec<egress::AnyOf>> {
        if !self.config.egress_check {
            return Ok(Vec::new());
        }
        let release = self.journal.output::<Release>("release")?.unwrap_or_default();
        // The release of a rehearsal has no real images, but its mirrors are checked.
        let mirrors = self.config.registry_mirrors.iter().map(|mirror| mirror.source.as_str());
        let images: Vec<&str> = match self.config.is_rehearsal() {
            true => mirrors.collect(),
            false => release.images.values().map(String::as_str).collect(),
        };
        Ok(egress::endpoints(self.config, images))
    }

    /// Fails if the first machine repeatedly reports that it cannot reach them. Without a report, e.g. on a platform
    /// without serial consoles, the check is skipped.
    async fn check_egress(&self, planned: &[Planned], wanted: &[egress::AnyOf]) -> Result<()> {
        let has_console = |plan: &&Planned| self.backend.capabilities(plan.place).console_tail;
        let Some(first) = planned.first().filter(has_console).filter(|_| !wanted.is_empty()) else {
            return Ok(());
        };
        let begun = Instant::now();
        loop {
            let text = self.backend.console_tail(&self.config.id(), &first.name).await;
            let text = text.ok().flatten().unwrap_or_default();
            let unreachable = egress::unreachable(wanted, &egress::results(&text));
            match unreachable {
                Some(endpoints) if endpoints.is_empty() => {
                    info!(target: PROGRESS, step = "pass one", "{} can reach the image registries", first.name);
                    return Ok(());
                }
                Some(endpoints) if begun.elapsed() > EGRESS => {
                    return Err(self.no_egress(&first.name, &endpoints).into());
                }
                None if begun.elapsed() > EGRESS => {
                    let name = &first.name;
                    info!(target: PROGRESS, step = "pass one", "egress check skipped: no result on the serial console of {name}");
                    return Ok(());
                }
                _ => tokio::time::sleep(CONSOLE).await,
            }
        }
    }

    /// The error for endpoints, each `HOST:PORT`, that nodes could not reach either.
    fn no_egress(&self, machine: &MachineName, endpoints: &[String]) -> OperationError {
        let text = format!("pass one: {machine} cannot reach {}", endpoints.join(", "));
        OperationError::new(ErrorKind::Platform, text).hint(format!(
            "nodes could not pull their images. Check DNS and the route out of the network, on a libvirt host also \
             `iptables -S FORWARD` and `nft list ruleset` (Docker drops forwarded packets), then run the same command \
             again: the machines of {} are kept and try again. egress_check=false skips this check",
            self.config.name
        ))
    }

    /// Waits for the addresses of all these machines; while they are created, of those in `created`, whose sender is
    /// dropped after the last one.
    async fn look_for_leases(
        &self,
        workflow: &str,
        all: &[Planned],
        mut created: watch::Receiver<Vec<Planned>>,
        images: &Handles,
    ) -> Result<Vec<AddressAssignment>> {
        // The timeout begins with the first query after all are created, because a query may take long.
        let mut all_since = None::<Instant>;
        let mut launches = Launches::default();
        let mut watch = Watch::new(self.facts.cidr);
        let mut guests = GuestAddresses::new(self.machine_network().ok(), self.virtual_ips()?);
        let mut network_seen = Instant::now();
        let id = self.config.id();
        loop {
            let is_one = |created: &Vec<Planned>| !created.is_empty() || all.is_empty();
            let planned = created.wait_for(is_one).await?.clone();
            if created.has_changed().is_err() {
                all_since.get_or_insert_with(Instant::now);
            }
            let queried = Instant::now();
            let mut machines = self.backend.list_machines(&id).await?;
            let query = queried.elapsed();
            let spec = |machine: &Planned| self.throwaway_spec(machine, images);
            self.start_again(&mut launches, &planned, &machines, spec).await?;
            guests.complete(self, &planned, &mut machines).await;
            for change in watch.look(&planned, &machines) {
                let plan = planned.iter().find(|plan| change.stable && plan.name == change.name);
                let evidence = plan.map_or(Evidence::Platform, |plan| guests.evidence(plan.mac));
                let text = match evidence {
                    Evidence::Platform => change.to_string(),
                    other => format!("{change}, {other}"),
                };
                info!(target: PROGRESS, step = "pass one", node = %change.node, state = change.state(), done = change.stable, "{text}");
                if let Some((plan, ip)) = plan.zip(watch.address(&change.name)) {
                    self.journal
                        .note(&format!("{workflow}/leases/{}", plan.node), &(ip, evidence))?;
                }
            }
            if all_since.is_some() && watch.is_complete(all) {
                break;
            }
            if network_seen.elapsed() >= NETWORK {
                self.require_network().await?;
                network_seen = Instant::now();
            }
            let waited = all_since.map_or(Duration::ZERO, |since| since.elapsed());
            let limit = self.config.timeouts.harvest;
            if let Some(error) = self.wait_failure(&watch, &planned, waited, limit).await {
                return Err(error.into());
            }
            tokio::time::sleep(self.pause(&watch, query)).await;
        }
        let lease = |plan: &Planned| {
            Some(AddressAssignment {
                name: plan.node.clone(),
                mac: plan.mac,
                ip: watch.address(&plan.name)?,
            })
        };
        Ok(all.iter().filter_map(lease).collect())
    }

    /// Fails if the machines' network was deleted or stopped; a query without a response does not end the wait.
    async fn require_network(&self) -> Result<()> {
        match self.backend.network_facts(&self.config.network).await {
            Err(error) if error.kind() == BackendErrorKind::NotFound => {
                let hint = self.subject().without_network();
                Err(error.source.hint(hint).during(error.operation).into())
            }
            _ => Ok(()),
        }
    }

    /// Deletes the remaining machines of pass one, and verifies that none is left.
    pub(super) async fn sweep_pass_one(&self) -> Result<()> {
        let step = Step::named("pass-one/gone");
        self.journal.run(&step, self.delete_throwaway_machines()).await
    }

    /// The machines of pass one that exist.
    pub(super) async fn throwaway(&self) -> Result<Vec<Machine>> {
        let mut machines = self.backend.list_machines(&self.config.id()).await?;
        machines.retain(|machine| machine.pass == Pass::One);
        Ok(machines)
    }

    pub(super) async fn delete_throwaway_machines(&self) -> Result<()> {
        let id = self.config.id();
        delete_machines(self.backend, &id, &self.throwaway().await?).await?;
        // A run that was killed while deleting may have left a machine's disks, which no list of machines shows.
        let owned = self.backend.list_owned(&id).await?;
        let of_machine = |thing: &Owned| MachineName::of_harvest_in(&self.config.name, &thing.name);
        for name in owned.iter().filter_map(of_machine).collect::<BTreeSet<_>>() {
            self.backend.delete_machine(&id, &name).await?;
        }
        Ok(())
    }
}
