//! The import rules of `src`: layers, no cycles, pure modules. Parsed with `syn`; `#[cfg(test)]` items are exempt.
//!
//! Rules that clippy can check are in Cargo.toml's `[lints]` and clippy.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};

/// The folders and files at the root of `src`, lowest first: none imports what comes after it.
const LAYERS: &[&str] = &[
    "lib",
    "backoff",
    "digest",
    "error",
    "found_file",
    "http_limits",
    "http_upload",
    "limited_file",
    "kubeconfig",
    "kube_client",
    "printable",
    "templates",
    "xml",
    "cluster",
    "ignition",
    "backend",
    "state",
    "export",
    "node",
    "plan",
    "artifacts",
    "settings",
    "local",
    "openshift",
    "passes",
    "report",
    "failure",
    "cli",
    "commands",
    "main",
];

/// Modules that map values to values: no files, clock, network, processes, tasks or logging.
const PURE: &[&str] = &[
    "artifacts::catalogue",
    "cluster",
    "commands::init::survey",
    "digest",
    "error",
    "export",
    "ignition",
    "kubeconfig",
    "node",
    "openshift::csr",
    "plan",
    "printable",
    "settings",
    "templates",
    "xml",
];

/// Modules that pure modules may import besides each other, without their submodules: types.
const PURE_MAY_IMPORT: &[&str] = &[
    "backend",
    "lib",
    "state::inventory",
    "state::parameters",
    "state::registry_cache",
];

/// What makes a module impure.
const IMPURE: &[&str] = &[
    "fs_err",
    "getrandom",
    "jiff::Timestamp::now",
    "jiff::Zoned::now",
    "openssh",
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

/// Methods of `Path` that read the file system.
const PATH_METHODS: &[&str] = &[
    "canonicalize",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "try_exists",
];

/// Modules that read or write YAML.
const YAML: &[&str] = &[
    "artifacts::catalogue",
    "backend::openstack::auth::sources",
    "commands::manifests",
    "export::kubeconfig",
    "kubeconfig",
    "node::machine_configs",
    "node::network_config::document",
    "node::services::combined",
    "node::user_manifests",
    "openshift::installer::mask",
    "report",
    "settings::profile",
    "settings::registry_mirrors",
    "settings::version_lock",
    "state::parameters",
];

/// Modules that name platforms of `BackendConfig`. All others use its methods, `Capabilities` or the trait `Backend`.
const PLATFORMS: &[&str] = &[
    "backend::connect",
    "cluster::platform",
    // Only for oVirt.
    "commands::init::ovirt_ca",
    // Only for KubeVirt.
    "commands::csi",
    "commands::manifests",
    // Only for oVirt.
    "export::ansible",
    "settings::platforms",
];

/// The modules of a crate, by path: `backend::sim`, `lib` for the root.
struct Crate(BTreeMap<String, Module>);

/// The names in one file.
struct Module {
    file: String,
    /// Full paths outside this file's own module: `crate::state::home`, `std::fs::File`.
    paths: BTreeSet<String>,
    methods: BTreeSet<String>,
}

impl Crate {
    /// Files by their path below `src`, without files that are declared `#[cfg(test)]`.
    fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut read: Vec<(&str, Names)> = files
            .into_iter()
            .map(|(file, text)| {
                let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
                let mut names = Names::new(module_of(file));
                names.visit_file(&parsed);
                (file, names)
            })
            .collect();
        let tests: BTreeSet<String> = read.iter().flat_map(|(_, names)| names.tests.clone()).collect();
        read.retain(|(file, _)| !tests.iter().any(|test| is_beneath(&module_of(file).join("::"), test)));
        let module = |(file, names): (&str, Names)| {
            let module = Module {
                file: file.to_owned(),
                paths: names.resolved(),
                methods: names.methods,
            };
            (name_of(file), module)
        };
        Self(read.into_iter().map(module).collect())
    }

    /// The innermost module of a path; `None` for other crates.
    fn target(&self, path: &str) -> Option<&str> {
        let mut path = path.strip_prefix("crate")?.trim_start_matches("::");
        loop {
            if let Some((name, _)) = self.0.get_key_value(path) {
                return Some(name);
            }
            match path.rsplit_once("::") {
                Some((above, _)) => path = above,
                None => return self.0.get_key_value("lib").map(|(name, _)| name.as_str()),
            }
        }
    }

    fn imports(&self, name: &str) -> BTreeSet<&str> {
        let targets = self.0[name].paths.iter().filter_map(|path| self.target(path));
        targets.filter(|target| *target != name).collect()
    }

    fn all_imports(&self) -> Vec<(&str, &str)> {
        let names = self.0.keys();
        names
            .flat_map(|name| {
                self.imports(name)
                    .into_iter()
                    .map(move |target| (name.as_str(), target))
            })
            .collect()
    }

    /// An import with the paths that cause it.
    fn shown(&self, from: &str, to: &str) -> String {
        let paths = self.0[from].paths.iter().filter(|path| self.target(path) == Some(to));
        let paths: Vec<_> = paths.map(String::as_str).collect();
        format!("{from} imports {}", paths.join(", "))
    }

    /// Imports of a higher layer by a lower one.
    fn climbing(&self) -> Vec<String> {
        let rank = |module: &str| {
            let layer = module.split("::").next().unwrap_or_default();
            let rank = LAYERS.iter().position(|one| *one == layer);
            rank.unwrap_or_else(|| panic!("{layer} is not in LAYERS"))
        };
        let climbs = self
            .all_imports()
            .into_iter()
            .filter(|(from, to)| rank(to) > rank(from));
        climbs.map(|(from, to)| format!("{from} imports {to}")).collect()
    }

    /// Imports of one platform by another.
    fn between_platforms(&self) -> Vec<String> {
        let platform = |module: &str| -> Option<String> {
            let name = module.strip_prefix("backend::")?.split("::").next()?;
            // A folder is a platform.
            let is_folder = self.0.get(&format!("backend::{name}"))?.file.ends_with("/mod.rs");
            is_folder.then(|| name.to_owned())
        };
        let imports = self.all_imports().into_iter();
        let foreign = imports.filter(|(from, to)| match (platform(from), platform(to)) {
            (Some(from), Some(to)) => from != to,
            _ => false,
        });
        foreign.map(|(from, to)| format!("{from} imports {to}")).collect()
    }

    /// Groups of modules that import each other, each group sorted.
    fn cycles(&self) -> Vec<Vec<&str>> {
        let mut reach: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (from, to) in self.all_imports() {
            reach.entry(from).or_default().insert(to);
        }
        let direct = reach.clone();
        for targets in reach.values_mut() {
            let mut next: Vec<&str> = targets.iter().copied().collect();
            while let Some(name) = next.pop() {
                for target in direct.get(name).into_iter().flatten() {
                    if targets.insert(target) {
                        next.push(target);
                    }
                }
            }
        }
        let reaches = |from: &str, to: &str| reach.get(from).is_some_and(|targets| targets.contains(to));
        let names = reach.keys().filter(|name| reaches(name, name));
        let groups: BTreeSet<Vec<&str>> = names
            .map(|name| {
                let together = reach
                    .keys()
                    .filter(|other| reaches(name, other) && reaches(other, name));
                together.copied().collect()
            })
            .collect();
        groups.into_iter().collect()
    }

    /// Impure code and imports in pure modules.
    fn impure(&self) -> Vec<String> {
        let is_pure = |module: &str| PURE.iter().any(|pure| is_beneath(module, pure));
        let mut found = Vec::new();
        for (name, module) in self.0.iter().filter(|(name, _)| is_pure(name)) {
            let imports = self.imports(name).into_iter();
            let imports = imports.filter(|target| !is_pure(target) && !PURE_MAY_IMPORT.contains(target));
            let paths = module.paths.iter().map(String::as_str);
            // A glob or a whole module includes its content, as `std::*` does.
            let paths = paths.filter(|path| {
                let whole = path.strip_suffix("::*");
                IMPURE
                    .iter()
                    .any(|impure| is_beneath(path, impure) || whole.is_some_and(|whole| is_beneath(impure, whole)))
            });
            let methods = module.methods.iter().map(String::as_str);
            let methods = methods.filter(|method| PATH_METHODS.contains(method));
            found.extend(
                imports
                    .chain(paths)
                    .chain(methods)
                    .map(|what| format!("{name} uses {what}")),
            );
        }
        found
    }

    /// Paths in modules other than these.
    fn paths_outside(&self, modules: &[&str], is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for (name, module) in self.0.iter().filter(|(name, _)| !modules.contains(&name.as_str())) {
            let paths = module.paths.iter().filter(|path| is_meant(path));
            found.extend(paths.map(|path| format!("{name} uses {path}")));
        }
        found
    }

    fn yaml(&self) -> Vec<String> {
        self.paths_outside(YAML, |path| is_beneath(path, "serde_saphyr"))
    }

    /// Variants of `BackendConfig`, in patterns and in expressions.
    fn platforms(&self) -> Vec<String> {
        let is_variant = |name: &str| name.starts_with(|first: char| first.is_uppercase() || first == '*');
        self.paths_outside(PLATFORMS, |path| {
            path.split_once("BackendConfig::")
                .is_some_and(|(_, name)| is_variant(name))
        })
    }
}

/// The names in a file: `use` trees, other paths, also those in macros' arguments, and methods.
struct Names {
    module: Vec<String>,
    /// Each with its module: a file may declare modules.
    paths: Vec<(Vec<String>, Vec<String>)>,
    /// What `use` and `mod` bring into scope: name, full path.
    scope: BTreeMap<String, Vec<String>>,
    methods: BTreeSet<String>,
    tests: BTreeSet<String>,
}

impl Names {
    fn new(module: Vec<String>) -> Self {
        Self {
            module,
            paths: Vec::new(),
            scope: BTreeMap::new(),
            methods: BTreeSet::new(),
            tests: BTreeSet::new(),
        }
    }

    fn add(&mut self, path: Vec<String>) {
        self.paths.push((self.module.clone(), path));
    }

    fn resolved(&self) -> BTreeSet<String> {
        let full = |(module, path): &(Vec<String>, Vec<String>)| self.full_path(module, path, 4).join("::");
        self.paths.iter().map(full).collect()
    }

    /// Follows `self`, `super`, renames and modules that the file declares.
    fn full_path(&self, module: &[String], path: &[String], depth: usize) -> Vec<String> {
        let root = ["crate".to_owned()];
        let (first, rest) = path.split_first().unwrap();
        match first.as_str() {
            "self" => [&root, module, rest].concat(),
            "super" => {
                let ups = path.iter().take_while(|part| *part == "super").count();
                let above = &module[..module.len().saturating_sub(ups)];
                [&root, above, &path[ups..]].concat()
            }
            first => match self.scope.get(first) {
                Some(full) if depth > 0 && full[0] != first => {
                    self.full_path(module, &[full, rest].concat(), depth - 1)
                }
                _ => path.to_vec(),
            },
        }
    }

    fn use_tree(&mut self, tree: &syn::UseTree, above: &[String]) {
        let with = |name: &str| [above, &[name.to_owned()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.use_tree(&path.tree, &with(&path.ident.to_string())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, above)),
            syn::UseTree::Glob(_) => self.add(with("*")),
            syn::UseTree::Name(name) => self.bring(name.ident.to_string(), with(&name.ident.to_string())),
            syn::UseTree::Rename(rename) => self.bring(rename.rename.to_string(), with(&rename.ident.to_string())),
        }
    }

    fn bring(&mut self, mut name: String, mut path: Vec<String>) {
        // `net::{self, ..}` is `net`.
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
            if name == "self" {
                name = path.last().cloned().unwrap_or_default();
            }
        }
        self.scope.entry(name).or_insert_with(|| path.clone());
        self.add(path);
    }

    /// Paths among the tokens of a macro's arguments: names joined by `::`.
    fn tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let (mut path, mut colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.path(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                token => {
                    self.path(std::mem::take(&mut path));
                    colons = 0;
                    if let proc_macro2::TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(path);
    }

    /// A single name is a variable, or imported by a `use`.
    fn path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            self.add(path);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes: &[syn::Attribute] = match item {
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            syn::Item::Type(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            _ => &[],
        };
        match item {
            syn::Item::Mod(item) if is_test(attributes) => {
                let path = [&self.module[..], &[item.ident.to_string()]].concat();
                self.tests.insert(path.join("::"));
            }
            _ if is_test(attributes) => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_some() {
            self.module.push(name);
            visit::visit_item_mod(self, item);
            self.module.pop();
        } else {
            let path = ["self".to_owned(), name.clone()];
            self.scope.insert(name, path.to_vec());
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.use_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.path(path.segments.iter().map(|part| part.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.methods.insert(call.method.to_string());
        visit::visit_expr_method_call(self, call);
    }
}

/// `#[cfg(test)]` and `#[cfg(all(test, ..))]`.
fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let words: String = list.tokens.to_string().split_whitespace().collect();
            words == "test" || words.starts_with("all(test,")
        }
        _ => false,
    })
}

/// `backend/sim/mod.rs` is the module `backend::sim`; the crate's root has no name.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    match path {
        "lib" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

fn name_of(file: &str) -> String {
    match file {
        "lib.rs" => "lib".to_owned(),
        file => module_of(file).join("::"),
    }
}

/// Whether a path is another one or is below it.
fn is_beneath(path: &str, above: &str) -> bool {
    path.strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// All files of `src`: path below `src`, text.
pub fn sources() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut folders) = (Vec::new(), vec![src.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
                files.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    files
}

fn program() -> Crate {
    let sources = sources();
    let program = Crate::new(sources.iter().map(|(file, text)| (file.as_str(), text.as_str())));
    assert!(program.0.contains_key("backend::sim"), "the source was not found");
    program
}

/// One test, because the source takes seconds to parse.
#[test]
fn the_source_follows_the_layer_rules() {
    let program = program();
    let circles = program.cycles();
    let together = |(from, to): &(&str, &str)| circles.iter().any(|group| group.contains(from) && group.contains(to));
    let in_circles = program.all_imports().into_iter().filter(together);
    let rules = [
        ("a lower layer imports no higher one", program.climbing()),
        ("platforms import no other platform", program.between_platforms()),
        (
            "modules import each other in a cycle",
            in_circles.map(|(from, to)| program.shown(from, to)).collect(),
        ),
        ("pure modules take values and return values", program.impure()),
        ("YAML is read and written in few places", program.yaml()),
        ("few modules name platforms", program.platforms()),
    ];
    let broken: Vec<_> = rules.iter().filter(|(_, found)| !found.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
    for module in YAML.iter().chain(PURE).chain(PURE_MAY_IMPORT).chain(PLATFORMS) {
        assert!(program.0.contains_key(*module), "there is no module {module}");
    }
}

#[test]
fn an_import_from_a_higher_layer_is_found() {
    for (file, text) in [
        ("state/mod.rs", "use crate::passes::Run;"),
        ("state/mod.rs", "use crate::{cluster::Role, passes::{Run as Deploy}};"),
        ("state/mod.rs", "use super::passes;"),
        ("state/mod.rs", "use crate as root;\nfn f() { root::passes::run() }"),
        ("state/mod.rs", "fn f() { crate::passes::run() }"),
        ("state/mod.rs", "fn f() -> Vec<crate::passes::Run> { todo() }"),
        ("state/mod.rs", "fn f() { format!(\"{}\", g(crate::passes::name())) }"),
        ("state/mod.rs", "mod inner { use super::super::passes; }"),
        ("state/mod.rs", "impl From<crate::passes::Run> for A {}"),
    ] {
        let found = Crate::new([(file, text), ("passes/mod.rs", ""), ("cluster/mod.rs", "")]).climbing();
        assert_eq!(found, ["state imports passes"], "{text}");
    }
    for text in [
        "#[cfg(test)]\nuse crate::passes::Run;",
        "#[cfg(all(test, feature = \"x\"))]\nmod tests { use crate::passes; }",
        "impl A { #[cfg(test)]\nfn f() { crate::passes::run() } }",
        "use crate::cluster::Role; // crate::passes",
        "const A: &str = \"crate::passes\";",
    ] {
        let found = Crate::new([("state/mod.rs", text), ("passes/mod.rs", ""), ("cluster/mod.rs", "")]).climbing();
        assert_eq!(found, [""; 0], "{text}");
    }
    // The tests of a module, in a file of their own.
    let files = [
        ("state/mod.rs", "#[cfg(test)]\nmod tests;"),
        ("state/tests.rs", "use crate::passes;"),
        ("passes/mod.rs", ""),
    ];
    assert_eq!(Crate::new(files).climbing(), [""; 0]);
}

#[test]
fn an_import_between_platforms_is_found() {
    for text in [
        "use super::super::sim;",
        "use crate::backend;\nfn f() { backend::sim::new() }",
    ] {
        let files = [
            ("backend/libvirt/domain.rs", text),
            ("backend/libvirt/mod.rs", "mod domain;"),
            ("backend/sim/mod.rs", ""),
        ];
        let found = Crate::new(files).between_platforms();
        assert_eq!(found, ["backend::libvirt::domain imports backend::sim"], "{text}");
    }
}

#[test]
fn a_cycle_is_found() {
    let files = [
        (
            "plan/mod.rs",
            "pub mod a;\npub mod b;\npub mod c;\nmod d;\npub use d::D;",
        ),
        ("plan/a.rs", "use super::b::B;"),
        ("plan/b.rs", "use crate::plan::c;"),
        ("plan/c.rs", "fn f() { super::a::f() }"),
        // A module that re-exports imports what it re-exports.
        ("plan/d.rs", "use super::E;"),
        ("state/mod.rs", "use crate::plan::a;"),
    ];
    let program = Crate::new(files);
    assert_eq!(
        program.cycles(),
        [vec!["plan", "plan::d"], vec!["plan::a", "plan::b", "plan::c"]]
    );
}

#[test]
fn impure_code_in_a_pure_module_is_found() {
    for text in [
        "use std::fs;",
        "use std::{fmt, fs::File};",
        "use std::net;\nfn f() { net::TcpStream::connect(a) }",
        "use std as s;\nfn f() { s::env::var(a) }",
        "use std::*;",
        "fn f() { ::std::process::exit(1) }",
        "fn f() { let t = std::time::Instant::now(); }",
        "fn f() { tracing::info!(a) }",
        "async fn f() { tokio::time::sleep(a).await }",
        "fn f(p: &Path) -> bool { p\n.exists() }",
        "use jiff::Timestamp;\nfn f() { Timestamp::now() }",
        "use crate::state::journal::Journal;",
        "use crate::backend::sim::Sim;",
    ] {
        let files = [
            ("cluster/mod.rs", text),
            ("state/journal.rs", ""),
            ("backend/sim/mod.rs", ""),
        ];
        assert!(!Crate::new(files).impure().is_empty(), "{text}");
    }
    let allowed = "use std::net::IpAddr;\nuse std::{fmt, path::PathBuf, time::Duration};\n\
                   use crate::backend::Nic;\nuse crate::digest;";
    let files = [("cluster/mod.rs", allowed), ("backend/mod.rs", ""), ("digest.rs", "")];
    assert_eq!(Crate::new(files).impure(), [""; 0]);
}

#[test]
fn yaml_outside_its_modules_is_found() {
    let text = "use serde_saphyr as yaml;\nfn f() { yaml::to_string(a) }";
    let files = [("passes/mod.rs", text), ("settings/profile.rs", text)];
    let found = ["passes uses serde_saphyr", "passes uses serde_saphyr::to_string"];
    assert_eq!(Crate::new(files).yaml(), found);
}

#[test]
fn a_match_of_platforms_elsewhere_is_caught() {
    let used = "use crate::cluster::BackendConfig;\n";
    for text in [
        "fn f() { match b { BackendConfig::Ovirt(ovirt) => a, _ => c } }",
        "fn f() { if matches!(b, Some(BackendConfig::Ovirt(_))) { a() } }",
        "fn f() { let BackendConfig::Ovirt(ovirt) = b else { return }; }",
        "use BackendConfig as B;\nfn f() { matches!(b, B::Ovirt(_)) }",
        "use crate::cluster::BackendConfig::*;",
    ] {
        let text = format!("{used}{text}");
        let found = Crate::new([("passes/mod.rs", text.as_str()), ("cluster/platform.rs", text.as_str())]).platforms();
        assert!(
            matches!(&found[..], [one] if one.starts_with("passes uses crate::cluster::BackendConfig::")),
            "{found:?}"
        );
    }
    let allowed = format!("{used}fn f(b: &BackendConfig) {{ BackendConfig::name(b); b.pod_network() }}");
    assert_eq!(Crate::new([("passes/mod.rs", allowed.as_str())]).platforms(), [""; 0]);
}
