//! A node's reported network, time servers and proxies, compared with the expected ones.
//!
//! Values that the settings leave to the platform or to CoreOS are not compared, nor values that only a file of
//! `network_config` sets.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::cluster::{ClusterConfig, Vip};
use crate::state::parameters::{NodeAddress, Parameters};

/// Prints everything that is compared, each part below a heading. Requires root: only root can read the environment of
/// another user's process.
///
/// The proxies are those in the processes' environment, whatever set them (openshift/machine-config-operator:
/// templates/common/_base/units/kubelet.service-proxy.yaml, crio.service-proxy.yaml).
pub const SCRIPT: &str = r#"part() { printf '\n=== %s\n' "$1"; }
part addresses; ip -json address show
part routes; ip -json -4 route show default
part ipv6-routes; ip -json -6 route show default
part resolv.conf; cat /etc/resolv.conf
part upstreams; cat /run/ocpdeploy/dns/upstreams
part chrony.conf; cat /etc/chrony.conf
for unit in kubelet crio; do
    pid=$(systemctl show --property=MainPID --value $unit.service)
    [ -r "/proc/$pid/environ" ] || continue
    part $unit; tr '\0' '\n' <"/proc/$pid/environ" | grep -i '_proxy='
done
exit 0
"#;

/// Maximum number of a node's values in a message.
const MOST_VALUES: usize = 8;

/// The differences of a node, each with the expected value and a command that shows the present one.
pub fn differences(
    config: &ClusterConfig,
    table: &Parameters,
    node: &NodeAddress,
    output: &str,
) -> Result<Vec<String>, String> {
    let report = Report::read(output)?;
    let mut found = Vec::new();
    let mut differs = |text: String, command: &str| {
        let name = &node.name;
        found.push(format!(
            "{text}: `ocpdeploy node ssh {} {name} -- {command}`",
            table.cluster
        ));
    };
    // Behind its own NAT, a node has another address than the one in the table.
    let has_tables_address = table.peer_domain.is_none();
    let has_own_file = config.network_config_of(&node.name).is_some();
    if has_tables_address {
        let prefix = table.machine_network.prefix();
        match report.prefix_of(node) {
            Some(actual) if actual == prefix => {}
            Some(actual) => differs(
                format!("has {}/{actual}, expected {}/{prefix}", node.ip, node.ip),
                "ip address",
            ),
            None => differs(format!("has no address {}/{prefix}", node.ip), "ip address"),
        }
    }
    if let Some(gateway) = table.gateway.filter(|_| has_tables_address && !has_own_file) {
        let gateways: Vec<_> = report
            .routes
            .iter()
            .filter_map(|route| route.gateway.as_ref())
            .filter(|text| text.contains(':') == gateway.is_ipv6())
            .collect();
        if !gateways.contains(&&gateway.to_string()) {
            let text = format!("default gateway is {}, expected {gateway}", listed(&gateways));
            differs(text, "ip route");
        }
    }
    if let (Some(mtu), Some(link)) = (config.mtu, report.link_of(node))
        && link.mtu != u32::from(mtu)
    {
        differs(
            format!("MTU of {} is {}, expected {mtu}", link.ifname, link.mtu),
            "ip link",
        );
    }
    if !has_own_file {
        let servers = report.name_servers();
        let expected = name_servers(table);
        if has_tables_address && expected.iter().any(|server| !servers.contains(&server.as_str())) {
            let text = format!("name servers are {}, expected {}", listed(&servers), listed(&expected));
            differs(text, "nmcli device show");
        }
        let domains = report.search_domains();
        if config
            .dns_search
            .iter()
            .any(|domain| !domains.contains(domain.as_str()))
        {
            let text = format!(
                "search domains are {}, expected {}",
                listed(&domains),
                listed(&config.dns_search)
            );
            differs(text, "cat /etc/resolv.conf");
        }
    }
    let servers = report.ntp_servers();
    let expected: BTreeSet<&str> = config.ntp_servers.iter().map(String::as_str).collect();
    if !expected.is_empty() && servers != expected {
        let text = format!("NTP servers are {}, expected {}", listed(&servers), listed(&expected));
        differs(text, "cat /etc/chrony.conf");
    }
    for unit in ["kubelet", "crio"] {
        for text in proxies(config, unit, report.parts.get(unit).copied()) {
            differs(text, &format!("systemctl cat {unit}"));
        }
    }
    Ok(found)
}

/// The table's name servers that a node queries: never itself or another address of the cluster, as in
/// `templates/resolver/ocpdeploy-resolver`.
fn name_servers(table: &Parameters) -> Vec<String> {
    let is_own = |ip| {
        let vips = Vip::ALL.map(|vip| table.vip(vip).ip);
        vips.contains(&ip) || table.nodes.iter().any(|node| node.ip == ip)
    };
    let others = table.resolvers.iter().filter(|ip| !is_own(**ip));
    // The C library uses at most three.
    others.take(3).map(ToString::to_string).collect()
}

/// What is wrong with the proxies in the environment of a unit. Passwords in their URLs are not repeated.
fn proxies(config: &ClusterConfig, unit: &str, environment: Option<&str>) -> Vec<String> {
    let proxy = &config.proxy;
    let urls = [("HTTP_PROXY", &proxy.http), ("HTTPS_PROXY", &proxy.https)];
    if urls.iter().all(|(_, url)| url.is_none()) {
        return Vec::new();
    }
    let Some(environment) = environment else {
        return vec![format!("{unit} does not run, so its proxies are unknown")];
    };
    let variables: BTreeMap<String, &str> = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_uppercase(), value))
        .collect();
    let of_url = |(name, expected): (&str, &SecretString)| {
        let expected = expected.expose_secret();
        match variables.get(name).copied() {
            Some(actual) if actual == expected => None,
            Some(actual) if host(actual) == host(expected) => Some(format!(
                "{name} of {unit} differs from the settings in all but its host"
            )),
            actual => Some(format!(
                "{name} of {unit} is {}, expected {}",
                actual.map_or("not set", host),
                host(expected)
            )),
        }
    };
    let urls = urls.into_iter().filter_map(|(name, url)| Some((name, url.as_ref()?)));
    let mut found: Vec<String> = urls.filter_map(of_url).collect();
    let direct: BTreeSet<&str> = variables
        .get("NO_PROXY")
        .unwrap_or(&"")
        .split(',')
        .map(str::trim)
        .collect();
    let missing: Vec<_> = proxy
        .no_proxy
        .iter()
        .filter(|name| !direct.contains(name.as_str()))
        .collect();
    if !missing.is_empty() {
        found.push(format!("NO_PROXY of {unit} lacks {}", listed(&missing)));
    }
    found
}

/// Host and port of a URL, without user and password.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A password may contain any character that the proxy's setting accepts.
    let host = rest.rsplit('@').next().unwrap_or_default();
    host.split(['/', '?', '#']).next().unwrap_or_default()
}

fn listed<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let mut values = values.into_iter();
    let shown: Vec<_> = values
        .by_ref()
        .take(MOST_VALUES)
        .map(|value| value.to_string())
        .collect();
    match (shown.is_empty(), values.next()) {
        (true, _) => "none".to_owned(),
        (false, None) => shown.join(", "),
        (false, Some(_)) => format!("{}, …", shown.join(", ")),
    }
}

/// The output of [`SCRIPT`].
struct Report<'a> {
    links: Vec<Link>,
    routes: Vec<Route>,
    parts: BTreeMap<&'a str, &'a str>,
}

/// iproute2: `ip/ipaddress.c`, `ip/iproute.c`; missing values are left out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Link {
    ifname: String,
    mtu: u32,
    addr_info: Vec<Address>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    local: String,
    prefixlen: u8,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Route {
    gateway: Option<String>,
    dev: String,
}

impl<'a> Report<'a> {
    fn read(output: &'a str) -> Result<Self, String> {
        let parts = output.split("\n=== ").skip(1);
        let parts: BTreeMap<_, _> = parts.filter_map(|part| part.split_once('\n')).collect();
        let json = |name: &str| parts.get(name).copied().unwrap_or_default();
        let unread = |error| format!("cannot parse the output of `ip`: {error}");
        // Some versions print nothing if there is no route.
        let routes = |part: &str| match json(part).trim() {
            "" => Ok(Vec::new()),
            routes => serde_json::from_str::<Vec<Route>>(routes).map_err(unread),
        };
        Ok(Self {
            links: serde_json::from_str(json("addresses")).map_err(unread)?,
            routes: [routes("routes")?, routes("ipv6-routes")?].concat(),
            parts,
        })
    }

    fn prefix_of(&self, node: &NodeAddress) -> Option<u8> {
        let ip = node.ip.to_string();
        let mut addresses = self.links.iter().flat_map(|link| &link.addr_info);
        addresses
            .find(|address| address.local == ip)
            .map(|address| address.prefixlen)
    }

    /// The interface with the node's address, otherwise that of the default route.
    fn link_of(&self, node: &NodeAddress) -> Option<&Link> {
        let ip = node.ip.to_string();
        let has_it = |link: &&Link| link.addr_info.iter().any(|address| address.local == ip);
        let is_routed = |link: &&Link| self.routes.first().is_some_and(|route| route.dev == link.ifname);
        let mut links = self.links.iter();
        self.links.iter().find(has_it).or_else(|| links.find(is_routed))
    }

    /// Words after a keyword of a file.
    fn words(&self, part: &str, keywords: &'static [&str]) -> impl Iterator<Item = &'a str> {
        let text = self.parts.get(part).copied().unwrap_or_default();
        text.lines().flat_map(|line| {
            let mut words = line.split_whitespace();
            let is_it = words.next().is_some_and(|word| keywords.contains(&word));
            words.filter(move |_| is_it)
        })
    }

    /// The servers that the node's own DNS server queries, or without one those in its resolv.conf.
    fn name_servers(&self) -> Vec<&'a str> {
        let upstreams: Vec<_> = self.words("upstreams", &["nameserver"]).collect();
        match upstreams.is_empty() {
            true => self.words("resolv.conf", &["nameserver"]).collect(),
            false => upstreams,
        }
    }

    fn search_domains(&self) -> BTreeSet<&'a str> {
        self.words("resolv.conf", &["search", "domain"]).collect()
    }

    fn ntp_servers(&self) -> BTreeSet<&'a str> {
        let text = self.parts.get("chrony.conf").copied().unwrap_or_default();
        let server = |line: &'a str| {
            let mut words = line.split_whitespace();
            let is_source = matches!(words.next(), Some("server" | "pool" | "peer"));
            words.next().filter(|_| is_source)
        };
        text.lines().filter_map(server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Dhcp, NetworkConfig, NodeName, NodeSelector, Role};
    use crate::state::parameters::tests::example;

    /// The output of worker-0 if all values are as expected.
    fn output() -> String {
        let table = example();
        let ip = table.node(&worker()).unwrap().ip;
        let env = "HTTP_PROXY=http://u:hunter2@proxy.example.com:3128\nNO_PROXY=.cluster.local,example.org\n";
        format!(
            r#"
=== addresses
[{{"ifname":"lo","mtu":65536,"addr_info":[{{"local":"127.0.0.1","prefixlen":8}}]}},{{}},
 {{"ifname":"enp1s0","mtu":9000,"addr_info":[]}},
 {{"ifname":"br-ex","mtu":9000,"addr_info":[{{"local":"{ip}","prefixlen":24}},{{"local":"fe80::1","prefixlen":64}}]}}]

=== routes
[{{"dst":"default","gateway":"192.168.122.1","dev":"br-ex","flags":[]}}]

=== resolv.conf
# Written by ocpdeploy-resolver
search lab.example.com example.net
nameserver {ip}
nameserver 192.0.2.53

=== upstreams
nameserver 192.0.2.53

=== chrony.conf
# a comment
server ntp.example.com iburst
pool 192.0.2.1 iburst
driftfile /var/lib/chrony/drift

=== kubelet
{env}
=== crio
{env}"#
        )
    }

    fn worker() -> NodeName {
        NodeName::node(Role::Worker, 0)
    }

    fn config() -> ClusterConfig {
        let mut config = ClusterConfig::example();
        config.dhcp = Dhcp::None;
        config.mtu = Some(9000);
        config.dns_search = vec!["example.net".to_owned()];
        config.ntp_servers = vec!["192.0.2.1".to_owned(), "ntp.example.com".to_owned()];
        config.proxy.http = Some("http://u:hunter2@proxy.example.com:3128".into());
        config.proxy.no_proxy = vec!["example.org".to_owned()];
        config
    }

    fn table() -> Parameters {
        let mut table = example();
        table.gateway = Some([192, 168, 122, 1].into());
        // The second one is an address of the cluster, which a node does not query.
        table.resolvers = vec![[192, 0, 2, 53].into(), table.api_ip];
        table
    }

    fn found(config: &ClusterConfig, table: &Parameters, output: &str) -> Vec<String> {
        let node = table.node(&worker()).unwrap();
        let found = differences(config, table, node, output).unwrap();
        let text = |found: String| {
            let (text, command) = found.split_once(": `ocpdeploy node ssh lab worker-0 -- ").unwrap();
            assert!(command.ends_with('`'), "{found}");
            text.to_owned()
        };
        found.into_iter().map(text).collect()
    }

    #[test]
    fn each_difference_is_reported_with_the_expected_value() {
        assert_eq!(found(&config(), &table(), &output()), [""; 0]);
        for (from, to, expected) in [
            (
                "\"prefixlen\":24",
                "\"prefixlen\":16",
                "has 192.168.122.15/16, expected 192.168.122.15/24",
            ),
            (
                "\"192.168.122.15\"",
                "\"192.168.122.99\"",
                "has no address 192.168.122.15/24",
            ),
            (
                "\"192.168.122.1\"",
                "\"192.168.122.7\"",
                "default gateway is 192.168.122.7, expected 192.168.122.1",
            ),
            (
                "\"br-ex\",\"mtu\":9000",
                "\"br-ex\",\"mtu\":1500",
                "MTU of br-ex is 1500, expected 9000",
            ),
            (
                "=== upstreams\nnameserver 192.0.2.53",
                "=== upstreams\nnameserver 192.0.2.54",
                "name servers are 192.0.2.54, expected 192.0.2.53",
            ),
            (
                "example.net\n",
                "example.com\n",
                "search domains are example.com, lab.example.com, expected example.net",
            ),
            (
                "pool 192.0.2.1 ",
                "pool 192.0.2.2 ",
                "NTP servers are 192.0.2.2, ntp.example.com, expected 192.0.2.1, ntp.example.com",
            ),
            (
                "server ntp.example.com iburst\npool 192.0.2.1 iburst\n",
                "",
                "NTP servers are none, expected 192.0.2.1, ntp.example.com",
            ),
        ] {
            let output = output();
            assert!(output.contains(from), "{from}");
            assert_eq!(
                found(&config(), &table(), &output.replace(from, to)),
                [expected],
                "{to}"
            );
        }
        // Without a server of its own, as with dns=user.
        let by_user = output().replace("=== upstreams\nnameserver 192.0.2.53\n", "=== upstreams\n");
        assert_eq!(found(&config(), &table(), &by_user), [""; 0]);
        let no_route = output().replace(
            "[{\"dst\":\"default\",\"gateway\":\"192.168.122.1\",\"dev\":\"br-ex\",\"flags\":[]}]",
            "",
        );
        assert_eq!(
            found(&config(), &table(), &no_route),
            ["default gateway is none, expected 192.168.122.1"]
        );
    }

    #[test]
    fn proxies_are_those_of_both_processes_and_no_password_is_repeated() {
        let of_both = |from: &str, to: &str| found(&config(), &table(), &output().replace(from, to));
        assert_eq!(
            of_both("proxy.example.com:3128", "old.example.com:8080"),
            ["kubelet", "crio"]
                .map(|unit| format!("HTTP_PROXY of {unit} is old.example.com:8080, expected proxy.example.com:3128"))
        );
        assert_eq!(
            of_both("HTTP_PROXY=", "http_proxy=x"),
            ["kubelet", "crio"]
                .map(|unit| format!("HTTP_PROXY of {unit} differs from the settings in all but its host"))
        );
        assert_eq!(of_both("HTTP_PROXY=", "http_proxy="), [""; 0]);
        assert_eq!(
            of_both(",example.org", ""),
            ["kubelet", "crio"].map(|unit| format!("NO_PROXY of {unit} lacks example.org"))
        );
        assert_eq!(
            of_both("=== crio\nHTTP_PROXY", "=== crio\nFTP_PROXY"),
            ["HTTP_PROXY of crio is not set, expected proxy.example.com:3128"]
        );
        assert_eq!(
            of_both("=== crio\n", "=== other\n"),
            ["crio does not run, so its proxies are unknown"]
        );
        for (url, shown) in [
            ("http://u:p@proxy:3128/path", "proxy:3128"),
            ("proxy:3128", "proxy:3128"),
            ("http://u:p/a#b@proxy:3128", "proxy:3128"),
        ] {
            assert_eq!(host(url), shown);
        }
    }

    #[test]
    fn only_values_of_the_settings_are_compared() {
        let bare = "\n=== addresses\n[{\"ifname\":\"eth0\",\"mtu\":1400,\"addr_info\":[{\"local\":\"192.168.122.15\",\"prefixlen\":24}]}]\n";
        assert_eq!(
            found(&ClusterConfig::example(), &example(), bare),
            [
                "default gateway is none, expected 192.168.122.1",
                "name servers are none, expected 192.168.122.1"
            ]
        );
        let mut table = example();
        (table.gateway, table.resolvers) = (None, vec![]);
        assert_eq!(found(&ClusterConfig::example(), &table, bare), [""; 0]);
        // A file of network_config has its own routes and name servers.
        let mut config = config();
        config.network_config = vec![NetworkConfig {
            nodes: NodeSelector::All,
            path: "net.yaml".into(),
            text: String::new(),
        }];
        let (table, output) = (self::table(), output());
        let other = output
            .replace("192.0.2.53", "192.0.2.54")
            .replace("\"192.168.122.1\"", "\"192.168.122.7\"");
        assert_eq!(found(&config, &table, &other), [""; 0]);
        // Behind its own NAT, the node has another address.
        let mut table = self::table();
        table.peer_domain = Some("lab.svc".to_owned());
        let other = output
            .replace("\"192.168.122.15\"", "\"10.0.2.2\"")
            .replace("\"br-ex\",\"mtu\":9000", "\"br-ex\",\"mtu\":1400");
        assert_eq!(found(&config, &table, &other), ["MTU of br-ex is 1400, expected 9000"]);
    }

    #[test]
    fn an_unreadable_report_is_an_error_and_not_a_difference() {
        let table = example();
        let node = table.node(&worker()).unwrap();
        for output in ["", "\n=== addresses\nip: not found\n", "Last login: never"] {
            let error = differences(&config(), &table, node, output).unwrap_err();
            assert!(error.starts_with("cannot parse the output of `ip`"), "{error}");
        }
    }
}
