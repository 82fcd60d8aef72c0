//! The workflow: two passes, from a validated configuration to a cluster. Start with `deploy.rs`.
//!
//! Every statement that changes something is a journal step or can safely be repeated, so that the same command
//! continues after any interruption.

mod adopt;
mod backup;
mod check;
mod clock;
mod complete;
mod deploy;
mod deployments;
mod destroy;
pub mod diagnose;
mod effective_settings;
mod error;
mod external;
mod fragments;
mod free_addresses;
mod guest_addresses;
pub mod image_sources;
mod images;
mod inspect;
mod join;
mod launch;
mod networks;
mod one;
mod options;
mod ours;
mod partial_failure;
mod pools;
mod power;
mod renew;
mod replace;
mod report;
mod reserve;
mod run;
mod scale;
mod services;
mod simulated;
pub mod snapshot;
mod throwaway;
mod two;
mod verify;
mod version_lock;

pub use self::adopt::{Adopted, adopt, adoptable};
pub use self::check::refuse_other_cluster;
pub use self::deploy::{Deployed, NodeRow, deploy, harvest};
pub use self::deployments::{DeploymentOnPlatform, deployments_of, other_deployments};
pub use self::destroy::destroy;
pub use self::effective_settings::{CarrierLimit, EffectiveSettings};
pub use self::error::no_node;
pub use self::external::{Changed, JoinFile, JoinOptions, join, join_file, remove};
pub use self::guest_addresses::with_answers;
pub use self::inspect::inspect;
pub use self::options::DeployOptions;
pub use self::partial_failure::{PartialFailure, with_leftovers};
pub use self::power::{StopOptions, SwitchedOff, start, stop};
pub use self::renew::{Renewed, Rollout, renew};
pub use self::replace::replace;
pub use self::report::CheckResult;
pub use self::scale::{ScaleOptions, Scaled, scale};
pub use self::simulated::{refuse_simulated, refuse_simulated_table};
pub use self::verify::{TableDifference, Verified, VerifyOptions, verify};
pub use self::version_lock::version_lock;
