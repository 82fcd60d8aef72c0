//! A platform that failed half way: what failed, what is there by now, and what to type next.

use std::collections::BTreeMap;
use std::error::Error;

use anyhow::Result;

use crate::backend::{Backend, BackendError, Owned};
use crate::cluster::ClusterId;

/// A command that a platform's failure stopped after it had begun.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of cluster {cluster} stopped half way; {there}")]
pub struct PartialFailure {
    operation: &'static str,
    cluster: ClusterId,
    /// Then it is not to be removed.
    installed: bool,
    there: String,
    source: Box<dyn Error + Send + Sync>,
}

impl PartialFailure {
    /// What to type next.
    pub fn hint(&self) -> String {
        let name = self.cluster.as_str().split('.').next().unwrap_or_default();
        match self.operation {
            "destroy" => "run the same command again: what is gone is no obstacle".to_owned(),
            "stop" | "start" => format!(
                "run the same command again: machines that are so already stay so; `ocpdeploy status {name}` shows them"
            ),
            _ if self.installed => {
                format!(
                    "run the same command again: it goes on where it stopped; `ocpdeploy status {name}` shows what is there"
                )
            }
            _ => format!(
                "run the same command again: it goes on where it stopped; `ocpdeploy status {name}` shows what is there, \
                 `ocpdeploy destroy {name}` removes it"
            ),
        }
    }
}

/// Adds to a platform's failure what is there by now; where that is nothing, the failure stays as it is.
pub async fn with_leftovers<T>(
    backend: &dyn Backend,
    cluster: &ClusterId,
    operation: &'static str,
    installed: bool,
    outcome: Result<T>,
) -> Result<T> {
    let error = match outcome {
        Err(error) if error.chain().any(|cause| cause.is::<BackendError>()) => error,
        outcome => return outcome,
    };
    let there = match backend.list_owned(cluster).await {
        Ok(owned) if owned.is_empty() => return Err(error),
        Ok(owned) => format!("on the platform now: {}", counted(&owned)),
        Err(_) => "what is on the platform cannot be seen now".to_owned(),
    };
    Err(PartialFailure {
        operation,
        cluster: cluster.clone(),
        installed,
        there,
        source: error.reallocate_into_boxed_dyn_error_without_backtrace(),
    }
    .into())
}

fn counted(owned: &[Owned]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for thing in owned {
        *kinds.entry(&thing.kind).or_default() += 1;
    }
    let parts: Vec<_> = kinds
        .into_iter()
        .map(|(kind, number)| match (number, kind.strip_suffix('y')) {
            (1, _) => format!("1 {kind}"),
            (_, Some(stem)) => format!("{number} {stem}ies"),
            (_, None) => format!("{number} {kind}s"),
        })
        .collect();
    match parts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}
