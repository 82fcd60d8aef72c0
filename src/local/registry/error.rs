//! Errors of the registry cache.

use std::io;

/// Why the cache does not work.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error("no registry program is installed")]
    NoProgram,
    #[error("podman cannot run the registry: {0}")]
    Podman(String),
    #[error("the address of this computer is unknown: {0}")]
    NoAddress(io::Error),
    #[error("the cache of {upstream} did not start: {why}")]
    NotStarted { upstream: String, why: String },
    #[error("the cache cannot log in to {upstream}: {why}")]
    NoLogin { upstream: String, why: String },
    #[error("cannot pull {image} through the cache: {why}")]
    NotPulled { image: String, why: String },
}

impl RegistryError {
    /// What a user can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoProgram => {
                "install the package docker-registry, or podman, or put `registry` of \
                 https://github.com/distribution/distribution/releases in PATH"
            }
            Self::Podman(_) => "`podman pull docker.io/library/registry:3` shows whether podman can download the image",
            Self::NoAddress(_) => "use --address with the address of this computer that the nodes can reach",
            Self::NotStarted { .. } => {
                "use --address with an address of this computer, or --port with the first of several free ports"
            }
            Self::NoLogin { .. } => {
                "correct the pull secret of the env file and pass the file again, `ocpdeploy cache up env.sh`; HTTP \
                 Basic authentication requires version 3 of the registry program, which podman runs if no other is \
                 installed"
            }
            Self::NotPulled { .. } => {
                "`ocpdeploy cache status` shows whether the cache runs; to resume, run the same command again"
            }
        }
    }
}
