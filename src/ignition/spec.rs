//! The structure of an Ignition 3 config: one table for merge and checks.
//!
//! A new field or list of a spec version is one line here. Source: coreos/ignition, `config/v3_*/types/schema.go`,
//! and the `Key`, `IgnoreDuplicates` and `MergedKeys` methods there.

/// The type of a value, and how two of them are merged.
#[derive(Debug)]
pub enum Shape {
    /// The child's, if it has one.
    Text,
    Integer,
    Bool,
    /// Merged field by field.
    Object(&'static [Field]),
    /// Entries with the same key are merged at the parent's position; the child's others follow.
    Keyed(Key, &'static [Field]),
    /// Unique texts: the parent's, then the child's additional ones.
    Set,
    /// The parent's texts, then the child's, including duplicates.
    Texts,
    /// The parent's objects, then the child's, including duplicates.
    Series(&'static [Field]),
}

/// What identifies the entries of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Field(&'static str),
    /// A partition's number, or its label if that is 0 or missing.
    NumberOrLabel,
}

/// One field of an object.
#[derive(Debug)]
pub struct Field {
    pub name: &'static str,
    /// The first minor version of spec 3 that has it.
    pub since: u32,
    pub shape: Shape,
}

/// The field with this name.
pub fn find(fields: &'static [Field], name: &str) -> Option<&'static Field> {
    fields.iter().find(|field| field.name == name)
}

/// Lists of one object that share their keys: an entry replaces one with the same key in the other lists.
pub const SHARED_KEYS: &[&[&str]] = &[&["files", "directories", "links"], &["shouldExist", "shouldNotExist"]];

const fn f(name: &'static str, since: u32, shape: Shape) -> Field {
    Field { name, since, shape }
}

use Shape::{Bool, Integer, Keyed, Object, Series, Set, Text, Texts};

pub const CONFIG: &[Field] = &[
    f("ignition", 0, Object(IGNITION)),
    f("kernelArguments", 3, Object(KERNEL_ARGUMENTS)),
    f("passwd", 0, Object(PASSWD)),
    f("storage", 0, Object(STORAGE)),
    f("systemd", 0, Object(SYSTEMD)),
];

const IGNITION: &[Field] = &[
    f("config", 0, Object(IGNITION_CONFIG)),
    f("proxy", 1, Object(PROXY)),
    f("security", 0, Object(SECURITY)),
    f("timeouts", 0, Object(TIMEOUTS)),
    f("version", 0, Text),
];

const IGNITION_CONFIG: &[Field] = &[
    f("merge", 0, Keyed(Key::Field("source"), REFERENCE)),
    f("replace", 0, Object(REFERENCE)),
];

const PROXY: &[Field] = &[f("httpProxy", 1, Text), f("httpsProxy", 1, Text), f("noProxy", 1, Set)];

const SECURITY: &[Field] = &[f("tls", 0, Object(TLS))];

const TLS: &[Field] = &[f("certificateAuthorities", 0, Keyed(Key::Field("source"), REFERENCE))];

const TIMEOUTS: &[Field] = &[f("httpResponseHeaders", 0, Integer), f("httpTotal", 0, Integer)];

/// A reference to a config: before 3.1 it could not be compressed.
const REFERENCE: &[Field] = &[
    f("compression", 1, Text),
    f("httpHeaders", 1, HEADERS),
    f("source", 0, Text),
    f("verification", 0, Object(VERIFICATION)),
];

/// The content of a file.
const RESOURCE: &[Field] = &[
    f("compression", 0, Text),
    f("httpHeaders", 1, HEADERS),
    f("source", 0, Text),
    f("verification", 0, Object(VERIFICATION)),
];

const HEADERS: Shape = Keyed(Key::Field("name"), &[f("name", 1, Text), f("value", 1, Text)]);

const VERIFICATION: &[Field] = &[f("hash", 0, Text)];

const KERNEL_ARGUMENTS: &[Field] = &[f("shouldExist", 3, Set), f("shouldNotExist", 3, Set)];

const PASSWD: &[Field] = &[
    f("groups", 0, Keyed(Key::Field("name"), GROUP)),
    f("users", 0, Keyed(Key::Field("name"), USER)),
];

const GROUP: &[Field] = &[
    f("gid", 0, Integer),
    f("name", 0, Text),
    f("passwordHash", 0, Text),
    f("shouldExist", 2, Bool),
    f("system", 0, Bool),
];

const USER: &[Field] = &[
    f("gecos", 0, Text),
    f("groups", 0, Set),
    f("homeDir", 0, Text),
    f("name", 0, Text),
    f("noCreateHome", 0, Bool),
    f("noLogInit", 0, Bool),
    f("noUserGroup", 0, Bool),
    f("passwordHash", 0, Text),
    f("primaryGroup", 0, Text),
    f("sshAuthorizedKeys", 0, Set),
    f("shell", 0, Text),
    f("shouldExist", 2, Bool),
    f("system", 0, Bool),
    f("uid", 0, Integer),
];

const STORAGE: &[Field] = &[
    f("directories", 0, Keyed(Key::Field("path"), DIRECTORY)),
    f("disks", 0, Keyed(Key::Field("device"), DISK)),
    f("files", 0, Keyed(Key::Field("path"), FILE)),
    f("filesystems", 0, Keyed(Key::Field("device"), FILESYSTEM)),
    f("links", 0, Keyed(Key::Field("path"), LINK)),
    f("luks", 2, Keyed(Key::Field("name"), LUKS)),
    f("raid", 0, Keyed(Key::Field("name"), RAID)),
];

const DIRECTORY: &[Field] = &[
    f("group", 0, Object(OWNER)),
    f("mode", 0, Integer),
    f("overwrite", 0, Bool),
    f("path", 0, Text),
    f("user", 0, Object(OWNER)),
];

const FILE: &[Field] = &[
    f("append", 0, Series(RESOURCE)),
    f("contents", 0, Object(RESOURCE)),
    f("group", 0, Object(OWNER)),
    f("mode", 0, Integer),
    f("overwrite", 0, Bool),
    f("path", 0, Text),
    f("user", 0, Object(OWNER)),
];

const LINK: &[Field] = &[
    f("group", 0, Object(OWNER)),
    f("hard", 0, Bool),
    f("overwrite", 0, Bool),
    f("path", 0, Text),
    f("target", 0, Text),
    f("user", 0, Object(OWNER)),
];

const OWNER: &[Field] = &[f("id", 0, Integer), f("name", 0, Text)];

const DISK: &[Field] = &[
    f("device", 0, Text),
    f("partitions", 0, Keyed(Key::NumberOrLabel, PARTITION)),
    f("wipeTable", 0, Bool),
];

const PARTITION: &[Field] = &[
    f("guid", 0, Text),
    f("label", 0, Text),
    f("number", 0, Integer),
    f("resize", 2, Bool),
    f("shouldExist", 0, Bool),
    f("sizeMiB", 0, Integer),
    f("startMiB", 0, Integer),
    f("typeGuid", 0, Text),
    f("wipePartitionEntry", 0, Bool),
];

const FILESYSTEM: &[Field] = &[
    f("device", 0, Text),
    f("format", 0, Text),
    f("label", 0, Text),
    f("mountOptions", 1, Texts),
    f("options", 0, Texts),
    f("path", 0, Text),
    f("uuid", 0, Text),
    f("wipeFilesystem", 0, Bool),
];

const LUKS: &[Field] = &[
    f("cex", 5, Object(&[f("enabled", 5, Bool)])),
    f("clevis", 2, Object(CLEVIS)),
    f("device", 2, Text),
    f("discard", 4, Bool),
    f("keyFile", 2, Object(RESOURCE)),
    f("label", 2, Text),
    f("name", 2, Text),
    // Unlike `options`, not in `IgnoreDuplicates` of any version.
    f("openOptions", 4, Set),
    f("options", 2, Texts),
    f("uuid", 2, Text),
    f("wipeVolume", 2, Bool),
];

const CLEVIS: &[Field] = &[
    f("custom", 2, Object(CLEVIS_CUSTOM)),
    f("tang", 2, Keyed(Key::Field("url"), TANG)),
    f("threshold", 2, Integer),
    f("tpm2", 2, Bool),
];

const CLEVIS_CUSTOM: &[Field] = &[f("config", 2, Text), f("needsNetwork", 2, Bool), f("pin", 2, Text)];

const TANG: &[Field] = &[f("advertisement", 4, Text), f("thumbprint", 2, Text), f("url", 2, Text)];

const RAID: &[Field] = &[
    f("devices", 0, Set),
    f("level", 0, Text),
    f("name", 0, Text),
    f("options", 0, Texts),
    f("spares", 0, Integer),
];

const SYSTEMD: &[Field] = &[f("units", 0, Keyed(Key::Field("name"), UNIT))];

const UNIT: &[Field] = &[
    f("contents", 0, Text),
    f(
        "dropins",
        0,
        Keyed(Key::Field("name"), &[f("contents", 0, Text), f("name", 0, Text)]),
    ),
    f("enabled", 0, Bool),
    f("mask", 0, Bool),
    f("name", 0, Text),
];
