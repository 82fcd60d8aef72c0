//! The options of a deployment.

/// Options of `deploy` and `harvest`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeployOptions {
    /// Discard the parameter file and repeat pass one.
    pub harvest_again: bool,
}
