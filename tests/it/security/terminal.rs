//! Hostile text in every field that others write, and what of it reaches a terminal, a page, JSON or a log.
//!
//! | who writes it | what | commands that show it |
//! |---|---|---|
//! | the platform | names of machines, nodes, networks, images, objects; status; forms | status, audit, node show, verify, destroy, check, plan |
//! | the platform | error messages | each command that asks it |
//! | a guest | its console | node console, errors of a pass, the bundle (`whole_run.rs`) |
//! | the journal, the log | errors and warnings of earlier runs | status, list, report |
//! | an Ignition config | paths, units, users, contents | ignition show, check, diff, merge |
//! | an env file | values, names of settings | config, plan, check, deploy |
//! | the API of the cluster | requests, operators, conditions | deploy, verify (`whole_run.rs`) |

use crate::support::fake_cloud::{FakeCloud, PASSWORD, Trouble};
use crate::support::sandbox::{Outcome, Sandbox};
use crate::support::terminal::{Terminal, ended};
use ocpdeploy::printable::{printable_console, printable_json, printable_line, printable_text};
use serde_json::{Value, json};

use crate::support::qcow2;

/// Fills the clipboard (OSC 52), hides a link (OSC 8), clears the screen (C0 and C1), turns text around, and begins lines
/// that look like ours, on a terminal and on a page.
const HOSTILE: &str = "evil\u{1b}]52;c;cm0gLXJm\u{7}\u{1b}]8;;http://192.0.2.1/\u{7}\u{1b}[2J\u{9b}2J\u{202e}\r\n\
    hint: forged\nerror: forged\ncaused by: forged\nwarning: forged\n[0.1s] lab-master-0: forged\r[0.1s] forged\
    <script>alert(1)</script><img src=x onerror=alert(1)>";
const FORGED: [&str; 6] = [
    "hint: f",
    "error: f",
    "caused by: f",
    "warning: f",
    "[0.1s] lab-master-0: f",
    "[0.1s] f",
];

/// Fails if the text has escape sequences, or a forged line.
#[track_caller]
fn is_safe(what: &str, text: &str) {
    assert_eq!(printable_text(text), text, "{what}");
    for line in text.lines() {
        assert!(
            !FORGED.iter().any(|forged| line.starts_with(forged)),
            "{what}: a forged line\n{text}"
        );
    }
}

#[track_caller]
fn shown_safely(sandbox: &Sandbox, arguments: &[&str]) -> Outcome {
    let outcome = sandbox.run(arguments);
    match arguments {
        // There all lines are the guest's.
        ["node", "console", ..] => assert_eq!(printable_text(&outcome.stdout), outcome.stdout),
        _ => is_safe(&format!("{arguments:?}, stdout"), &outcome.stdout),
    }
    is_safe(&format!("{arguments:?}, stderr"), &outcome.stderr);
    assert_ne!(outcome.code, Some(70), "{arguments:?}: {}", outcome.stderr);
    outcome
}

/// A successful rehearsal, with a platform and a folder that were then filled with hostile text.
fn haunted() -> Sandbox {
    let sandbox = Sandbox::new(json!({}));
    sandbox.env("lab", "masters=1\nworkers=1\nimage=coreos\nharvest_image=helper");
    sandbox.deploy("lab").succeeded();
    sandbox.edit(|world| {
        let mut machine = world["machines"]["lab-worker-0"].clone();
        machine["image"] = json!(HOSTILE);
        machine["node"] = json!("forged");
        machine["nics"][0]["network"] = json!(HOSTILE);
        world["machines"]["lab-forged"] = machine;
        world["machines"]["lab-worker-0"]["nics"][0]["network"] = json!(HOSTILE);
        let mut helper = world["machines"]["lab-master-0"].clone();
        helper["pass"] = json!("one");
        world["machines"]["lab-harvest-forged"] = helper;
        world["images"].as_array_mut().unwrap().push(json!(HOSTILE));
        world["foreign_machines"][HOSTILE] = json!({});
        let network = world["networks"]["default"].clone();
        world["networks"][HOSTILE] = network;
    });
    let dir = sandbox.home().cluster("lab");
    let add = |path: &std::path::Path, line: Value| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        std::fs::write(path, format!("{text}{line}\n")).unwrap();
    };
    let journal = dir.journal();
    let text = std::fs::read_to_string(&journal).unwrap();
    let mut last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    last["seq"] = json!(last["seq"].as_u64().unwrap() + 1);
    last["event"] = json!("failed");
    last["step"] = json!("bootstrap-complete");
    last["error"] = json!(HOSTILE);
    last.as_object_mut().unwrap().remove("output");
    add(&journal, last);
    add(
        &dir.log().join("ocpdeploy.jsonl"),
        json!({"timestamp": "2026-11-22T12:00:00Z", "level": "WARN", "fields": {"message": HOSTILE}, "target": "x"}),
    );
    sandbox
}

#[test]
fn no_command_prints_escape_sequences_of_a_hostile_platform() {
    let sandbox = haunted();
    let mut seen = 0;
    for arguments in [
        &["list"][..],
        &["list", "--format", "json"],
        &["status"],
        &["status", "lab", "--watch"],
        &["status", "--format", "json"],
        &["status", "--watch", "--format", "json"],
        &["audit", "--env", "lab.sh"],
        &["audit", "--format", "json"],
        &["verify", "lab"],
        &["verify", "lab", "--format", "json"],
        &["node", "show", "worker-0"],
        &["node", "show", HOSTILE],
        &["node", "show", HOSTILE, "--format", "json"],
        &["node", "console", "worker-0"],
        &["node", "console", HOSTILE],
        &["node", "replace", HOSTILE],
        &["check", "lab.sh", "--rehearse"],
        &["check", "lab.sh", "--rehearse", "--format", "json"],
        &["check", "lab.sh", "--rehearse", "--set", &format!("network={HOSTILE}")],
        &["plan", "lab.sh", "--rehearse"],
        &["plan", "lab.sh", "--rehearse", "--format", "json"],
        &["plan", "lab.sh", "--rehearse", "--set", &format!("network={HOSTILE}")],
        &["config", "lab.sh", "--rehearse", "--set", &format!("network={HOSTILE}")],
        &[
            "config",
            "lab.sh",
            "--rehearse",
            "--output",
            "json",
            "--set",
            &format!("network={HOSTILE}"),
        ],
        &["deploy", "lab.sh", "--rehearse", "--set", &format!("image={HOSTILE}")],
        &[
            "harvest",
            "lab.sh",
            "--rehearse",
            "--set",
            &format!("harvest_image={HOSTILE}"),
        ],
        &["status", &HOSTILE.replace('\n', "")],
        &["image", "list"],
        &["image", "pull", HOSTILE],
        &["image", "push", "lab.sh", "--rehearse"],
        &["export", "hosts", "lab"],
        &["export", "ansible", "lab", "--format", "inventory"],
        &["stop", "lab"],
        &["start", "lab"],
        &["scale", "lab", "--workers", "2"],
        &["verify", "lab", "--repair"],
        &["destroy", "lab", "--dry-run"],
        &["destroy", "lab"],
    ] {
        // With a machine that is not in the record, nothing is changed.
        if arguments == ["start", "lab"] {
            sandbox.edit(|world| drop(world["machines"].as_object_mut().unwrap().remove("lab-forged")));
        }
        let outcome = shown_safely(&sandbox, arguments);
        let all = outcome.stdout.clone() + &outcome.stderr;
        seen += usize::from(all.contains("forged"));
        if arguments.contains(&"json") && !outcome.stdout.is_empty() {
            let values = serde_json::Deserializer::from_str(&outcome.stdout).into_iter::<Value>();
            values.for_each(|value| drop(value.unwrap()));
        }
    }
    assert!(seen > 12, "only {seen} commands saw what is hostile");
    // A name that no node can have never reaches the platform.
    assert_eq!(sandbox.run(&["node", "show", HOSTILE]).code, Some(2));
    let log = sandbox.home().cluster("lab").log().join("ocpdeploy.jsonl");
    let log = std::fs::read_to_string(log).unwrap();
    // All but the line that was planted.
    let own = log.lines().filter(|line| !line.ends_with(r#""target":"x"}"#));
    // The machine that was forged for this node.
    let deleted = r#""node":"master-0","state":"deleted""#;
    assert!(own.clone().any(|line| line.contains(deleted)), "{log}");
    let raw: Vec<_> = own.filter(|line| printable_json(line) != *line).collect();
    assert!(raw.is_empty(), "{raw:#?}");
    shown_safely(&sandbox, &["destroy", "lab", "--yes"]);
}

#[test]
fn a_page_shows_hostile_text_as_text() {
    let sandbox = haunted();
    sandbox.run(&["report", "lab", "-o", "report.html"]).succeeded();
    let page = std::fs::read_to_string(sandbox.path().join("report.html")).unwrap();
    assert!(
        page.contains("forged") && page.contains("&lt;script"),
        "it has no hostile text"
    );
    for markup in ["<script", "<img", "onerror=alert(1)>"] {
        assert!(!page.contains(markup), "{markup}");
    }
    assert_eq!(printable_text(&page), page);
    let piped = sandbox.run(&["report", "lab", "-o", "-"]).succeeded().stdout;
    assert!(!piped.contains("<script"));
}

#[test]
fn a_terminal_gets_only_our_own_escape_sequences() {
    let sandbox = haunted();
    let unit = json!({"name": format!("{HOSTILE}.service"), "contents": HOSTILE});
    let source = format!(
        "data:,{}",
        HOSTILE.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>()
    );
    let file = json!({"path": "/etc/x", "contents": {"source": source}});
    let config = json!({"ignition": {"version": "3.2.0"}, "systemd": {"units": [unit]}, "storage": {"files": [file]},
        "passwd": {"users": [{"name": HOSTILE}]}, HOSTILE: 1});
    std::fs::write(sandbox.path().join("x.ign"), config.to_string()).unwrap();
    std::fs::write(
        sandbox.path().join("empty.ign"),
        r#"{"ignition": {"version": "3.2.0"}}"#,
    )
    .unwrap();
    // A file or a pipe gets the unchanged content.
    let mut command = sandbox.command(&["ignition", "show", "x.ign", "--file", "/etc/x"]);
    assert_eq!(command.output().unwrap().stdout, HOSTILE.as_bytes());
    for arguments in [
        &["status", "lab"][..],
        &["status", "lab", "--watch"],
        &["audit", "--env", "lab.sh"],
        &["node", "show", HOSTILE],
        &[
            "harvest",
            "lab.sh",
            "--rehearse",
            "--set",
            &format!("harvest_image={HOSTILE}"),
        ],
        &["report", "lab", "-o", "-"],
        &["ignition", "show", "x.ign"],
        &["ignition", "show", "x.ign", "--decode"],
        &["ignition", "show", "x.ign", "--file", "/etc/x"],
        &["ignition", "check", "x.ign"],
        &["ignition", "diff", "empty.ign", "x.ign", "--decode"],
        &["ignition", "merge", "x.ign", "empty.ign"],
        &["destroy", "lab", "--yes"],
    ] {
        let terminal = Terminal::new();
        let child = terminal.start(sandbox.command(arguments).env("TERM", "xterm"));
        ended(child);
        let shown = terminal.shown_at_last();
        let rest = without_own(&shown);
        assert_eq!(printable_text(&rest), rest, "{arguments:?}");
    }
}

/// The output on a terminal, without line feeds, returns and the sequences for bars, colors and redrawing.
fn without_own(shown: &str) -> String {
    let mut rest = String::new();
    let mut pieces = shown.split("\u{1b}[");
    rest += pieces.next().unwrap_or_default();
    for piece in pieces {
        let end = piece
            .find(|c: char| !c.is_ascii_digit() && c != ';' && c != '?')
            .unwrap_or(0);
        let own = piece[end..].starts_with(['A', 'B', 'C', 'D', 'H', 'J', 'K', 'm', 'h', 'l']);
        // The program never clears the whole screen.
        let own = own && !(piece.starts_with("2J"));
        rest += if own { &piece[end + 1..] } else { "\u{1b}[" };
    }
    rest.replace("\r\n", "\n").replace('\r', "")
}

#[cfg(feature = "openstack")]
#[test]
fn messages_of_a_hostile_cloud_are_plain_text() {
    let cloud = FakeCloud::start();
    let sandbox = Sandbox::new(json!({}));
    let clouds = format!(
        "clouds:\n  lab:\n    region_name: one\n    auth:\n      auth_url: {}\n      username: demo\n      \
         project_name: demo\n      password: {PASSWORD}\n",
        cloud.auth_url()
    );
    std::fs::write(sandbox.path().join("clouds.yaml"), clouds).unwrap();
    let env = "cluster=lab\ndomain=example.com\nbackend=openstack\nmasters=1\nworkers=0\nnetwork=private\n\
               images_dir=.\nplatform_timeout=0s\n";
    std::fs::write(sandbox.path().join("lab.sh"), env).unwrap();
    for image in ["coreos.qcow2", "helper.qcow2"] {
        std::fs::write(sandbox.path().join(image), qcow2::empty()).unwrap();
    }
    let bodies = [
        json!({"error": {"code": 403, "message": HOSTILE, "title": HOSTILE}}),
        json!({"forbidden": {"message": HOSTILE}}),
        json!({HOSTILE: HOSTILE}),
        json!(HOSTILE),
    ];
    for body in bodies {
        for arguments in [
            &["check", "lab.sh", "--rehearse"][..],
            &["harvest", "lab.sh", "--rehearse"],
            &["audit", "--env", "lab.sh"],
        ] {
            cloud.trouble("POST /identity/v3/auth/tokens", [Trouble::Status(403, body.clone())]);
            let said = shown_safely(&sandbox, arguments);
            assert_ne!(said.code, Some(0), "{arguments:?}");
        }
    }
    cloud.finish();
}

#[test]
fn an_env_file_cannot_forge_lines() {
    let sandbox = Sandbox::new(json!({}));
    let state = sandbox.path().join("sim.json");
    for setting in [
        "cluster",
        "domain",
        "network",
        "profile",
        "image",
        "api_ip",
        "masters",
        "machine_network",
        "ntp_servers",
        "no_such_setting",
        "pub_key",
        "installer",
        "proxy",
        "dns",
        "extra_networks",
    ] {
        for value in [format!("'{HOSTILE}'"), HOSTILE.to_owned()] {
            let text = format!(
                "cluster=lab\ndomain=example.com\nbackend=sim\nsim_state={}\n{setting}={value}\n",
                state.display()
            );
            std::fs::write(sandbox.path().join("hostile.sh"), text).unwrap();
            for command in ["config", "plan", "check", "deploy"] {
                let outcome = sandbox.run(&[command, "hostile.sh", "--rehearse"]);
                for text in [&outcome.stdout, &outcome.stderr] {
                    assert_eq!(&printable_text(text), text, "{setting} {command}");
                }
                let forged = outcome
                    .stderr
                    .lines()
                    .find(|line| line.contains("forged") && FORGED.iter().any(|f| line.starts_with(f)));
                assert_eq!(forged, None, "{setting} {command}: {}", outcome.stderr);
            }
        }
    }
}

#[test]
fn escaped_text_is_safe_for_a_terminal() {
    for safe in [printable_line(HOSTILE), printable_json(&json!(HOSTILE).to_string())] {
        is_safe("one line", &safe);
        assert!(!safe.contains('\n'));
    }
    assert_eq!(printable_text(&printable_console(HOSTILE)), printable_console(HOSTILE));
}
