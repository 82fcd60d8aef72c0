//! Commands that lose data change nothing without a confirmation: with `--yes` and the cluster's name, or on a terminal.

use crate::support::sandbox::Sandbox;
use crate::support::terminal::{Terminal, ended};
use ocpdeploy::state::inventory::Known;
use serde_json::json;

/// A command before and after CLUSTER, and what it shows before it asks.
type Lossy = (&'static [&'static str], &'static [&'static str], &'static str);

/// In an order in which each command is possible after those before it.
const COMMANDS: [Lossy; 5] = [
    (
        &["snapshot", "restore"],
        &["before"],
        "lab-worker-0, lab-worker-1 will be restored from snapshot before; all changes since ",
    ),
    (&["snapshot", "delete"], &["before"], "snapshot before, saved at "),
    (
        &["node", "replace"],
        &["worker-0"],
        "delete  machine  lab-worker-0  its node is drained first; all its disks are lost",
    ),
    (
        &["scale"],
        &["--workers", "1"],
        "delete  machine  lab-worker-1  its node is drained first; all its disks are lost",
    ),
    // Machines by name, so that the question is not below 38 lines of other objects.
    (&["destroy"], &[], "machine    lab-master-0"),
];

#[test]
fn a_command_that_loses_data_changes_nothing_without_a_confirmation() {
    let sandbox = Sandbox::new(json!({}));
    let settings = sandbox.env("lab", "masters=1\nworkers=2\nimage=coreos\nharvest_image=helper");
    let env_file = sandbox.path().join("env.sh");
    sandbox.deploy("lab").succeeded();
    sandbox.run(&["snapshot", "save", "lab", "before"]).succeeded();
    let dir = sandbox.home().cluster("lab");
    let id = Known::read(&dir).unwrap().unwrap().deployment.id;
    let now = || {
        let journal = std::fs::read_to_string(dir.journal()).ok();
        (sandbox.machines(None), sandbox.reservations(None), journal)
    };
    for (verb, rest, lost) in COMMANDS {
        let before = now();
        let (named, unnamed) = ([verb, &["lab"], rest].concat(), [verb, rest].concat());
        let refused = |words: &[&str], why: &str| {
            let outcome = sandbox.run(words);
            assert_eq!(outcome.code, Some(2), "{words:?}: {}", outcome.stderr);
            assert!(outcome.message().contains(why), "{words:?}: {}", outcome.stderr);
            assert!(now() == before, "{words:?} was rejected and changed something");
            let command = outcome.message().split('`').nth(1).unwrap_or_default();
            command.to_owned()
        };
        let hint = refused(&named, "stdin is not a terminal");
        assert_eq!(hint, format!("ocpdeploy {} --yes", named.join(" ")));
        // The only cluster, then the one of ./env.sh.
        let hint = refused(&unnamed, "stdin is not a terminal");
        let with_yes = [&unnamed[..], &["--yes"]].concat();
        let missing = "required arguments were not provided";
        refused(&with_yes, missing);
        std::fs::copy(&settings, &env_file).unwrap();
        assert_eq!(refused(&unnamed, "stdin is not a terminal"), hint);
        refused(&with_yes, missing);
        std::fs::remove_file(&env_file).unwrap();

        let mut terminal = Terminal::new();
        let child = terminal.start(sandbox.command(&unnamed).env("TERM", "dumb"));
        terminal.shows("? [y/N] ");
        terminal.types("n\r");
        assert_eq!(ended(child).code(), Some(2), "{}", terminal.shown());
        let shown = terminal.shown_at_last();
        for words in [
            format!("cluster lab.example.com, id {id}").as_str(),
            lost,
            "canceled; nothing was ",
        ] {
            assert!(shown.contains(words), "no `{words}` in:\n{shown}");
        }
        assert!(now() == before, "{unnamed:?} was declined and changed something");

        // The command of the hint works.
        let words: Vec<&str> = hint.split(' ').skip(1).collect();
        sandbox.run(&words).succeeded();
        assert!(now() != before, "{words:?} changed nothing");
    }
    assert_eq!(sandbox.machines(None), []);
}
