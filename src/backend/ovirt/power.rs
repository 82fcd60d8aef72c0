//! Start and stop of existing machines.

use super::engine::Ovirt;
use super::machines::POWER_OFF;
use super::session::{is_conflict, wait_for};
use super::wire::{self, id};
use crate::backend::error::if_exists;
use crate::backend::ownership::Ownership;
use crate::backend::{Action, BackendError, BackendErrorKind, Stop};
use crate::cluster::{ClusterId, MachineName};
use crate::xml::Element;

impl Ovirt {
    /// Without a payload: the engine passes it by itself to a machine that was never up.
    pub(super) async fn power_on(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        // Until it is off, the engine refuses to start it.
        wait_for("the machine is still shutting down", POWER_OFF, async || {
            let (_, status) = self.known(cluster, name).await?;
            Ok((status != "powering_down").then_some(()))
        })
        .await?;
        let runs = |status: &str| {
            let running = [
                "wait_for_launch",
                "powering_up",
                "up",
                "reboot_in_progress",
                "migrating",
                "restoring_state",
            ];
            running.contains(&status)
        };
        self.switch(cluster, name, "start", runs).await
    }

    pub(super) async fn power_off(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        if how == Stop::Graceful {
            let goes = |status: &str| ["down", "powering_down"].contains(&status);
            return self.switch(cluster, name, "shutdown", goes).await;
        }
        let (id, status) = self.known(cluster, name).await?;
        if status == "down" {
            return Ok(Action::Unchanged(()));
        }
        self.force_off(&id).await?;
        Ok(Action::Done(()))
    }

    /// Cuts the power of a machine, and waits until it is off or removed. Until then it can be neither started nor removed.
    pub(super) async fn force_off(&self, id: &str) -> Result<(), BackendError> {
        let path = format!("/vms/{id}");
        let is_off = async || -> Result<bool, BackendError> {
            let vm = if_exists(self.session.get(&path, &[]).await)?;
            Ok(vm.is_none_or(|vm| vm.text_of("status") == Some("down")))
        };
        let action = Element::new("action");
        match if_exists(self.session.post(&format!("{path}/stop"), &[], &action).await) {
            // It can have reached this state by itself.
            Err(refused) if is_conflict(&refused) => {
                if !is_off().await? {
                    return Err(refused);
                }
            }
            stopped => drop(stopped?),
        }
        wait_for("the machine is not off", POWER_OFF, async || {
            Ok(is_off().await?.then_some(()))
        })
        .await
    }

    async fn switch(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        operation: &str,
        is_so: impl Fn(&str) -> bool,
    ) -> Result<Action<()>, BackendError> {
        let (id, status) = self.known(cluster, name).await?;
        if is_so(&status) {
            return Ok(Action::Unchanged(()));
        }
        let asked = self
            .session
            .post(&format!("/vms/{id}/{operation}"), &[], &Element::new("action"))
            .await;
        match asked {
            // It can have reached this state by itself.
            Err(refused) if is_conflict(&refused) => match is_so(&self.known(cluster, name).await?.1) {
                true => Ok(Action::Unchanged(())),
                false => Err(refused),
            },
            asked => asked.map(|_| Action::Done(())),
        }
    }

    /// Id and status of a machine of this cluster.
    pub(super) async fn known(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
    ) -> Result<(String, String), BackendError> {
        let missing = || BackendError::new(BackendErrorKind::NotFound, format!("the engine has no machine {name}"));
        let vm = self.find_vm(name).await?.ok_or_else(missing)?;
        Ownership::require(wire::ownership(&vm), cluster, name)?;
        Ok((id(&vm)?, vm.text_of("status").unwrap_or_default().to_owned()))
    }
}
