//! The reference pages that are generated from the code: settings and exit codes.

use std::fmt::Write;
use std::path::Path;

use clap::CommandFactory;
use ocpdeploy::cli::Cli;
use ocpdeploy::error::ErrorKind;
use ocpdeploy::failure;
use ocpdeploy::settings::variables::{GROUPS, Kind, VARIABLES, Variable};

/// Compares a page with its generated text. `INSTA_UPDATE=always` writes the page.
fn assert_page(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference").join(name);
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "{} is out of date; run this test with INSTA_UPDATE=always",
        path.display()
    );
}

const SETTINGS: &str = "\
# Settings

This page lists all settings of a cluster. It is generated from the code.

You can set each of them in the env file (`NAME=VALUE`), in the environment (`OCPDEPLOY_<NAME>`), in
a profile, or on the command line with `--set NAME=VALUE`. The command line has the highest
precedence, then the environment, the env file, the profile, and the default.

`ocpdeploy config` shows the value of every setting and where it comes from. `env.sh.sample` is an
env file with all settings.

| Type | Format |
|---|---|
| integer | decimal digits |
| MiB, GiB | a number in this unit, or with a unit: `16384`, `16GiB`, `16G` (the same as `16GiB`) |
| true or false | `true`, `yes`, `false` or `no` |
| path | relative to the directory of the env file, or to the current directory on the command line |
| network | IPv4 network in CIDR notation, such as `10.0.0.0/24` |
| duration | seconds, or with units: `600`, `10m`, `1h30m` |
| list | values separated by commas or spaces |
| secret | a value that is never shown; `NAME_file` sets the path of a file that contains it |
";

#[test]
fn the_page_of_settings_is_current() {
    let mut page = SETTINGS.to_owned();
    for group in GROUPS {
        let mut title = group.title.to_owned();
        title[..1].make_ascii_uppercase();
        // A name that begins in lower case, such as oVirt, is not an English word.
        if ["libvirt", "oVirt"].contains(&group.title) {
            title = group.title.to_owned();
        }
        write!(page, "\n## {title}\n\n").unwrap();
        match group.platform {
            Some(platform) => writeln!(page, "Platforms: `{platform}`.\n").unwrap(),
            None => page.push_str("Platforms: all.\n\n"),
        }
        page.push_str("| Setting | Type | Default | Description |\n|---|---|---|---|\n");
        for variable in VARIABLES.iter().filter(|variable| variable.group == *group) {
            let default = match variable.default {
                "" => String::new(),
                default => format!("`{default}`"),
            };
            let (names, kind) = (names(variable), kind(variable.kind));
            writeln!(page, "| {names} | {kind} | {default} | {} |", cell(variable.doc)).unwrap();
        }
    }
    assert_page("settings.md", &page);
}

fn names(variable: &Variable) -> String {
    let aliases: Vec<String> = variable.aliases.iter().map(|alias| format!("`{alias}`")).collect();
    match aliases.is_empty() {
        true => format!("`{}`", variable.name),
        false => format!("`{}` (also {})", variable.name, aliases.join(", ")),
    }
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Text => "text".to_owned(),
        Kind::Secret => "secret".to_owned(),
        Kind::Switch => "true or false".to_owned(),
        Kind::Count => "integer".to_owned(),
        Kind::Mib => "MiB".to_owned(),
        Kind::Gib => "GiB".to_owned(),
        Kind::Path => "path".to_owned(),
        Kind::Ip => "IP address".to_owned(),
        Kind::Ipv4 => "IPv4 address".to_owned(),
        Kind::Ips => "IP address, or IPv4 and IPv6 address".to_owned(),
        Kind::Mac => "MAC address".to_owned(),
        Kind::Network => "network".to_owned(),
        Kind::Networks => "network, or IPv4 and IPv6 network".to_owned(),
        Kind::Range => "range of addresses".to_owned(),
        Kind::Duration => "duration".to_owned(),
        Kind::Choice(choices) => {
            let choices: Vec<String> = choices().iter().map(|choice| format!("`{choice}`")).collect();
            choices.join(", ")
        }
        Kind::List(item) => format!("list of {}", self::kind(*item)),
        Kind::PerPool(item) => format!("list of POOL:{}", self::kind(*item)),
    }
}

/// Plain text as the cell of a Markdown table.
fn cell(text: &str) -> String {
    let mut cell = String::new();
    let mut in_code = false;
    for c in text.chars() {
        in_code ^= c == '`';
        if c == '|' || (!in_code && matches!(c, '<' | '>' | '*')) {
            cell.push('\\');
        }
        cell.push(c);
    }
    cell
}

const EXIT_CODES: &str = "\
# Exit codes

Every command of ocpdeploy uses these exit codes. This page is generated from the code.

| Code | Meaning |
|---|---|
| 0 | Success. |
";

#[test]
fn the_page_of_exit_codes_is_current() {
    let mut page = EXIT_CODES.to_owned();
    let different = "`ignition diff` or `verify` found a difference, or `audit` found remaining objects.";
    let kinds = ErrorKind::ALL.map(|kind| (kind.exit_code(), kind.meaning()));
    for (code, meaning) in std::iter::once((failure::DIFFERENT, different)).chain(kinds) {
        writeln!(page, "| {code} | {meaning} |").unwrap();
    }
    assert_page("exit-codes.md", &page);
}

#[test]
fn the_help_lists_the_same_exit_codes() {
    let help = Cli::command().get_after_long_help().unwrap().to_string();
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let listed = codes
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let kinds = ErrorKind::ALL.map(ErrorKind::exit_code);
    let all = [0, failure::DIFFERENT].into_iter().chain(kinds);
    assert_eq!(listed.collect::<Vec<u8>>(), all.collect::<Vec<u8>>());
}

/// The choices come from the enums, so that a name which serde spells in another way would be noticed here.
#[test]
fn every_choice_is_one_lowercase_word() {
    let choices = VARIABLES.iter().filter_map(|variable| match variable.kind {
        Kind::Choice(choices) => Some((variable, choices())),
        _ => None,
    });
    let mut count = 0;
    for (variable, choices) in choices {
        // Words of Kubernetes and of CoreOS are written as there.
        let is_foreign = [
            "arch",
            "kubevirt_access_mode",
            "kubevirt_volume_mode",
            "kubevirt_eviction_strategy",
        ]
        .contains(&variable.name);
        let is_word = |choice: &&str| choice.bytes().all(|b| b.is_ascii_lowercase());
        assert!(
            choices.len() >= 2 && (is_foreign || choices.iter().all(is_word)),
            "{}: {choices:?}",
            variable.name
        );
        let default = variable.default;
        assert!(
            default.is_empty() || choices.contains(&default),
            "{}: {default}",
            variable.name
        );
        count += 1;
    }
    assert!(count >= 15, "{count}");
}
