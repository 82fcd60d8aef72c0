//! Machines that are there are started and stopped.

use super::Ovirt;
use super::machines::{id, own};
use super::session::Failure;
use crate::backend::{Action, BackendErrorKind, Stop};
use crate::cluster::{ClusterId, MachineName};
use crate::xml::Element;

impl Ovirt {
    /// Without a payload: the engine gives one by itself to a machine that never came up.
    pub(super) async fn power_on(&self, cluster: &ClusterId, name: &MachineName) -> Result<Action<()>, Failure> {
        self.switch(cluster, name, "start", |status| {
            !matches!(status, "down" | "paused" | "suspended")
        })
        .await
    }

    pub(super) async fn power_off(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        how: Stop,
    ) -> Result<Action<()>, Failure> {
        let (deed, is_so): (_, fn(&str) -> bool) = match how {
            Stop::Ask => ("shutdown", |status| matches!(status, "down" | "powering_down")),
            Stop::Force => ("stop", |status| status == "down"),
        };
        self.switch(cluster, name, deed, is_so).await
    }

    async fn switch(
        &self,
        cluster: &ClusterId,
        name: &MachineName,
        deed: &str,
        is_so: impl Fn(&str) -> bool,
    ) -> Result<Action<()>, Failure> {
        let vm = self
            .find_vm(name)
            .await?
            .ok_or_else(|| Failure::new(BackendErrorKind::NotFound, format!("the engine has no machine {name}")))?;
        own(&vm, cluster, name)?;
        if is_so(vm.text_of("status").unwrap_or_default()) {
            return Ok(Action::AlreadySo(()));
        }
        let path = format!("/vms/{}", id(&vm)?);
        let refused = match self
            .session
            .post(&format!("{path}/{deed}"), &[], &Element::new("action"))
            .await
        {
            Err(failure) if failure.kind == BackendErrorKind::Conflict => failure,
            done => return done.map(|_| Action::Done(())),
        };
        // It may have become so by itself meanwhile.
        let vm = self.session.get(&path, &[]).await?;
        match is_so(vm.text_of("status").unwrap_or_default()) {
            true => Ok(Action::AlreadySo(())),
            false => Err(refused),
        }
    }
}
