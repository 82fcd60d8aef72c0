//! Start and stop of existing machines.

use super::engine::Ovirt;
use super::machines::POWER_OFF;
use super::session::wait_for;
use super::wire::{self, id};
use crate::backend::ownership::Ownership;
use crate::backend::{Action, BackendError, BackendErrorKind, Stop};
use crate::cluster::{ClusterId, MachineName};
use crate::xml::Element;

impl Ovirt {
    /// Without a payload: the engine passes it by itself to a machine that was never up.
    pub(super) async fn power_on(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, BackendError> {
        let runs = |status: &str| !matches!(status, "down" | "paused" | "suspended");
        self.switch(cluster, name, "start", runs).await
    }

    pub(super) async fn power_off(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, BackendError> {
        let is_off = |status: &str| status == "down";
        if how == Stop::Graceful {
            let goes = |status: &str| is_off(status) || status == "powering_down";
            return self.switch(cluster, name, "shutdown", goes).await;
        }
        let done = self.switch(cluster, name, "stop", is_off).await?;
        // Until it is off it can be neither started nor removed.
        wait_for("the machine is not off", POWER_OFF, async || {
            let (_, status) = self.known(cluster, name).await?;
            Ok(is_off(&status).then_some(()))
        })
        .await?;
        Ok(done)
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
            Err(refused) if refused.kind == BackendErrorKind::Conflict => {
                match is_so(&self.known(cluster, name).await?.1) {
                    true => Ok(Action::Unchanged(())),
                    false => Err(refused),
                }
            }
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
