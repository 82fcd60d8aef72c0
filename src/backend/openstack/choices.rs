//! The choices of a project for `ocpdeploy init`: networks, flavors, images; and the clouds of clouds.yaml.

use std::time::SystemTime;

use serde_json::Value;

use super::auth::CloudSources;
use super::auth::Service::{Image, Network as NEUTRON};
use super::cloud::OpenStack;
use super::wire::text;
use crate::backend::{BackendError, Choice, Finding, PlatformChoices, PlatformError, SettingChoices};
use crate::printable::count;

/// The clouds of clouds.yaml; optional if `OS_AUTH_URL` is set.
pub fn clouds() -> Result<SettingChoices, PlatformError> {
    let sources = CloudSources::of_process();
    let found = sources
        .find("clouds", "OS_CLIENT_CONFIG_FILE")
        .map_err(|error| BackendError::from(error).during("read clouds.yaml"))?;
    let none = serde_json::Map::new();
    let choices = found.as_ref().map(|(path, file)| {
        let clouds = file["clouds"].as_object().unwrap_or(&none).iter();
        let choice = |(name, cloud): (&String, &Value)| {
            Choice::new(
                name,
                format!("{} of {}", text(&cloud["auth"], "auth_url"), path.display()),
            )
        };
        clouds.map(choice).collect()
    });
    let offered = SettingChoices::new("os_cloud", choices.unwrap_or_default());
    Ok(match sources.variables.contains_key("OS_AUTH_URL") {
        true => offered.optional(),
        false => offered,
    })
}

impl OpenStack {
    pub(super) async fn all_choices(&self) -> Result<PlatformChoices, BackendError> {
        let token = self.session.token().await?;
        let (networks, subnets, images) = futures::try_join!(
            self.session.list(NEUTRON, "/networks", "networks"),
            self.session
                .list_where(NEUTRON, "/subnets", &[("ip_version", "4")], "subnets"),
            self.session
                .list_where(Image, "/images", &[("status", "active")], "images"),
        )?;
        let external = networks.iter().filter(|network| network["router:external"] == true);
        let external = external.map(|network| named(network, &networks, "for floating IPs".to_owned()));
        let inside = networks.iter().filter(|network| network["router:external"] != true);
        let inside = inside.map(|network| network_choice(network, &networks, &subnets, &token.project));
        let images: Vec<_> = images.iter().map(|image| image_choice(image, &images)).collect();
        let flavors = self.flavors().await?.iter().map(|flavor| {
            let (cpus, memory, disk) = (flavor.cpus, flavor.memory_mib, flavor.disk_gib);
            Choice::new(
                &flavor.name,
                format!("{}, {memory} MiB, {disk} GiB", count(cpus, "CPU")),
            )
        });
        let flavors: Vec<_> = flavors.collect();
        Ok(PlatformChoices {
            host: None,
            seen: vec![Finding::ok(format!(
                "signed in to {}, project {}",
                self.session.name(),
                token.project
            ))],
            settings: vec![
                SettingChoices::new("network", inside.collect()),
                SettingChoices::new("os_external_network", external.collect()).optional(),
                SettingChoices::new("os_bootstrap_flavor", flavors.clone()).optional(),
                SettingChoices::new("os_master_flavor", flavors.clone()).optional(),
                SettingChoices::new("os_worker_flavor", flavors).optional(),
                SettingChoices::new("image", images).optional(),
            ],
        })
    }

    /// The time of the cloud.
    pub(super) async fn server_date(&self) -> Result<Option<SystemTime>, BackendError> {
        Ok(self.session.date().await?.as_deref().and_then(crate::backoff::time_of))
    }
}

fn network_choice(network: &Value, all: &[Value], subnets: &[Value], project: &str) -> Choice {
    let of_network = |subnet: &&Value| subnet["network_id"] == network["id"];
    let own: Vec<_> = subnets.iter().filter(of_network).collect();
    let ranges: Vec<_> = own.iter().map(|subnet| text(subnet, "cidr")).collect();
    let mut message = vec![match own.is_empty() {
        true => "no IPv4 subnet".to_owned(),
        false => ranges.join(" "),
    }];
    let has_dhcp = own.iter().any(|subnet| subnet["enable_dhcp"] == true);
    let is_own = text(network, "project_id") == project;
    for (holds, word) in [
        (has_dhcp, "DHCP"),
        (network["shared"] == true, "shared"),
        (network["provider:network_type"].is_string(), "provider network"),
        (is_own, "of this project"),
    ] {
        message.extend(holds.then(|| word.to_owned()));
    }
    let choice = named(network, all, message.join(", "));
    match (has_dhcp, is_own) {
        (false, _) => choice.warn("no DHCP, which nodes require"),
        (_, false) => choice.warn("of another project: members can usually not choose MACs and addresses"),
        _ => choice,
    }
}

fn image_choice(image: &Value, all: &[Value]) -> Choice {
    let size = image["size"].as_u64().unwrap_or_default() >> 20;
    named(image, all, format!("{}, {size} MiB", text(image, "disk_format")))
}

/// By its name, or by its id if the name is not unique.
fn named(object: &Value, all: &[Value], about: String) -> Choice {
    let name = text(object, "name");
    match all.iter().filter(|other| text(other, "name") == name).count() {
        1 => Choice::new(name, about),
        _ => Choice::new(text(object, "id"), format!("{name}, {about}")),
    }
}
