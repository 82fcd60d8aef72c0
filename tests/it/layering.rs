//! The rules between the rooms, held by reading the source: who may use what, and where.
//!
//! Comments, literals and `#[cfg(test)]` items do not count. Paths are followed through `use` trees,
//! renames and `super`. Every rule brings sources that break it, and a test that it sees them.

use crate::support::source::{Source, program};

/// A rule: whom it is for and what it finds.
struct Rule {
    name: &'static str,
    /// Whether a file, by its path beneath `src`, is bound by the rule.
    binds: fn(&str) -> bool,
    /// What in the source breaks the rule: line and words.
    finds: fn(&Source) -> Vec<(usize, String)>,
    /// Sources that break this rule and no other.
    broken_by: &'static [(&'static str, &'static str)],
}

const PURE: &[&str] = &[
    "settings",
    "catalogue",
    "cluster",
    "csr",
    "machines",
    "printable",
    "addresses",
    "harvest",
    "digest",
    "export",
    "host",
    "ignition",
    "services",
    "survey",
    "templates",
    "xml",
];

/// What pure rooms may take from the crate: each other, and the values that pass between rooms.
const PURE_MAY_USE: &[&str] = &["backend", "parameters"];

/// Files, clock, chance, network, tasks, logging.
const IMPURE: &[&str] = &[
    "fs_err",
    "getrandom",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "rand",
    "reqwest",
    "std::env",
    "std::fs",
    "std::io::stderr",
    "std::io::stdin",
    "std::io::stdout",
    "std::net::TcpListener",
    "std::net::TcpStream",
    "std::net::ToSocketAddrs",
    "std::net::UdpSocket",
    "std::os",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "tempfile",
    "tokio",
    "tracing",
    "uuid::Uuid::new_v4",
];

/// Methods of `Path` that ask the file system without any import.
const PATH_METHODS: &[&str] = &[
    ".exists(",
    ".try_exists(",
    ".is_file(",
    ".is_dir(",
    ".is_symlink(",
    ".canonicalize(",
    ".metadata(",
    ".symlink_metadata(",
    ".read_dir(",
    ".read_link(",
];

const RULES: &[Rule] = &[
    Rule {
        name: "pure rooms take values and return values",
        binds: |file| PURE.contains(&room(file)),
        finds: |source| {
            let mut found = source.uses_of(IMPURE);
            found.extend(source.words(PATH_METHODS));
            found
        },
        broken_by: &[
            ("cluster.rs", "use std::fs;"),
            ("cluster.rs", "use std::{fmt, fs::File};"),
            ("cluster.rs", "use std::net;\nfn f() { net::TcpStream::connect(a) }"),
            ("cluster.rs", "use std as s;\nfn f() { s::env::var(a) }"),
            ("cluster.rs", "use std::*;"),
            ("cluster.rs", "fn f() { ::std::process::exit(1) }"),
            ("machines.rs", "fn f() { let t = std::time::Instant::now(); }"),
            ("addresses.rs", "use rand::Rng;"),
            ("templates.rs", "fn f() { tracing::info!(a) }"),
            ("ignition/merge.rs", "async fn f() { tokio::time::sleep(a).await }"),
            ("settings/envfile.rs", "fn f(p: &Path) -> bool { p\n.exists() }"),
            ("harvest.rs", "use jiff::Timestamp;\nfn f() { Timestamp::now() }"),
            ("digest.rs", "use reqwest::Client;"),
        ],
    },
    Rule {
        name: "pure rooms use pure rooms",
        binds: |file| PURE.contains(&room(file)),
        finds: |source| source.crate_uses(|path| PURE.contains(&path[0]) || shared_values(path)),
        broken_by: &[
            ("machines.rs", "use crate::journal::Journal;"),
            ("machines.rs", "use crate::{cluster::Role, home};"),
            ("machines.rs", "use crate::*;"),
            ("ignition/merge.rs", "use super::super::passes;"),
            ("settings/profile.rs", "fn f() { crate::home::write_private(a, b) }"),
            ("templates.rs", "use crate::backend::sim::Sim;"),
            (
                "templates.rs",
                "use crate::backend;\nfn f() { backend::libvirt::Libvirt::new() }",
            ),
        ],
    },
    Rule {
        name: "a backend knows the trait, the nouns and its own platform",
        binds: |file| own_backend(file).is_some(),
        finds: |source| {
            let own = own_backend(&source.file).unwrap_or_default();
            source.crate_uses(|path| match path {
                ["backend", second, ..] => *second == own || !is_backend(second),
                // OpenStack makes the small config that fetches a bootstrap's large one.
                ["ignition", ..] => own == "openstack",
                [first, ..] => ["backend", "capped", "cluster", "digest", "pace", "xml"].contains(first),
                [] => false,
            })
        },
        broken_by: &[
            ("backend/libvirt/mod.rs", "use crate::journal::Journal;"),
            ("backend/libvirt/domain.rs", "use crate::backend::sim::Sim;"),
            ("backend/libvirt/domain.rs", "use super::super::sim;"),
            ("backend/libvirt/domain.rs", "use super::super::super::passes;"),
            ("backend/sim.rs", "use super::{Backend, libvirt::Libvirt};"),
            ("backend/sim/mod.rs", "fn f() { crate::machines::plan(a) }"),
            ("backend/sim/mod.rs", "use crate::*;"),
        ],
    },
    Rule {
        name: "the command line is known to main and commands, the passes to those who tell their outcome",
        binds: |file| !["main", "cli", "commands"].contains(&room(file)),
        finds: |source| {
            let story = ["passes", "failure", "report"].contains(&room(&source.file));
            source.crate_uses(|path| match path[0] {
                "commands" | "cli" => false,
                "passes" => story,
                first => first != "*",
            })
        },
        broken_by: &[
            ("journal.rs", "use crate::commands::progress;"),
            ("report/mod.rs", "use crate::cli::Output;"),
            ("installer.rs", "use crate::{home, passes::deploy};"),
            ("journal.rs", "use crate::passes::PassError;"),
            ("passes.rs", "use crate::commands;"),
        ],
    },
    Rule {
        name: "stdout and stderr are written in one file, which is safe for a terminal and its moving lines",
        // Beside it: whether there is a terminal, and lines of progress where there is none.
        binds: |file| !["commands/output.rs", "commands/progress/mod.rs", "commands/terminal.rs"].contains(&file),
        finds: |source| {
            let mut found = source.words(&["print!", "println!", "eprint!", "eprintln!", "dbg!"]);
            found.extend(source.uses_of(&["std::io::stdout", "std::io::stderr"]));
            found
        },
        broken_by: &[
            ("main.rs", "fn f() { eprint!(a) }"),
            ("commands/destroy.rs", "fn f() { std::io::stdout().lock() }"),
            ("commands/init/ask.rs", "use std::io;\nfn f() { io::stderr().flush() }"),
            ("passes.rs", "fn f() { println!(a) }"),
            ("journal.rs", "fn f() { std::eprintln! (a) }"),
            ("backend/sim.rs", "fn f() { dbg!(a); }"),
            ("settings/mod.rs", "fn f() { print!(a) }"),
        ],
    },
    Rule {
        name: "unsafe code stands in one file",
        binds: |file| file != "backend/libvirt/leases.rs",
        finds: |source| source.words(&["unsafe"]),
        broken_by: &[
            ("journal.rs", "fn f() { unsafe { g() } }"),
            ("backend/libvirt/mod.rs", "unsafe impl Send for X {}"),
        ],
    },
    Rule {
        name: "nothing panics on what comes from outside",
        binds: |_| true,
        finds: |source| {
            source.words(&[
                ".unwrap",
                "::unwrap",
                ".expect(",
                "::expect",
                ".unwrap_err",
                ".expect_err",
                "panic!",
                "todo!",
                "unimplemented!",
            ])
        },
        broken_by: &[
            ("journal.rs", "fn f() { g().unwrap(); }"),
            ("main.rs", "fn f() { g()\n    .expect(\"\") }"),
            ("journal.rs", "fn f() { g().map(Result::unwrap) }"),
            (
                "journal.rs",
                "#[cfg(test)]\nfn t() { g().unwrap() }\nfn f() { panic!(a) }",
            ),
            ("journal.rs", "/* \" */ fn f() { todo!() }"),
            ("journal.rs", "fn f() { let q = '\"'; g().unwrap(); let r = '\"'; }"),
            ("journal.rs", "fn f() { let q = r#\"\\\"#; g().unwrap(); }"),
        ],
    },
    Rule {
        name: "YAML is read and written in few places",
        binds: |file| {
            ![
                "backend/openstack/auth.rs",
                "ignition/machine_configs.rs",
                "catalogue.rs",
                "commands/manifests.rs",
                "export/kubeconfig.rs",
                "installer/mask.rs",
                "parameters.rs",
                "settings/profile.rs",
            ]
            .contains(&file)
        },
        finds: |source| source.uses_of(&["serde_saphyr"]),
        broken_by: &[
            ("settings/mod.rs", "fn f() { serde_saphyr::from_str(a) }"),
            ("passes.rs", "use serde_saphyr as yaml;\nfn f() { yaml::to_string(a) }"),
        ],
    },
    Rule {
        name: "children are told of our surroundings by `child` and `installer` only",
        binds: |file| !["child", "installer"].contains(&room(file)),
        finds: |source| source.uses_of(&["std::process::Command", "tokio::process::Command"]),
        broken_by: &[
            ("commands/node.rs", "use std::process::Command;"),
            (
                "commands/node.rs",
                "use std::process;\nfn f() { process::Command::new(a) }",
            ),
            ("disk.rs", "use tokio::process::Command;"),
        ],
    },
];

/// The first part of a file's path: `settings/profile.rs` is in the room `settings`.
fn room(file: &str) -> &str {
    let first = file.split('/').next().unwrap_or(file);
    first.strip_suffix(".rs").unwrap_or(first)
}

/// The backend whose room a file is in; `backend/mod.rs` is nobody's.
fn own_backend(file: &str) -> Option<&str> {
    let room = room(file.strip_prefix("backend/")?);
    (room != "mod").then_some(room)
}

fn is_backend(module: &str) -> bool {
    ["libvirt", "sim", "ovirt", "openstack", "kubevirt", "*"].contains(&module)
}

/// The trait's values and the parameter file's, but no backend.
fn shared_values(path: &[&str]) -> bool {
    PURE_MAY_USE.contains(&path[0]) && path.get(1).is_none_or(|second| !is_backend(second))
}

/// All that breaks a rule, as it is shown.
fn violations(rules: &[Rule], file: &str, text: &str) -> Vec<String> {
    let source = Source::new(file, text);
    let show = |rule: &Rule| {
        let found = (rule.finds)(&source).into_iter();
        let lines: Vec<_> = found
            .map(|(line, what)| format!("src/{file}:{line}: {what}: {}", rule.name))
            .collect();
        lines
    };
    rules.iter().filter(|rule| (rule.binds)(file)).flat_map(show).collect()
}

#[test]
fn every_rule_holds() {
    let files = program();
    assert!(
        files.iter().any(|(file, _)| file == "backend/mod.rs"),
        "the source was not found"
    );
    let found: Vec<String> = files
        .iter()
        .flat_map(|(file, text)| violations(RULES, file, text))
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_rule_sees_what_breaks_it() {
    for rule in RULES {
        assert!(!rule.broken_by.is_empty(), "{}", rule.name);
        for (file, text) in rule.broken_by {
            let found = violations(std::slice::from_ref(rule), file, text);
            let sandbox = format!("src/{file}:{}:", text.lines().count());
            assert!(
                found.iter().any(|found| found.starts_with(&sandbox)),
                "`{text}` in {file} against: {}\n{found:?}",
                rule.name
            );
        }
    }
}

#[test]
fn what_is_allowed_breaks_no_rule() {
    for (file, text) in [
        (
            "cluster.rs",
            "use std::net::{IpAddr, Ipv4Addr};\nuse std::{fmt, path::PathBuf, time::Duration};",
        ),
        (
            "cluster.rs",
            "// use std::fs; println!()\n/* unsafe /* nested */ tokio::spawn() */ struct A;",
        ),
        (
            "cluster.rs",
            "const A: &str = \"std::fs::read() \\\" println!\"; const B: &str = r#\"\" unsafe \"#;",
        ),
        ("cluster.rs", "fn f<'a>(x: &'a str) -> char { '\"' } // g().unwrap()"),
        ("cluster.rs", "fn f() { let q = '\\''; let b = br\"unsafe\"; } // '"),
        ("cluster.rs", "#[cfg(test)]\nuse std::{fs, env};\nstruct A;"),
        (
            "cluster.rs",
            "#[cfg(test)]\nimpl A { fn f() { g().unwrap() } }\nstruct B;",
        ),
        (
            "cluster.rs",
            "#[cfg(all(test, feature = \"x\"))]\n#[allow(dead_code)]\nmod tests { fn f() { panic!() } }",
        ),
        (
            "cluster.rs",
            "#[expect(dead_code, reason = \"a\")]\npub(crate) fn f(fs: u8) -> u8 { fs }",
        ),
        (
            "machines.rs",
            "use crate::backend::{MachineSpec, Nic};\nuse crate::{addresses, parameters::Parameters};",
        ),
        (
            "settings/envfile.rs",
            "use super::problem::Problem;\nfn f() { super::variables::find(a) }",
        ),
        (
            "backend/sim/mod.rs",
            "mod world;\nuse super::{Backend, Limits};\nuse world::World;",
        ),
        (
            "backend/libvirt/domain.rs",
            "use crate::xml;\nuse crate::backend::libvirt::volume;\nuse virt::domain::Domain;",
        ),
        ("backend/libvirt/leases.rs", "fn f() { unsafe { g() } }"),
        ("commands/list.rs", "use crate::passes;"),
        ("commands/output.rs", "fn f() { std::io::stdout().lock() }"),
        (
            "passes.rs",
            "fn f() { if print != a {} self.exists = b; x.expect_it() }",
        ),
        ("parameters.rs", "use serde_saphyr::Error;"),
    ] {
        let found = violations(RULES, file, text);
        assert!(found.is_empty(), "`{text}`\n{}", found.join("\n"));
    }
}

#[test]
fn the_rules_name_rooms_that_exist() {
    let files = program();
    for room in PURE.iter().chain(PURE_MAY_USE) {
        assert!(
            files.iter().any(|(file, _)| self::room(file) == *room),
            "there is no room {room}"
        );
    }
}
