//! The options of a deployment.

/// How a deployment is to be done.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeployOptions {
    /// Forget the parameter file and harvest anew.
    pub harvest_again: bool,
}
