//! The final content of a terminal: each command's complete result, below the progress lines.

use crate::support::terminal;
use std::num::NonZero;
use std::process::Command;

use crate::support::sandbox::Sandbox;
use crate::support::terminal::{Terminal, ended};
use serde_json::json;

const LAB: &str = "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper";

/// Slow enough for progress lines to be redrawn.
fn lab() -> Sandbox {
    let sandbox =
        Sandbox::new(json!({"script": {"latency_ms": {"list_machines": 60, "list_owned": 60, "delete_machine": 200}}}));
    sandbox.env("lab", LAB);
    std::fs::create_dir_all(sandbox.path().join("root/etc")).unwrap();
    std::fs::write(sandbox.path().join("root/etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    sandbox
}

fn on_terminal(command: &mut Command) -> &mut Command {
    command.env("TERM", "xterm").env("NO_COLOR", "1")
}

/// The final lines of the screen, and those that have scrolled off.
fn screen(terminal: &Terminal) -> Vec<String> {
    let [rows, columns] = [terminal::ROWS, terminal::COLUMNS].map(|size| NonZero::new(size).unwrap());
    let mut screen = vt100::Parser::new(rows, columns, 0);
    screen.process(terminal.shown_at_last().as_bytes());
    let lines = screen.screen().rows(0, terminal::COLUMNS);
    let lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    let last = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |at| at + 1);
    lines[..last].to_vec()
}

/// Runs a command on a terminal; returns the screen when it has ended.
#[track_caller]
fn seen(sandbox: &Sandbox, arguments: &str, keys: Option<(&str, &str)>) -> Vec<String> {
    let mut terminal = Terminal::new();
    let words: Vec<&str> = arguments.split(' ').collect();
    let child = terminal.start(on_terminal(&mut sandbox.command(&words)));
    if let Some((question, answer)) = keys {
        terminal.shows(question);
        terminal.types(answer);
    }
    let code = ended(child).code();
    assert_eq!(code, Some(0), "{arguments}: {}", terminal.shown());
    screen(&terminal)
}

#[test]
fn each_result_is_complete_on_the_last_screen() {
    let sandbox = lab();
    let lines = |lines: &[String]| lines.join("\n");
    for (arguments, results) in [
        (
            "harvest lab.sh --rehearse",
            vec!["NAME       MAC                IP", "parameter file: "],
        ),
        (
            "deploy lab.sh --rehearse",
            vec!["NODE       MAC", "rehearsal of cluster lab.example.com succeeded"],
        ),
        (
            "status lab --watch",
            vec![
                "cluster lab.example.com on sim, rehearsal",
                "phase   rehearsal succeeded",
            ],
        ),
        ("status lab", vec!["phase   rehearsal succeeded"]),
        ("list", vec!["lab.example.com  sim (rehearsal)"]),
        ("audit", vec!["lab.example.com: "]),
        ("check lab.sh --rehearse", vec!["RESULT  CHECK"]),
        ("plan lab.sh --rehearse", vec!["peak usage: "]),
        ("node show worker-0", vec!["lab-worker-0 on sim"]),
        ("node console worker-0", vec!["lab-worker-0 starts"]),
        (
            "scale lab --workers 2",
            vec!["added: worker-1", "cluster lab.example.com has 2 workers"],
        ),
        (
            "node replace lab worker-1 --yes",
            vec!["worker-1 of cluster lab.example.com recreated with "],
        ),
        ("verify lab", vec!["entries of the parameter file"]),
        (
            "stop lab",
            vec!["cluster lab.example.com is off; `ocpdeploy start lab` starts it"],
        ),
        (
            "start lab",
            vec!["cluster lab.example.com runs, with the addresses it had"],
        ),
        (
            "dns apply lab --root root",
            vec!["added the names of cluster lab.example.com to"],
        ),
        ("image push lab.sh --rehearse", vec!["coreos"]),
        ("image list", vec!["pass-one images", "cache:"]),
        ("report lab -o report.html", vec!["report written to report.html"]),
    ] {
        let screen = seen(&sandbox, arguments, None);
        for result in results {
            assert!(
                screen.iter().any(|line| line.contains(result)),
                "{arguments}: no `{result}` in:\n{}",
                lines(&screen)
            );
        }
        // Redrawn lines are gone: each step is one line, with its time.
        assert!(
            !screen
                .iter()
                .any(|line| line.contains(['⠁', '⠉', '⠙', '⠚', '⠤', '⠴', '⠦', '⠒', '█', '░'])),
            "{arguments}: {}",
            lines(&screen)
        );
    }
    let question = "destroy lab.example.com? [y/N] ";
    let screen = seen(&sandbox, "destroy lab --root root", Some((question, "y\r")));
    let at = screen.iter().position(|line| line == &format!("{question}y"));
    assert!(at.is_some(), "{}", lines(&screen));
    assert_eq!(
        screen.last().unwrap(),
        "cluster lab.example.com destroyed",
        "{}",
        lines(&screen)
    );
}

#[test]
fn a_failure_is_complete_below_the_progress() {
    let sandbox = lab();
    sandbox.edit(|world| world["script"]["guests"] = json!({"lab-harvest-worker-0": {"does": "paused"}}));
    let terminal = Terminal::new();
    let child = terminal.start(on_terminal(&mut sandbox.command(&["harvest", "lab.sh", "--rehearse"])));
    assert_eq!(ended(child).code(), Some(5), "{}", terminal.shown());
    let screen = screen(&terminal);
    let at = screen
        .iter()
        .position(|line| line.starts_with("error: pass one: 1 machine"));
    let rest = &screen[at.unwrap_or_else(|| panic!("{}", screen.join("\n")))..];
    assert!(
        rest.iter().any(|line| line.starts_with("hint: ")),
        "{}",
        screen.join("\n")
    );
    assert!(
        rest.iter().all(|line| !line.starts_with("pass one  ")),
        "{}",
        screen.join("\n")
    );
}

#[test]
fn a_signal_is_reported_and_not_overwritten() {
    let sandbox = lab();
    sandbox.edit(|world| world["script"]["guests"] = json!({"lab-harvest-worker-0": {"does": "no_lease"}}));
    let terminal = Terminal::new();
    let child = terminal.start(on_terminal(&mut sandbox.command(&["harvest", "lab.sh", "--rehearse"])));
    terminal.shows("worker-0  ");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(ended(child).code(), Some(7), "{}", terminal.shown());
    let screen = screen(&terminal);
    assert_eq!(
        screen.last().unwrap(),
        "interrupted; to resume, run the same command again",
        "{}",
        screen.join("\n")
    );
}
