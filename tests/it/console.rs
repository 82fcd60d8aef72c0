//! Serial console sessions: the binary on a pseudo-terminal of the test, connected to guests of the fake KubeVirt.

use crate::support::fake_kubevirt;
use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::fake_kubevirt::consoles::FLOOD;
use crate::support::fake_kubevirt::{World, consoles::Seat};
use crate::support::kubevirt_sandbox::Sandbox;
use crate::support::terminal::{Terminal, ended};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const SIT: [&str; 5] = ["node", "console", "lab", "master-0", "--interactive"];
const MACHINE: &str = "lab-master-0";
const LEAVE: &str = "\x1d";

/// A deployed cluster.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new(World::with_tenants(&["blue", "red"]));
    sandbox.env("lab", "masters=1\nworkers=0");
    sandbox.deploy("lab").unwrap();
    sandbox
}

/// A session at the console of the master.
fn sits(sandbox: &Sandbox) -> (Terminal, Child) {
    let terminal = Terminal::new();
    let child = terminal.start(&mut sandbox.command(&SIT));
    terminal.shows("attached to the console of lab-master-0; press Ctrl-] to detach\r\n");
    assert!(terminal.is_raw(), "the terminal is not in raw mode");
    (terminal, child)
}

/// Waits until the condition holds.
#[track_caller]
fn awaited(is_there: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the condition never held");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn seat<T>(sandbox: &Sandbox, look: impl FnOnce(&mut Seat) -> T) -> T {
    sandbox
        .server
        .with(|world| look(world.consoles.entry(MACHINE.to_owned()).or_default()))
}

#[test]
fn all_keys_reach_the_guest_until_the_escape_key_detaches() {
    let sandbox = sandbox();
    let (mut terminal, child) = sits(&sandbox);
    terminal.types("\r");
    terminal.shows("lab-master-0 login: ");
    // Keys that have an effect in a local terminal are sent to the guest.
    terminal.types("core\x03\x1a\x1c\x04\r");
    terminal.shows("core");
    terminal.types(&format!("q{LEAVE}not for the guest"));
    assert_eq!(ended(child).code(), Some(0), "{}", terminal.shown());
    assert!(!terminal.is_raw());
    let typed = || seat(&sandbox, |seat| String::from_utf8(seat.typed.clone()).unwrap());
    // The server may not have read the last key yet.
    awaited(|| typed().len() >= 11);
    assert_eq!(typed(), "\rcore\x03\x1a\x1c\x04\rq");
    sandbox.server.was_asked_well();
}

#[test]
fn guest_output_is_complete_and_in_order() {
    let sandbox = sandbox();
    let (mut terminal, child) = sits(&sandbox);
    terminal.types("flood\r");
    let last = format!("line {}\r\n", FLOOD - 1);
    terminal.shows(&last);
    let shown = terminal.shown();
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with("line ")).collect();
    let expected: Vec<String> = (0..FLOOD).map(|number| format!("line {number}")).collect();
    assert!(lines == expected, "lines were lost or reordered");
    terminal.types(LEAVE);
    assert_eq!(ended(child).code(), Some(0));
}

#[test]
fn the_terminal_is_restored_however_the_session_ends() {
    let sandbox = sandbox();
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let (mut terminal, child) = sits(&sandbox);
        terminal.types("\r");
        terminal.shows(" login: ");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(ended(child).code(), Some(7), "{signal:?}: {}", terminal.shown());
        terminal.shows("detached from the console of lab-master-0 by ");
        assert!(!terminal.is_raw(), "{signal:?}");
    }
    // Another user attaches.
    let (first, left) = sits(&sandbox);
    let (mut second, stays) = sits(&sandbox);
    assert_eq!(ended(left).code(), Some(5));
    first.shows("another client attached to its console");
    assert!(!first.is_raw());
    second.types("\r");
    second.shows(" login: ");
    // The machine is switched off.
    sandbox.server.with(|world| world.end_instance("blue", MACHINE));
    assert_eq!(ended(stays).code(), Some(5));
    second.shows("the platform closed the console of");
    assert!(!second.is_raw());
    let running = |world: &mut World| {
        world
            .names("virtualmachineinstances", "blue")
            .contains(&MACHINE.to_owned())
    };
    awaited(|| sandbox.server.with(|world| running(world)));
    // The connection breaks.
    let (last, child) = sits(&sandbox);
    seat(&sandbox, |seat| seat.is_cut = true);
    assert_eq!(ended(child).code(), Some(5));
    last.shows("read the console of machine lab-master-0");
    assert!(!last.is_raw());
}

/// The error of a console that cannot be opened.
fn told(sandbox: &Sandbox) -> String {
    let terminal = Terminal::new();
    let mut command = sandbox.command(&SIT);
    let code = ended(terminal.start(command.env("NO_COLOR", "1"))).code().unwrap_or(-1);
    assert!(!terminal.is_raw());
    let text = terminal.shown_at_last().replace("\r\n", "\n");
    let text = text.replace(&sandbox.server.address.port().to_string(), "<port>");
    format!("exit code {code}\n{text}")
}

#[test]
fn a_console_that_cannot_be_opened_is_an_error_with_its_cause() {
    let sandbox = sandbox();
    let user = |change: fn(&mut fake_kubevirt::rights::User)| {
        sandbox
            .server
            .with(|world| change(world.users.get_mut("blue-token").unwrap()));
    };
    user(|user| user.lacks.extend(["get virtualmachineinstances/console".to_owned()]));
    insta::assert_snapshot!("console_without_the_right", told(&sandbox));
    user(|user| user.lacks.clear());
    sandbox.server.with(|world| world.boot_ms = 600_000);
    sandbox.server.with(|world| world.step_ms = 600_000);
    sandbox.server.with(|world| world.end_instance("blue", MACHINE));
    let phase = || sandbox.object("virtualmachineinstances", "blue", MACHINE)["status"]["phase"].clone();
    awaited(|| phase() == "Scheduling");
    insta::assert_snapshot!("console_of_a_machine_that_is_about_to_run", told(&sandbox));
    sandbox.server.with(|world| {
        let key = ("virtualmachines", "blue".to_owned(), MACHINE.to_owned());
        let mut machine = Value::clone(&world.objects[&key]);
        machine["spec"]["runStrategy"] = "Halted".into();
        world.store(key, machine, "MODIFIED");
        world.end_instance("blue", MACHINE);
    });
    insta::assert_snapshot!("console_of_a_machine_that_is_off", told(&sandbox));
    // Not on a terminal.
    let output = sandbox.run(&SIT);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!("console_without_a_terminal", String::from_utf8(output.stderr).unwrap());
}

#[test]
fn the_console_authenticates_as_the_kubeconfig_says() {
    let sandbox = sandbox();
    let plugin = sandbox.path().join("plugin.sh");
    std::fs::write(
        &plugin,
        r#"echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "blue-token"}}'"#,
    )
    .unwrap();
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": [plugin.display().to_string()], "interactiveMode": "Never"}});
    sandbox
        .server
        .kubeconfig_with(&sandbox.kubeconfig("blue"), &exec, "blue");
    let (mut terminal, child) = sits(&sandbox);
    terminal.types(&format!("\r{LEAVE}"));
    assert_eq!(ended(child).code(), Some(0));
    // The user of another tenant, who has no rights here.
    sandbox
        .server
        .kubeconfig(&sandbox.kubeconfig("blue"), "red-token", "blue");
    assert!(told(&sandbox).starts_with("exit code 5\nerror: open the console of machine lab-master-0"));
}
