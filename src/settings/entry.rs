//! The types of an entry in the table of settings.

/// One setting of an env file.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    pub name: &'static str,
    /// Other names, used by env files of the proof of concept.
    pub aliases: &'static [&'static str],
    pub group: Group,
    pub kind: Kind,
    /// As written in an env file; empty if there is none.
    pub default: &'static str,
    /// The help: plain text in one line.
    pub doc: &'static str,
}

/// A heading of `env.sh.sample`, and the platform on which its settings have an effect; `None`: on all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    pub title: &'static str,
    pub platform: Option<&'static str>,
}

/// The form of a value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Text,
    /// Never displayed; may also be set as `<name>_file`.
    Secret,
    /// `true` or `false`.
    Switch,
    Count,
    /// Mebibytes: a plain number, or a number with a unit.
    Mib,
    /// Gibibytes: a plain number, or a number with a unit.
    Gib,
    Path,
    /// An address of either family.
    Ip,
    Ipv4,
    /// An address; an IPv6 address may follow an IPv4 address.
    Ips,
    /// A range of addresses such as `10.0.0.20-10.0.0.60`, or one address.
    Range,
    Mac,
    /// An IPv4 network such as `10.0.0.0/24`.
    Network,
    /// A network; an IPv6 network may follow an IPv4 network, such as `10.0.0.0/24,fd00:1::/64`.
    Networks,
    /// Such as `600` (seconds), `10m` or `1h30m`.
    Duration,
    /// One of these.
    Choice(fn() -> &'static [&'static str]),
    /// A list, separated by commas or spaces.
    List(&'static Kind),
    /// A list of `POOL:VALUE`.
    PerPool(&'static Kind),
}

impl Variable {
    pub fn is_secret(&self) -> bool {
        matches!(self.kind, Kind::Secret)
    }
}

impl Kind {
    /// The unit of a number, with a space before it.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Kind::Mib => " MiB",
            Kind::Gib => " GiB",
            Kind::List(item) | Kind::PerPool(item) => item.unit(),
            _ => "",
        }
    }
}
