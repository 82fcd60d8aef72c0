//! A platform failure during an operation: the error, the existing objects, and the next command.

use std::collections::BTreeMap;
use std::error::Error;

use anyhow::Result;

use crate::backend::platforms::Platforms;
use crate::backend::{Owned, PlatformError};
use crate::cluster::ClusterId;

/// A command that has begun and failed because of the platform.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of cluster {cluster} failed; {there}")]
pub struct PartialFailure {
    operation: &'static str,
    cluster: ClusterId,
    /// An installed cluster must not be removed.
    installed: bool,
    there: String,
    source: Box<dyn Error + Send + Sync>,
}

impl PartialFailure {
    /// The next command.
    pub fn hint(&self) -> String {
        let name = self.cluster.domain().name();
        match self.operation {
            "destroy" => "run the same command again: deleted objects are skipped".to_owned(),
            "stop" | "start" => format!(
                "run the same command again: machines already in that state are skipped; `ocpdeploy status {name}` shows them"
            ),
            _ if self.installed => {
                format!("to resume, run the same command again; `ocpdeploy status {name}` shows the existing objects")
            }
            _ => format!(
                "to resume, run the same command again; `ocpdeploy status {name}` shows the existing objects, \
                 `ocpdeploy destroy {name}` removes them"
            ),
        }
    }
}

/// Adds the existing objects to a platform failure; without any, the failure is unchanged.
pub async fn with_leftovers<T>(
    backend: &Platforms,
    cluster: &ClusterId,
    operation: &'static str,
    installed: bool,
    outcome: Result<T>,
) -> Result<T> {
    let error = match outcome {
        Err(error) if error.chain().any(|cause| cause.is::<PlatformError>()) => error,
        outcome => return outcome,
    };
    let there = match backend.list_owned(cluster).await {
        Ok(owned) if owned.is_empty() => return Err(error),
        Ok(owned) => format!("existing objects: {}", counted(&owned)),
        Err(_) => "the platform cannot list the existing objects".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cluster_that_is_not_installed_is_suggested_to_be_destroyed() {
        for (operation, installed, suggested) in [
            ("deploy", false, true),
            ("deploy", true, false),
            ("scale", true, false),
            ("destroy", true, false),
            ("stop", true, false),
        ] {
            let failure = PartialFailure {
                operation,
                cluster: ClusterId::read("lab.example.com.x7k2pqrs").unwrap(),
                installed,
                there: String::new(),
                source: "no response".into(),
            };
            let hint = failure.hint();
            assert_eq!(hint.contains("ocpdeploy destroy"), suggested, "{operation}: {hint}");
        }
    }
}
