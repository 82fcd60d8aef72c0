//! Checks of Octavia before a deployment with `lb=platform`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::auth::Service::Balancer as OCTAVIA;
use super::balancers::{LBAAS, with_role_hint};
use super::cloud::OpenStack;
use super::preflight::QuotaRow;
use super::wire::{self, some_of, text};
use crate::backend::findings::Findings;
use crate::backend::response::part;
use crate::backend::{BackendError, BackendErrorKind, Requirements};
use crate::cluster::ClusterId;

/// The version of Octavia's API: that of Train, 2019. `tags` require 2.5, `allowed_cidrs` 2.12, SOURCE_IP_PORT 2.13.
const VERSION: (u32, u32) = (2, 13);

impl OpenStack {
    /// Checks service, version, rights and provider; returns the quotas.
    pub(super) async fn check_balancers(
        &self,
        requirements: &Requirements,
        project: &str,
        found: &mut Findings,
    ) -> Result<Vec<QuotaRow>, BackendError> {
        let Some(settings) = &self.config.balancers else {
            return Ok(Vec::new());
        };
        if requirements.balancers.is_empty() {
            return Ok(Vec::new());
        }
        if let Err(failure) = self.session.endpoint(OCTAVIA).await {
            found.fail(
                format!("lb=platform requires Octavia: {}", failure.message),
                "set lb=keepalived, or lb=user with a load balancer of your own",
            );
            return Ok(Vec::new());
        }
        let root = found.take(self.session.get(OCTAVIA, "/").await)?;
        if let Some((major, minor)) = root.as_ref().and_then(wire::newest_version)
            && (major, minor) < VERSION
        {
            let (wanted_major, wanted_minor) = VERSION;
            found.fail(
                format!("Octavia has API version {major}.{minor}, but {wanted_major}.{wanted_minor} is required"),
                "upgrade Octavia to the release Train (2019) or later, or set lb=keepalived",
            );
        }
        if found.take(self.may_create_balancers().await)?.is_none() {
            return Ok(Vec::new());
        }
        if let Some(provider) = &settings.provider {
            let path = format!("{LBAAS}/providers");
            let listed = self.session.list(OCTAVIA, &path, "providers").await;
            let providers = found.take(listed.map_err(with_role_hint))?.unwrap_or_default();
            let names: Vec<_> = providers.iter().map(|one| text(one, "name")).collect();
            match names.contains(&provider.as_str()) {
                true => found.ok(format!("Octavia has provider {provider}")),
                false => found.fail(
                    format!("Octavia has no provider {provider}"),
                    &format!("set os_lb_provider to one of {}", some_of(&names)),
                ),
            }
        }
        self.balancer_rows(requirements, project).await
    }

    /// The cluster's load balancers; none if Octavia rejects the request, which `check_balancers` reports.
    pub(super) async fn listed_balancers(&self, cluster: &ClusterId) -> Result<Vec<Value>, BackendError> {
        match self.balancers_of(cluster).await {
            Err(failure) if matches!(failure.kind, BackendErrorKind::Denied | BackendErrorKind::NotFound) => {
                Ok(Vec::new())
            }
            listed => listed,
        }
    }

    /// Requests a load balancer without a VIP. Octavia first checks the permission, then the VIP (openstack/octavia:
    /// `octavia/api/v2/controllers/load_balancer.py`, `post`), so the error shows whether the permission exists.
    async fn may_create_balancers(&self) -> Result<(), BackendError> {
        let body = json!({"loadbalancer": {"name": "ocpdeploy-check"}});
        match self
            .session
            .post(OCTAVIA, &format!("{LBAAS}/loadbalancers"), &body)
            .await
        {
            Err(failure) if failure.kind == BackendErrorKind::Rejected => Ok(()),
            Err(mut failure) => {
                if failure.kind == BackendErrorKind::Denied {
                    failure.message = format!("this user may not create load balancers: {}", failure.message);
                }
                Err(with_role_hint(failure))
            }
            Ok(created) => {
                // This should not happen. The load balancer is deleted.
                let id = text(&created["loadbalancer"], "id");
                let path = format!("{LBAAS}/loadbalancers/{id}?cascade=true");
                self.session.delete(OCTAVIA, &path).await.map(drop)
            }
        }
    }

    /// openstack/octavia: `octavia/api/v2/types/quotas.py`: -1 is unlimited.
    async fn balancer_rows(&self, requirements: &Requirements, project: &str) -> Result<Vec<QuotaRow>, BackendError> {
        let quota = match self.session.get(OCTAVIA, &format!("{LBAAS}/quotas/{project}")).await {
            Ok(answer) => part(answer, "/quota"),
            Err(failure) if failure.code.is_some() => return Ok(Vec::new()),
            Err(failure) => return Err(failure),
        };
        let wanted = &requirements.balancers;
        // Two VIPs with one address are one load balancer.
        let given: BTreeSet<_> = wanted.iter().filter_map(|balancer| balancer.ip).collect();
        let balancers = wanted.iter().filter(|balancer| balancer.ip.is_none()).count() + given.len();
        let ports = wanted.iter().map(|balancer| balancer.ports.len()).sum();
        let monitors = match wanted.iter().all(|balancer| balancer.checked) {
            true => ports,
            false => 0,
        };
        let ours = match &requirements.cluster {
            Some(cluster) => self.balancers_of(cluster).await?,
            None => Vec::new(),
        };
        let parts = |key: &str| {
            ours.iter()
                .map(|balancer| balancer[key].as_array().map_or(0, Vec::len))
                .sum()
        };
        let mut rows = Vec::new();
        for (what, keys, path, wanted, have) in [
            (
                "load balancers",
                ["load_balancer", "loadbalancer"],
                "loadbalancers",
                balancers,
                ours.len(),
            ),
            ("listeners", ["listener"; 2], "listeners", ports, parts("listeners")),
            ("pools of load balancers", ["pool"; 2], "pools", ports, parts("pools")),
            (
                "health monitors",
                ["health_monitor", "healthmonitor"],
                "healthmonitors",
                monitors,
                monitors.min(parts("pools")),
            ),
        ] {
            let limit = keys
                .iter()
                .find_map(|key| quota[key].as_i64())
                .filter(|limit| *limit >= 0);
            let Some(limit) = limit else { continue };
            let used = self
                .session
                .list_own(OCTAVIA, &format!("{LBAAS}/{path}"), path, |_| true)
                .await?
                .len();
            let room = (limit, i64::try_from(used).unwrap_or(i64::MAX));
            let number = |count: usize| u64::try_from(count).unwrap_or_default();
            rows.push((what, Some(room), number(wanted), number(have)));
        }
        Ok(rows)
    }
}
