//! Ignition configs: parsed, checked, merged, and the origins of a merge.
//!
//! An input is one or several configs, separated by zero bytes, which JSON never has.

use ocpdeploy::ignition::check::{check, check_merged, is_refused, traps};
use ocpdeploy::ignition::document::parse;
use ocpdeploy::ignition::origins::{Layer, merge_layers, origins};

pub fn ignition(bytes: &[u8]) {
    let configs = bytes
        .split(|byte| *byte == 0)
        .take(4)
        .filter_map(|bytes| parse(bytes).ok());
    let layers: Vec<_> = configs
        .map(|config| Layer {
            origin: "fuzz".to_owned(),
            config,
        })
        .collect();
    let sound = layers.iter().filter(|layer| !is_refused(&check(&layer.config))).count();
    for pair in layers.windows(2) {
        traps(&pair[0].config, &pair[1].config);
    }
    match merge_layers(&layers) {
        Ok(merged) => {
            check_merged(&merged);
            parse(merged.to_string().as_bytes()).expect("a merge is a config");
            origins(&layers).expect("what can be merged has origins");
        }
        // Valid configs can be merged, unless they mix spec 2 and spec 3.
        Err(error) if !layers.is_empty() && sound == layers.len() => {
            assert!(error.to_string().contains("cannot be merged into"), "{error}");
        }
        Err(_) => {}
    }
}
