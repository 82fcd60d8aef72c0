//! The help texts are the documentation: they fit a terminal, their examples are true, the reference is current.

use std::fmt::Write;
use std::path::Path;

use clap::{Command, CommandFactory, Parser};
use ocpdeploy::cli::Cli;

/// The program's command with all its subcommands, as wide as help ever gets.
fn program() -> Command {
    let mut program = Cli::command().term_width(80);
    program.build();
    program
}

/// The program itself and each subcommand, those of subcommands included.
fn all(program: &Command) -> Vec<Command> {
    let beneath = program.get_subcommands().flat_map(all);
    std::iter::once(program.clone()).chain(beneath).collect()
}

/// What is typed to get a command, e.g. `ocpdeploy ignition merge`.
fn full_name(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

#[test]
fn no_help_line_is_wider_than_80_columns() {
    for mut command in all(&program()) {
        for help in [command.render_help(), command.render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
        }
    }
}

#[test]
fn every_command_has_examples_and_each_is_understood() {
    for command in all(&program()) {
        let name = full_name(&command);
        let text = command
            .get_after_long_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let examples: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("  ocpdeploy "))
            .map(|line| line.split(" #").next().unwrap_or(line))
            .collect();
        assert!(examples.len() >= 2, "{name} has no examples");
        for example in examples {
            let words: Vec<&str> = example.split_whitespace().collect();
            assert!(
                format!("{example} ").starts_with(&format!("  {name} ")),
                "{name}: {example}"
            );
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{example}: {error}");
            }
        }
    }
}

#[test]
fn every_flag_is_explained() {
    for command in all(&program()) {
        for argument in command.get_arguments() {
            assert!(
                argument.get_help().is_some_and(|help| !help.to_string().is_empty()),
                "{} {}",
                command.get_name(),
                argument.get_id()
            );
        }
    }
}

/// The page that the README links; written anew by `INSTA_UPDATE=always cargo test --test docs`.
#[test]
fn the_reference_is_what_the_program_says() {
    let mut page = String::from("# The commands of ocpdeploy\n");
    for mut command in all(&program()) {
        let title = full_name(&command).to_owned();
        write!(page, "\n## {title}\n\n```text\n").unwrap();
        for line in command.render_long_help().to_string().lines() {
            writeln!(page, "{}", line.trim_end()).unwrap();
        }
        page.push_str("```\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/commands.md");
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(&path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == page,
        "{} is out of date; this test with INSTA_UPDATE=always writes it",
        path.display()
    );
}
