//! The options of a deployment.

/// Options of `deploy` and `harvest`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeployOptions<'a> {
    /// Discard the parameter file and repeat pass one.
    pub harvest_again: bool,
    /// The record of the settings, which is written before anything is created.
    pub settings: Option<&'a [u8]>,
}
