//! `ocpdeploy export`.

use std::time::SystemTime;

use anyhow::Result;

use super::output::print_file;
use super::output_file::{NO_OUTPUT, OutputFile};
use super::session::Session;
use crate::cli::{AnsibleFormat, DhcpFormat, DnsFormat, Export, ExportTarget, ExportVerb};
use crate::error::{ErrorKind, OperationError};
use crate::export::{ansible, dhcp, haproxy, hosts, kcli, zone};
use crate::passes::refuse_simulated_table;
use crate::state::inventory::Known;

pub fn run(session: &Session, command: &Export) -> Result<()> {
    let target = match &command.verb {
        ExportVerb::Hosts(verb) => &verb.target,
        ExportVerb::Dns(verb) => &verb.target,
        ExportVerb::Haproxy(verb) => &verb.target,
        ExportVerb::Dhcp(verb) => &verb.target,
        ExportVerb::Kcli(verb) => &verb.target,
        ExportVerb::Ansible(verb) => &verb.target,
        ExportVerb::Csi(verb) => &verb.target,
    };
    let (known, all) = session.harvested(target.of.cluster.as_deref())?;
    refuse_simulated_table(&known, &all)?;
    let parameters = session.without_removed(all.clone())?;
    let text = match &command.verb {
        ExportVerb::Hosts(_) => hosts::block(&parameters),
        ExportVerb::Dns(verb) => match (verb.format, verb.reverse) {
            (DnsFormat::Bind, false) => zone::forward(&parameters, verb.etcd, serial()),
            (DnsFormat::Bind, true) if verb.ipv6 => {
                zone::reverse_ipv6(&parameters, serial()).ok_or_else(|| without_ipv6(&known))?
            }
            (DnsFormat::Bind, true) => zone::reverse(&parameters, serial()).ok_or_else(|| without_ipv4(&known))?,
            (DnsFormat::Nsupdate, false) => zone::nsupdate(&all, &parameters, verb.etcd),
            (DnsFormat::Nsupdate, true) => zone::nsupdate_reverse(&all, &parameters),
        },
        ExportVerb::Haproxy(_) => haproxy::balancer(&parameters),
        ExportVerb::Dhcp(_) if parameters.machine_network.is_ipv6() => return Err(without_dhcp(&known).into()),
        ExportVerb::Dhcp(verb) => match verb.format {
            DhcpFormat::Dnsmasq => dhcp::dnsmasq(&parameters),
            DhcpFormat::Isc => dhcp::isc(&parameters),
        },
        ExportVerb::Kcli(_) => kcli::parameter_file(&parameters, &known.sizes),
        ExportVerb::Ansible(verb) => match verb.format {
            AnsibleFormat::Playbook => ansible::playbook().to_owned(),
            AnsibleFormat::Inventory => {
                let folder = session.home.cluster(&known.name).ignition_folder();
                ansible::inventory(&parameters, &known, &folder.display().to_string())
            }
        },
        #[cfg(feature = "kubevirt")]
        ExportVerb::Csi(verb) => super::csi::manifests(session, &known, &parameters, verb.part)?,
        #[cfg(not(feature = "kubevirt"))]
        ExportVerb::Csi(_) => return Ok(crate::backend::connect::require("kubevirt")?),
    };
    write(target, &text)
}

fn write(target: &ExportTarget, text: &str) -> Result<()> {
    match &target.output {
        None => print_file(text.as_bytes()),
        Some(path) => Ok(OutputFile::check(path, NO_OUTPUT)?.write(text.as_bytes())?),
    }
}

fn without_ipv4(known: &Known) -> OperationError {
    let text = format!("cluster {} has no IPv4 addresses", known.name);
    OperationError::new(ErrorKind::Usage, text).hint("add --ipv6")
}

fn without_dhcp(known: &Known) -> OperationError {
    let text = format!("the nodes of cluster {} have static IPv6 addresses only", known.name);
    OperationError::new(ErrorKind::Usage, text)
        .hint("no DHCP server is needed: `ocpdeploy export dns` prints the records of the nodes")
}

fn without_ipv6(known: &Known) -> OperationError {
    let text = format!("cluster {} has no IPv6 addresses", known.name);
    OperationError::new(ErrorKind::Usage, text).hint("remove --ipv6")
}

/// Grows from one export to the next, as servers want it: seconds since 1970, until 2106.
fn serial() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.ok().and_then(|now| u32::try_from(now.as_secs()).ok()).unwrap_or(1)
}
