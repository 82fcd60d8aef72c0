//! One machine: placement, state and hardware.

use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::backend::{Description, Form, Machine, Power, Properties, SeenNic};
use crate::cluster::{MachineName, NodeName, Pass, Role, Size, Sizes};
use crate::printable::{count, printable_block, printable_line};

/// The output of `node show`, the same on every platform.
#[derive(Debug, Serialize)]
pub struct Shown {
    machine: MachineName,
    node: NodeName,
    platform: &'static str,
    /// Where the machine may run.
    scheduling: Properties,
    /// Its state.
    dynamic: Dynamic,
    /// Its hardware, as created.
    configuration: Configuration,
    /// The platform's own description.
    platform_form: Option<Form>,
}

#[derive(Debug, Serialize)]
struct Dynamic {
    power: Power,
    nics: Vec<SeenNic>,
    #[serde(flatten)]
    platform: Properties,
}

#[derive(Debug, Serialize)]
struct Configuration {
    role: Role,
    pass: Pass,
    /// Of the spec it was created from.
    fingerprint: String,
    /// As planned; `None` for a throwaway machine.
    #[serde(flatten)]
    size: Option<Size>,
}

impl Shown {
    pub fn new(platform: &'static str, machine: &Machine, sizes: &Sizes, described: Description) -> Self {
        Self {
            machine: machine.name.clone(),
            node: machine.node.clone(),
            platform,
            scheduling: described.scheduling,
            dynamic: Dynamic {
                power: machine.power.clone(),
                nics: machine.nics.clone(),
                platform: described.dynamic,
            },
            configuration: Configuration {
                role: machine.role,
                pass: machine.pass,
                fingerprint: machine.fingerprint.clone(),
                size: sizes.of(&machine.node, machine.role).cloned(),
            },
            platform_form: described.form,
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!("{} on {}\n", printable_line(self.machine.as_str()), self.platform);
        let mut line = |name: &str, value: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {}", printable_line(&format!("{name:<12} {value}")));
        };
        line("role", &self.configuration.role.to_string());
        let power = match &self.dynamic.power {
            Power::Building => "is being created".to_owned(),
            Power::Waiting(why) => format!("has not started yet: {why}"),
            Power::Running => "runs".to_owned(),
            Power::Off => "is powered off".to_owned(),
            Power::Paused(why) => format!("is paused: {why}"),
            Power::Broken(why) => format!("in error state: {why}"),
        };
        line("power", &power);
        for nic in &self.dynamic.nics {
            let addresses: Vec<_> = nic.addresses.iter().map(ToString::to_string).collect();
            line(
                "NIC",
                &format!("{} on {} {}", nic.mac, nic.network, addresses.join(", ")),
            );
        }
        if let Some(size) = &self.configuration.size {
            let cpus = count(size.cpus, "CPU");
            let text = format!("{cpus}, {} MiB, disk of {} GiB", size.memory_mib, size.disk_gib);
            line("size", &text);
        }
        for (name, value) in self.scheduling.iter().chain(&self.dynamic.platform) {
            line(&name.replace('_', " "), &shown(value));
        }
        if let Some(form) = &self.platform_form {
            let _ = write!(
                text,
                "\n{}",
                printable_block(&format!("{}:\n{}", form.name, form.text)) + "\n"
            );
        }
        text
    }
}

/// A value without JSON's quotes and brackets.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}
