//! The flavor of a machine: the configured one, or the smallest that is large enough.

use super::auth::Service::Compute as NOVA;
use super::cloud::OpenStack;
use super::wire::{Flavor, FlavorRequirements, some_of};
use crate::backend::{BackendError, BackendErrorKind, MachineSpec};
use crate::cluster::{OsBoot, Role};

impl OpenStack {
    /// All flavors that this project may use.
    pub(super) async fn flavors(&self) -> Result<&[Flavor], BackendError> {
        let read = async {
            let flavors = self.session.list(NOVA, "/flavors/detail", "flavors").await?;
            Ok::<_, BackendError>(flavors.iter().map(Flavor::read).collect::<Vec<_>>())
        };
        Ok(self.flavors.get_or_try_init(|| read).await?)
    }

    pub(super) async fn flavor_for(&self, spec: &MachineSpec, has_volumes: bool) -> Result<Flavor, BackendError> {
        let (cpus, memory_mib, disk_gib) = (spec.cpus, spec.memory_mib, spec.disk_gib);
        let wanted = FlavorRequirements::of(
            cpus,
            memory_mib,
            disk_gib,
            &spec.extra_disks_gib,
            self.config.boot,
            has_volumes,
        );
        self.choose_flavor(spec.role, spec.name.pool(), &wanted).await
    }

    /// The configured flavor of a role or a pool, else the smallest that is large enough.
    pub(super) async fn choose_flavor(
        &self,
        role: Role,
        pool: Option<&str>,
        wanted: &FlavorRequirements,
    ) -> Result<Flavor, BackendError> {
        let flavors = self.flavors().await?;
        let chosen = match self.config.flavors.of(role, pool) {
            Some(name) => wanted.named(name, flavors),
            None => wanted.choose(flavors),
        };
        chosen.cloned().map_err(|message| {
            let names: Vec<_> = flavors.iter().map(|flavor| flavor.name.as_str()).collect();
            let setting = match pool {
                Some(_) => "os_pool_flavors".to_owned(),
                None => format!("os_{role}_flavor"),
            };
            let mut hint = format!("set {setting} to one of {}", some_of(&names));
            if wanted.ephemeral_gib > 0 {
                hint += "; without block storage (Cinder) the flavor must have extra disks";
            } else if self.config.boot == OsBoot::Image {
                hint += "; or set os_boot=volume to use a disk of block storage";
            }
            BackendError::new(BackendErrorKind::Quota, message).hint(hint)
        })
    }
}
