//! A file of `network_config`: nmstate YAML, with the locations for error messages.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use nmstate::{Interface, NetworkState, RouteEntry};
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConfigFault {
    pub message: String,
    /// Its location, as bytes of the file.
    pub span: Option<Range<usize>>,
    pub help: Option<String>,
    /// Whether messages may quote the file. A file that is not a network state may contain anything, including secrets.
    pub may_quote: bool,
}

impl NetworkConfigFault {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            span: None,
            help: None,
            may_quote: true,
        }
    }

    pub(super) fn at(self, span: Option<Range<usize>>) -> Self {
        Self { span, ..self }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }
}

/// A parsed file.
pub struct NetworkConfigDocument {
    pub(super) state: NetworkState,
    /// The numbers N of all `nicN` that are named anywhere in it.
    pub(super) nics: BTreeSet<usize>,
    outline: Outline,
}

/// Where the names and addresses of a file are.
#[derive(Default, Deserialize)]
struct Outline {
    #[serde(default)]
    interfaces: Vec<OutlineInterface>,
    #[serde(default)]
    routes: OutlineRoutes,
}

#[derive(Deserialize)]
struct OutlineInterface {
    name: Option<Spanned<String>>,
    #[serde(default)]
    ipv4: OutlineIp,
    #[serde(default)]
    ipv6: OutlineIp,
}

#[derive(Default, Deserialize)]
struct OutlineIp {
    #[serde(default)]
    address: Vec<OutlineAddress>,
}

#[derive(Deserialize)]
struct OutlineAddress {
    ip: Option<Spanned<String>>,
}

#[derive(Default, Deserialize)]
struct OutlineRoutes {
    #[serde(default)]
    config: Vec<OutlineRoute>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct OutlineRoute {
    destination: Option<String>,
    next_hop_address: Option<Spanned<String>>,
}

/// The sections that become connections of a node. When nmstate writes files, it ignores all others and only logs this
/// (nmstate/nmstate: rust/src/lib/nm/gen_conf.rs).
const SECTIONS: [&str; 4] = ["interfaces", "routes", "route-rules", "dns-resolver"];

impl NetworkConfigDocument {
    pub fn read(text: &str) -> Result<Self, NetworkConfigFault> {
        let syntax = |error: serde_saphyr::Error| {
            let at = error.location().and_then(|at| place(text, &at));
            if matches!(error.without_snippet(), serde_saphyr::Error::MultipleDocuments { .. }) {
                let fault = NetworkConfigFault::new("the file has several YAML documents").at(at);
                return fault.help("write one network state in each file");
            }
            let message = error.without_snippet().to_string();
            let line = message.lines().next().unwrap_or_default();
            let message = line.rsplit_once(" at line ").map_or(line, |(message, _)| message);
            NetworkConfigFault {
                may_quote: false,
                ..NetworkConfigFault::new(message).at(at)
            }
        };
        let value: Value = serde_saphyr::from_str(text).map_err(syntax)?;
        let Some(sections) = value.as_object().filter(|sections| sections.contains_key("interfaces")) else {
            return Err(
                NetworkConfigFault::new("the file has no `interfaces`").help("write the network state as nmstate YAML")
            );
        };
        if let Some(section) = sections.keys().find(|section| !SECTIONS.contains(&section.as_str())) {
            let fault = NetworkConfigFault::new(format!("`{section}` is not supported")).at(found(text, section));
            return Err(fault.help(format!("use only {}", SECTIONS.join(", "))));
        }
        // If it is not a network state, nmstate reports the reason below.
        let outline: Outline = serde_saphyr::from_str(text).unwrap_or_default();
        let name = |interface: &OutlineInterface| interface.name.as_ref().and_then(span);
        let interfaces = value["interfaces"].as_array().into_iter().flatten();
        for (index, interface) in interfaces.enumerate() {
            let at = outline.interfaces.get(index).and_then(name);
            let parsed = Interface::deserialize(interface);
            let parsed = parsed.map_err(|error| NetworkConfigFault::new(error.to_string()).at(at.clone()))?;
            // nmstate would write an ethernet connection for it.
            if let (Interface::Unknown(_), Some(kind)) = (&parsed, interface["type"].as_str()) {
                return Err(NetworkConfigFault::new(format!("unknown interface type `{kind}`")).at(at));
            }
        }
        let state = NetworkState::deserialize(&value).map_err(|error| {
            // Parsed again from the text, only for the location.
            let again: Result<NetworkState, _> = serde_saphyr::from_str(text);
            let at = again.err().and_then(|error| error.location());
            NetworkConfigFault::new(error.to_string()).at(at.and_then(|at| place(text, &at)))
        })?;
        let mut seen = BTreeSet::new();
        for interface in &outline.interfaces {
            if let Some(known) = interface.name.as_ref()
                && !seen.insert(&known.value)
            {
                return Err(NetworkConfigFault::new(format!("`{}` is listed twice", known.value)).at(name(interface)));
            }
        }
        let mut nics = BTreeSet::new();
        named_nics(&value, &mut nics);
        Ok(Self { state, nics, outline })
    }

    /// Where an interface is named.
    pub(super) fn interface(&self, name: &str) -> Option<Range<usize>> {
        span(self.outline_of(name)?.name.as_ref()?)
    }

    /// Where an address of an interface is, in the list of this family.
    pub(super) fn address(&self, name: &str, family: AddressFamily, index: usize) -> Option<Range<usize>> {
        let interface = self.outline_of(name)?;
        let ip = match family {
            AddressFamily::Ipv4 => &interface.ipv4,
            AddressFamily::Ipv6 => &interface.ipv6,
        };
        span(ip.address.get(index)?.ip.as_ref()?)
    }

    /// Where the gateway of a route is.
    pub(super) fn gateway(&self, wanted: &RouteEntry) -> Option<Range<usize>> {
        let mut gateways = self.outline.routes.config.iter().filter_map(|route| {
            let gateway = route.next_hop_address.as_ref()?;
            let is_it =
                route.destination == wanted.destination && Some(&gateway.value) == wanted.next_hop_addr.as_ref();
            is_it.then_some(gateway)
        });
        span(gateways.next()?)
    }

    /// The first interface that a message of nmstate names.
    pub(super) fn named_in(&self, message: &str) -> Option<Range<usize>> {
        let words: BTreeSet<&str> = message.split(|c: char| !is_of_name(c)).collect();
        let names = self
            .outline
            .interfaces
            .iter()
            .filter_map(|interface| interface.name.as_ref());
        let mut named = names.filter(|name| words.contains(name.value.as_str()));
        span(named.next()?)
    }

    fn outline_of(&self, name: &str) -> Option<&OutlineInterface> {
        let is_it = |known: &Spanned<String>| known.value == name;
        let mut interfaces = self.outline.interfaces.iter();
        interfaces.find(|interface| interface.name.as_ref().is_some_and(is_it))
    }
}

/// An address family, as nmstate separates them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressFamily {
    Ipv4,
    Ipv6,
}

impl AddressFamily {
    pub fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// The destination of a default route.
    pub fn everywhere(self) -> &'static str {
        match self {
            Self::Ipv4 => "0.0.0.0/0",
            Self::Ipv6 => "::/0",
        }
    }
}

impl fmt::Display for AddressFamily {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
        })
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '-' | '_')
}

/// The number of a machine's NIC in its name, `nic0`.
pub(super) fn nic_number(name: &str) -> Option<usize> {
    let digits = name.strip_prefix("nic")?;
    let is_number = digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

fn named_nics(value: &Value, numbers: &mut BTreeSet<usize>) {
    match value {
        Value::String(text) => numbers.extend(nic_number(text)),
        Value::Array(items) => items.iter().for_each(|item| named_nics(item, numbers)),
        Value::Object(fields) => fields.values().for_each(|field| named_nics(field, numbers)),
        _ => {}
    }
}

/// The bytes of a location. Those of syntax errors have only a line and a column, both from 1.
fn place(text: &str, location: &Location) -> Option<Range<usize>> {
    if let Some(bytes) = bytes(location) {
        return Some(bytes);
    }
    let number = |number: u64| usize::try_from(number).ok()?.checked_sub(1);
    let (line, column) = (number(location.line())?, number(location.column())?);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = text.get(start..)?.trim_end();
    let before: usize = rest.chars().take(column).map(char::len_utf8).sum();
    // Something is missing at the end: the location is the last character.
    let start = match start + before {
        start if start < text.trim_end().len() => start,
        _ => text.trim_end().char_indices().next_back()?.0,
    };
    let length = text.get(start..)?.chars().next()?.len_utf8();
    Some(start..start + length)
}

fn span<T>(spanned: &Spanned<T>) -> Option<Range<usize>> {
    bytes(&spanned.referenced)
}

fn bytes(location: &Location) -> Option<Range<usize>> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    Some(start..start + length)
}

/// Where a key of the outermost level is.
fn found(text: &str, key: &str) -> Option<Range<usize>> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if line
            .strip_prefix(key)
            .is_some_and(|rest| rest.trim_start().starts_with(':'))
        {
            return Some(start..start + key.len());
        }
        start += line.len();
    }
    None
}
