//! The configuration that the engine passes to a guest at its start, including the cases without an error message.
//!
//! oVirt/ovirt-engine: RunVmCommand.updateVmInit, buildCreateVmParameters, IgnitionHandler; osinfo-defaults.properties.

use serde_json::Value;

use super::faults::{Outcome, Refusal};
use super::guests::Given;
use super::world::{Init, Vm, World};
use super::xml::Node;

/// Types of operating systems that this engine knows, and how each is configured at its first boot.
const SYSTEMS: &[(u32, &str, &str)] = &[
    (0, "other", ""),
    (5, "other_linux", "cloudinit"),
    (19, "rhel_7x64", "cloudinit"),
    (24, "rhel_6x64", "cloudinit"),
    (30, "rhel_8x64", "cloudinit"),
    (35, "rhcos_x64", "ignition"),
    (37, "rhel_9x64", "cloudinit"),
    (38, "debian_9", "cloudinit"),
];

impl World {
    /// Id and name of each type; CoreOS's since 4.4.
    pub fn systems(&self) -> Vec<(u32, &'static str)> {
        let known = SYSTEMS
            .iter()
            .filter(|(_, name, _)| *name != "rhcos_x64" || self.knows_ignition());
        known.map(|(id, name, _)| (*id, *name)).collect()
    }

    pub fn knows_ignition(&self) -> bool {
        self.version >= [4, 4, 0]
    }

    fn passes_scripts_through(&self) -> bool {
        self.version >= [4, 3, 4] && !self.knows_ignition()
    }

    /// The configuration that a machine's guest gets if `action` starts it now.
    pub fn given(&self, vm: &Vm, action: &Node) -> Outcome<Given> {
        let flag = |name: &str| action.get(name).map(|text| text == "true");
        let flags =
            [("use_ignition", "ignition"), ("use_cloud_init", "cloudinit")].map(|(name, kind)| (flag(name), kind));
        let asked: Vec<_> = flags
            .iter()
            .filter(|(flag, _)| *flag == Some(true))
            .map(|(_, kind)| *kind)
            .collect();
        if asked.len() > 1 {
            // oVirt/ovirt-engine: BackendVmResource.start, CANT_USE_MIXED_INIT_SIMULTANEOUSLY of `Messages.properties`.
            return Err(Refusal::failed(
                409,
                "Cannot use multiple initialization tags simultaneously when running VM.",
            ));
        }
        let by_system = SYSTEMS
            .iter()
            .find(|(_, name, _)| *name == vm.shape.os_type)
            .map_or("", |(_, _, kind)| *kind);
        let kind = match asked.first() {
            Some(kind) => *kind,
            None if flags.iter().any(|(flag, _)| *flag == Some(false)) => {
                return Ok(Given::Nothing("the start says so"));
            }
            None if action.is_true("use_initialization") || (vm.init.is_some() && !vm.is_initialized) => {
                match by_system {
                    "cloudinit" => "cloudinit",
                    _ => "ignition",
                }
            }
            None if vm.is_initialized => return Ok(Given::Nothing("it was up before")),
            None => return Ok(Given::Nothing("it has no initialization")),
        };
        let mut init = vm.init.clone().unwrap_or_default();
        if let Some(given) = action.at("vm/initialization") {
            init.merge(given);
        }
        // A mismatch here causes no error.
        match kind {
            "ignition" if by_system == "ignition" => complete(&init),
            "ignition" => Ok(Given::Nothing(
                "Ignition was asked for, and its system type is not CoreOS",
            )),
            "cloudinit" if by_system == "cloudinit" || !self.knows_ignition() => Ok(self.cloud_init(&init)),
            _ => Ok(Given::Nothing("cloud-init was asked for, and its system type has none")),
        }
    }

    fn cloud_init(&self, init: &Init) -> Given {
        let script = init.custom_script.as_deref().unwrap_or_default();
        let json: Option<Value> = serde_json::from_str(script).ok();
        if self.passes_scripts_through() && json.is_some_and(|json| json.get("ignition").is_some()) {
            return Given::Ignition(script.to_owned());
        }
        // The engine's own document, to which the script is appended.
        let mut user_data = "#cloud-config\nssh_pwauth: true\ndisable_root: 0\n".to_owned();
        if let Some(user) = init.user_name.iter().find(|user| !user.is_empty()) {
            user_data += &format!("user: {user}\n");
        }
        user_data += "output:\n  all: '>> /var/log/cloud-init-output.log'\n";
        user_data += "runcmd:\n- 'sed -i ''/^datasource_list: /d'' /etc/cloud/cloud.cfg; echo ''datasource_list: [\"NoCloud\", \"ConfigDrive\"]'' >> /etc/cloud/cloud.cfg'\n";
        user_data += script;
        Given::CloudInit {
            user_data,
            host_name: init.host_name.clone().filter(|name| !name.is_empty()),
            authorized_ssh_keys: init.authorized_ssh_keys.clone().filter(|keys| !keys.is_empty()),
            networks: init.networks.clone(),
        }
    }
}

/// A config that the engine passes unchanged. It would edit one without a version, and add a host name or a user.
fn complete(init: &Init) -> Outcome<Given> {
    let script = init.custom_script.as_deref().unwrap_or("{}");
    let Ok(config) = serde_json::from_str::<Value>(script) else {
        // Assumed: how the start of a machine fails whose custom script is no JSON.
        return Err(Refusal::failed(
            500,
            "Internal Engine Error: the custom script is no JSON",
        ));
    };
    let is_empty = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    // oVirt/ovirt-engine: IgnitionHandler.userIgnitionSnippet.
    if !is_empty(&init.user_name) && is_empty(&init.root_password) {
        return Err(Refusal::Exception);
    }
    let is_complete =
        config["ignition"]["version"].is_string() && is_empty(&init.host_name) && is_empty(&init.user_name);
    Ok(match is_complete {
        true => Given::Ignition(script.to_owned()),
        false => Given::Nothing("the engine would edit it"),
    })
}

impl Init {
    /// Takes over what is given.
    pub fn merge(&mut self, node: &Node) {
        for (name, into) in [
            ("authorized_ssh_keys", &mut self.authorized_ssh_keys),
            ("custom_script", &mut self.custom_script),
            ("dns_search", &mut self.dns_search),
            ("dns_servers", &mut self.dns_servers),
            ("host_name", &mut self.host_name),
            ("root_password", &mut self.root_password),
            ("user_name", &mut self.user_name),
        ] {
            if let Some(text) = node.get(name) {
                *into = Some(text);
            }
        }
        if let Some(nics) = node.at("nic_configurations") {
            self.networks = nics.nodes.iter().filter_map(|nic| nic.get("ip/address")).collect();
        }
    }

    /// As shown: never with the password.
    pub fn show(&self) -> Node {
        let mut shown = super::xml::node("initialization");
        for (name, value) in [
            ("authorized_ssh_keys", &self.authorized_ssh_keys),
            ("custom_script", &self.custom_script),
            ("dns_search", &self.dns_search),
            ("dns_servers", &self.dns_servers),
            ("host_name", &self.host_name),
            ("user_name", &self.user_name),
        ] {
            if let Some(value) = value {
                shown = shown.text(name, value);
            }
        }
        let nic = |address: &String| {
            super::xml::node("nic_configuration").add(super::xml::node("ip").text("address", address))
        };
        shown.add(super::xml::node("nic_configurations").all(self.networks.iter().map(nic)))
    }
}
