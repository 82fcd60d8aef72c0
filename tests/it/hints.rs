//! The commands that hints suggest: `destroy` only if the cluster cannot be a working one, all others with its name.

use std::collections::BTreeSet;

use crate::layering::sources;

/// Every message with `ocpdeploy destroy`, and why it does not concern a working cluster.
const DESTROYS: &[(&str, &str)] = &[
    (
        "not installed yet: `ocpdeploy destroy {",
        "the message states it; a test in passes/error.rs covers both kinds of clusters",
    ),
    (
        "not installed yet: run `ocpdeploy destroy {",
        "settings changed before the installation; passes/error.rs tests both cases",
    ),
    (
        "run `ocpdeploy destroy {cluster}`, then deploy again",
        "machines cannot get an address, or those of pass one lost their network; passes/error.rs tests both cases",
    ),
    (
        "not installed yet: `ocpdeploy deploy` resumes the deployment, `ocpdeploy destroy {",
        "`audit` reports it for unfinished deployments",
    ),
    (
        "not installed in a rehearsal: `ocpdeploy destroy {",
        "a rehearsal has no OpenShift; a real cluster gets another hint",
    ),
    (
        "is not installed and cannot be any more: `ocpdeploy destroy {",
        "the bootstrap did not end within the certificates' day",
    ),
    (
        "without the journal: `ocpdeploy destroy {",
        "reported for a cluster that is not installed; nothing else works with a damaged journal",
    ),
    (
        "`ocpdeploy status {name}` shows the existing objects, `ocpdeploy destroy {",
        "a command stopped before the installation; an installed cluster gets another hint",
    ),
    (
        "without it, `ocpdeploy destroy {domain} --from-backend",
        "the deployment is not complete, and its record is lost",
    ),
    (
        "f it is not needed any more, `ocpdeploy destroy {",
        "the user decides; `--from-backend` shows the objects and asks",
    ),
    (
        "if `ocpdeploy destroy {name}` was interrupted",
        "machines are missing, because `destroy` has begun or for another reason",
    ),
    (
        "`ocpdeploy destroy {name}` removes its directory",
        "the cluster has no objects left",
    ),
    (
        "to remove a cluster without its record: `ocpdeploy destroy {domain} --from-backend",
        "the user has asked for `destroy`",
    ),
];

/// Commands of hints in `passes` and `state` that need no cluster's name: they take none, use ./env.sh or another file,
/// or are mentioned as a feature.
const WITHOUT_CLUSTER: [&str; 10] = [
    "cache", "check", "config", "deploy", "dns", "export", "harvest", "image", "list", "state",
];

/// A file without comments and tests, in one line, as its messages are printed.
fn one_line(text: &str) -> String {
    let (code, _) = text.split_once("#[cfg(test)]\nmod tests").unwrap_or((text, ""));
    let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let words = lines.flat_map(|line| line.trim_end_matches('\\').split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

/// The files below these folders of `src`, each in one line.
fn files(folders: &[&str]) -> Vec<(String, String)> {
    let mut files = sources();
    files.retain(|(file, _)| folders.iter().any(|folder| file.starts_with(folder)));
    files.into_iter().map(|(file, text)| (file, one_line(&text))).collect()
}

#[test]
fn destroy_is_suggested_only_if_no_cluster_works() {
    let mut unused: BTreeSet<&str> = DESTROYS.iter().map(|(words, _)| *words).collect();
    for (file, mut text) in files(&["commands/", "local/", "openshift/", "passes/", "report/", "state/"]) {
        for &(words, _) in DESTROYS {
            if text.contains(words) {
                unused.remove(words);
                text = text.replace(words, "");
            }
        }
        let is_listed = !text.contains("ocpdeploy destroy");
        assert!(is_listed, "{file} suggests `destroy`: list it here with its reason");
    }
    assert!(unused.is_empty(), "no message has {unused:#?}");
}

#[test]
fn a_hint_is_a_command_with_the_clusters_own_name() {
    let mut commands = 0;
    for (file, text) in files(&["passes/", "state/"]) {
        for rest in text.split("`ocpdeploy ").skip(1) {
            let command = rest.split('`').next().unwrap_or_default();
            let verb = command.split(' ').next().unwrap_or_default();
            let has_name = command.contains('{') || WITHOUT_CLUSTER.contains(&verb);
            assert!(has_name && !command.contains("CLUSTER"), "{file}: {command}");
            commands += 1;
        }
    }
    assert!(commands > 50, "only {commands} commands were found");
}
