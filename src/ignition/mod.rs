//! (interface as the passes use it; the room is being built, replace this file whole)
use crate::cluster::{ClusterConfig, NodeName, Role};
use crate::parameters::Parameters;

pub fn node_config(
    _installer_file: &[u8],
    _config: &ClusterConfig,
    _parameters: &Parameters,
    _node: &NodeName,
    _role: Role,
) -> Result<Vec<u8>, std::io::Error> {
    Err(std::io::Error::other("not built yet"))
}
