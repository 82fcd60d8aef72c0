//! Ignition configs: read, checked, merged, explained.
//!
//! An input is one config or several, divided by zero bytes, which no JSON has.

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
        // What is sound one by one can be merged, unless it is of two languages.
        Err(error) if !layers.is_empty() && sound == layers.len() => {
            assert!(error.to_string().contains("cannot be merged into"), "{error}");
        }
        Err(_) => {}
    }
}
