//! Which cluster an object belongs to: the cluster's domain, and the id of its deployment.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::text_type::text_type;

/// The domain of a cluster's hosts, `<name>.<base domain>`, e.g. `lab.example.com`.
///
/// The installer uses the same term (openshift/installer: `pkg/types/installconfig.go`, `ClusterDomain`). It does not
/// identify a cluster: several clusters may have the same domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterDomain(String);

impl ClusterDomain {
    /// Joins a cluster's name and base domain, both validated by `settings`.
    pub fn new(name: &str, base_domain: &str) -> Self {
        Self(format!("{name}.{base_domain}"))
    }

    /// As `new`, but validates a name and a base domain from a file.
    pub fn checked(name: &str, base_domain: &str) -> Result<Self, String> {
        match is_label(name) {
            true => Self::new(name, base_domain).to_string().parse(),
            false => Err(format!(
                "`{}` is not a cluster's name, such as lab",
                name.escape_debug()
            )),
        }
    }

    /// The cluster's name: the first label.
    pub fn name(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// The keys `cluster` and `domain`, its name and base domain, in a document for programs.
    pub fn as_keys<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, base_domain) = self.0.split_once('.').unwrap_or((&self.0, ""));
        serializer.collect_map([("cluster", name), ("domain", base_domain)])
    }

    /// The fully qualified name of a host of this cluster, e.g. `master-0.lab.example.com`.
    pub fn fqdn(&self, host: &str) -> String {
        format!("{host}.{}", self.0)
    }

    /// The host part of `fqdn` if it is a host of exactly this domain.
    ///
    /// `master-0.a.lab.example.com` is a host of cluster `a.lab.example.com`, not of `lab.example.com`.
    pub fn host_of<'a>(&self, fqdn: &'a str) -> Option<&'a str> {
        host_before(fqdn, &self.0)
    }
}

fn host_before<'a>(name: &'a str, domain: &str) -> Option<&'a str> {
    let host = name.strip_suffix(domain)?.strip_suffix('.')?;
    is_label(host).then_some(host)
}

fn is_domain(text: &str) -> bool {
    text.contains('.') && text.split('.').all(is_label)
}

text_type!(ClusterDomain, is_domain, "a cluster's domain, such as lab.example.com");

/// Whether a text is a lowercase DNS label, which needs no escaping in paths, URLs and files.
pub(super) fn is_label(text: &str) -> bool {
    let is_inner = |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
    (1..=63).contains(&text.len()) && !text.starts_with('-') && !text.ends_with('-') && text.bytes().all(is_inner)
}

/// The random id of a deployment, which distinguishes clusters of the same name.
///
/// It has the letters of the installer's infrastructure IDs (kubernetes/apimachinery: `pkg/util/rand/rand.go`,
/// `alphanums`), which form no words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeploymentId(String);

impl DeploymentId {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    const LENGTH: usize = 8;

    /// The id for a random number.
    pub fn from_random(mut number: u64) -> Self {
        let base = Self::LETTERS.len() as u64;
        let letters = (0..Self::LENGTH).map(|_| {
            let letter = Self::LETTERS[(number % base) as usize];
            number /= base;
            char::from(letter)
        });
        Self(letters.collect())
    }

    fn is_valid(text: &str) -> bool {
        text.len() == Self::LENGTH && text.bytes().all(|byte| Self::LETTERS.contains(&byte))
    }
}

text_type!(
    DeploymentId,
    DeploymentId::is_valid,
    "a deployment's id, such as x7k2pqrs"
);

/// One deployment of a cluster, the owner of objects on a platform.
///
/// Messages show it as the domain; platforms and files contain its `tag`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId {
    tag: String,
    domain: ClusterDomain,
    deployment: DeploymentId,
}

impl ClusterId {
    pub fn new(domain: ClusterDomain, deployment: DeploymentId) -> Self {
        Self {
            tag: format!("{domain}.{deployment}"),
            domain,
            deployment,
        }
    }

    /// Parses a tag of any owner; `None` if it is not one of this program.
    pub fn read(tag: &str) -> Option<Self> {
        let (domain, deployment) = tag.rsplit_once('.')?;
        Some(Self::new(domain.parse().ok()?, deployment.parse().ok()?))
    }

    /// The tag of each object on a platform: `<name>.<base domain>.<deployment's id>`, a DNS name.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    pub fn domain(&self) -> &ClusterDomain {
        &self.domain
    }

    pub fn deployment(&self) -> &DeploymentId {
        &self.deployment
    }

    /// The host part of `<host>.<tag>` if its tag is exactly this one.
    pub fn host_of<'a>(&self, tagged: &'a str) -> Option<&'a str> {
        host_before(tagged, &self.tag)
    }
}

impl TryFrom<String> for ClusterId {
    type Error = String;

    fn try_from(tag: String) -> Result<Self, String> {
        Self::read(&tag).ok_or_else(|| format!("`{}` is not the tag of a cluster", tag.escape_debug()))
    }
}

impl From<ClusterId> for String {
    fn from(id: ClusterId) -> Self {
        id.tag
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.domain, f)
    }
}

/// Who began a deployment, and when: information for other users who find its objects. Nothing depends on it, except
/// that `adopt` rejects a rehearsal as a real cluster, and a real cluster as a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Creation {
    /// `user@host`.
    by: String,
    /// In whole seconds.
    at: Timestamp,
    rehearsal: bool,
}

impl Creation {
    const LONGEST: usize = 64;
    const REHEARSAL: &str = " as a rehearsal";

    /// Replaces characters that a platform might not store by `-`.
    pub fn new(user: &str, host: &str, at: Timestamp) -> Self {
        let by: String = format!("{user}@{host}").chars().take(Self::LONGEST).collect();
        Self {
            by: by.replace(|c| !Self::is_kept(c), "-"),
            at: Timestamp::from_second(at.as_second()).unwrap_or(at),
            rehearsal: false,
        }
    }

    /// As it is stored with the machines of a rehearsal, or of a real cluster.
    pub fn of_kind(self, rehearsal: bool) -> Self {
        Self { rehearsal, ..self }
    }

    pub fn is_rehearsal(&self) -> bool {
        self.rehearsal
    }

    fn is_kept(c: char) -> bool {
        c.is_ascii_alphanumeric() || ".-_@".contains(c)
    }
}

impl FromStr for Creation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let of_rehearsal = text.strip_suffix(Self::REHEARSAL);
            let (by, at) = of_rehearsal.unwrap_or(text).split_once(' ')?;
            let is_valid = by.len() <= Self::LONGEST && by.chars().all(Self::is_kept);
            is_valid.then_some(Self {
                by: by.to_owned(),
                at: at.parse().ok()?,
                rehearsal: of_rehearsal.is_some(),
            })
        };
        parse().ok_or_else(|| format!("`{}` is not a user@host and a time", text.escape_debug()))
    }
}

impl TryFrom<String> for Creation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Creation> for String {
    fn from(creation: Creation) -> Self {
        creation.to_string()
    }
}

impl fmt::Display for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.rehearsal { Self::REHEARSAL } else { "" };
        write!(f, "{} {}{kind}", self.by, self.at)
    }
}

/// One deployment of a cluster: its id, and who began it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Deployment {
    pub id: DeploymentId,
    pub creation: Creation,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(domain: &str, number: u64) -> ClusterId {
        ClusterId::new(domain.parse().unwrap(), DeploymentId::from_random(number))
    }

    #[test]
    fn a_tag_names_exactly_one_deployment() {
        let lab = id("lab.example.com", 7);
        assert_eq!(lab.tag(), "lab.example.com.kbbbbbbb");
        assert_eq!(ClusterId::read(lab.tag()), Some(lab.clone()));
        assert_ne!(lab, id("lab.example.com", 8));
        for other in [
            "lab.example.com",
            "lab.example.com.",
            "lab.example.com.lbbbbbb",
            "lab.example.com.kbbbbbbbb",
            "lab.example.com.LBBBBBBB",
            "lab.example.com.abbbbbbb",
            "lab.kbbbbbbb",
            "lab..com.kbbbbbbb",
            "lab.example.com\n.kbbbbbbb",
            "../example.com.kbbbbbbb",
            "",
        ] {
            assert_eq!(ClusterId::read(other), None, "{other}");
        }
    }

    #[test]
    fn a_tagged_host_belongs_to_exactly_one_deployment() {
        let lab = id("lab.example.com", 7);
        assert_eq!(lab.host_of("master-0.lab.example.com.kbbbbbbb"), Some("master-0"));
        for foreign in [
            "master-0.lab.example.com.nbbbbbbb",
            "master-0.lab.example.com",
            "master-0.a.lab.example.com.kbbbbbbb",
            "master-0.mylab.example.com.kbbbbbbb",
            "lab.example.com.kbbbbbbb",
            ".lab.example.com.kbbbbbbb",
        ] {
            assert_eq!(lab.host_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn random_ids_have_one_form() {
        for number in [0, 1, 26, 27, u64::MAX] {
            let id = DeploymentId::from_random(number);
            assert_eq!(id.as_str().parse(), Ok(id));
        }
        assert_ne!(DeploymentId::from_random(1), DeploymentId::from_random(1 << 32));
    }

    #[test]
    fn a_creation_is_written_as_user_host_and_time() {
        let at: Timestamp = "2026-11-28T09:12:13.5Z".parse().unwrap();
        let creation = Creation::new("anna", "lap top\n", at);
        assert_eq!(creation.to_string(), "anna@lap-top- 2026-11-28T09:12:13Z");
        assert_eq!(creation.to_string().parse(), Ok(creation.clone()));
        let rehearsal = creation.of_kind(true);
        assert_eq!(
            rehearsal.to_string(),
            "anna@lap-top- 2026-11-28T09:12:13Z as a rehearsal"
        );
        assert_eq!(rehearsal.to_string().parse(), Ok(rehearsal));
        for bad in [
            "",
            "anna@laptop",
            "anna@laptop today",
            "a\nb 2026-11-28T09:12:13Z",
            "a b 2026-11-28T09:12:13Z",
        ] {
            assert!(bad.parse::<Creation>().is_err(), "{bad:?}");
        }
        assert!(
            format!("{} 2026-11-28T09:12:13Z", "a".repeat(65))
                .parse::<Creation>()
                .is_err()
        );
    }
}
