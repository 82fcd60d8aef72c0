//! Quotes of the program in README and pages are compared with the source, or with the program's output.

use std::collections::BTreeSet;
use std::path::Path;

use clap::CommandFactory;
use proc_macro2::{TokenStream, TokenTree};

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The messages in bold, with … for variable parts.
fn quoted(page: &str) -> Vec<String> {
    let headings = page.lines().filter(|line| line.starts_with("**"));
    headings
        .flat_map(|line| {
            line.split("**")
                .filter(|part| part.trim_start_matches("hint ").starts_with('`'))
        })
        .map(|part| part.trim_start_matches("hint ").trim_matches('`').to_owned())
        .collect()
}

/// The string literals of the program, with … for each placeholder.
fn literals() -> Vec<String> {
    fn collect(tokens: TokenStream, found: &mut Vec<String>) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => collect(group.stream(), found),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        found.push(without_placeholders(&text.value()));
                    }
                }
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    for (name, text) in crate::layering::sources() {
        collect(
            text.parse().unwrap_or_else(|error| panic!("{name}: {error}")),
            &mut found,
        );
    }
    found
}

/// In one line.
fn without_placeholders(text: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                plain.extend((depth == 0).then_some('…'));
            }
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether the program says this: each cause, up to `: `, is in one literal, with any text for `…`.
fn is_said(quote: &str, literals: &[String]) -> bool {
    let in_order = |literal: &String, cause: &str| {
        let mut rest = literal.as_str();
        cause.split('…').all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    };
    let mut causes = quote
        .split(": ")
        .map(|cause| cause.trim_matches(['…', ' ']))
        .filter(|cause| cause.len() > 4)
        .peekable();
    causes.peek().is_some() && causes.all(|cause| literals.iter().any(|literal| in_order(literal, cause)))
}

/// The error of a lock must not be taken for one of a platform.
#[test]
fn parts_of_two_messages_are_no_message() {
    let literals = literals();
    assert!(is_said("cluster … is locked by …", &literals));
    assert!(!is_said("cluster … is in use by …", &literals));
    assert!(!is_said("… runs, but has no leash …", &literals));
}

#[test]
fn readme_names_each_command() {
    let readme = page("README.md");
    let (_, list) = readme.split_once("\n## The ten commands\n").unwrap();
    let (list, _) = list.split_once("\n## ").unwrap();
    let quotes = list
        .split('`')
        .skip(1)
        .step_by(2)
        .map(|quote| quote.trim_start_matches("ocpdeploy "));
    let named: BTreeSet<&str> = quotes.filter(|quote| !quote.contains('/')).collect();
    let program = ocpdeploy::cli::Cli::command();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    assert_eq!(named, commands.map(|command| command.get_name()).collect());
}

#[test]
fn every_message_on_the_page_is_one_of_the_program() {
    // These are QEMU's.
    let foreign = ["cannot open backing file"];
    let literals = literals();
    let quotes = quoted(&page("docs/reference/messages.md"));
    assert!(quotes.len() > 25, "{quotes:?}");
    let unknown: Vec<_> = quotes
        .iter()
        .filter(|quote| !foreign.iter().any(|words| quote.starts_with(words)) && !is_said(quote, &literals))
        .collect();
    assert!(unknown.is_empty(), "not in the program: {unknown:#?}");
}

#[test]
fn each_symptom_quotes_a_message_of_the_program() {
    let page = page("docs/how-to/troubleshooting.md");
    let quotes: Vec<&str> = page
        .split("**`")
        .skip(1)
        .filter_map(|rest| rest.split("`**").next())
        .collect();
    assert!(quotes.len() > 25, "{quotes:?}");
    assert_eq!(page.matches("\n### ").count(), 30);
    let literals = literals();
    let unknown: Vec<_> = quotes.iter().filter(|quote| !is_said(quote, &literals)).collect();
    assert!(unknown.is_empty(), "not in the program: {unknown:#?}");
}

/// The first block of a kind in a page.
fn block<'a>(page: &'a str, kind: &str) -> &'a str {
    let begin = format!("```{kind}\n");
    let (_, rest) = page.split_once(&begin).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn the_ignition_session_shows_real_output() {
    let page = page("docs/how-to/ignition.md");
    let folder = tempfile::tempdir().unwrap();
    let worker = r#"{"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/etc/motd", "mode": 420,
        "contents": {"compression": "", "source": "data:,a%20worker%0A"}}]}, "passwd": {"users": [{"name": "core"}]}}"#;
    std::fs::write(folder.path().join("worker.ign"), worker).unwrap();
    std::fs::write(folder.path().join("mine.ign"), block(&page, "json")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ocpdeploy")).parent().unwrap();
    let (shown, mut seen) = (block(&page, "console"), String::new());
    for line in shown.lines().filter(|line| line.starts_with("$ ")) {
        let output = std::process::Command::new("sh")
            .args(["-c", &format!("{} 2>&1", line.trim_start_matches("$ "))])
            .current_dir(folder.path())
            .env("PATH", format!("{}:/usr/bin:/bin", program.display()))
            .output()
            .unwrap();
        seen += &format!("{line}\n{}", String::from_utf8(output.stdout).unwrap());
    }
    assert_eq!(shown, seen);
}

/// README's rehearsal on the simulated platform; `UPDATE_GOLDEN=1` writes its output.
#[test]
fn the_rehearsal_shows_real_output() {
    let readme = page("README.md");
    let shown = block(&readme, "console");
    let command = shown.lines().next().unwrap().strip_prefix("$ ocpdeploy ").unwrap();
    let home = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ocpdeploy"))
        .args(command.split_whitespace())
        .current_dir(home.path())
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert!(output.status.success());
    let seen = format!("$ ocpdeploy {command}\n{}", String::from_utf8(output.stdout).unwrap());
    // The digest of a config with a password that was chosen at random.
    let without_digests = |text: &str| {
        let lines = text.lines().map(|line| match line.rsplit_once(' ') {
            Some((rest, digest)) if digest.len() == 8 && digest.chars().all(|c| c.is_ascii_hexdigit()) => rest,
            _ => line,
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    if std::env::var_os("UPDATE_GOLDEN").is_some() && without_digests(shown) != without_digests(&seen) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
        std::fs::write(path, readme.replace(shown, &seen)).unwrap();
        return;
    }
    assert_eq!(
        without_digests(shown),
        without_digests(&seen),
        "UPDATE_GOLDEN=1 writes it"
    );
}

#[test]
fn the_targets_of_make_exist() {
    let makefile = page("Makefile");
    let targets = |name: &str| -> Vec<String> {
        let page = page(name);
        let spans = page.split("`make ").skip(1);
        let targets = spans.filter_map(|rest| rest.split(['`', ' ', '\n']).next());
        targets.map(str::to_owned).collect()
    };
    for target in ["README.md", "CONTRIBUTING.md", "docs/reference/reliability.md"]
        .into_iter()
        .flat_map(targets)
    {
        assert!(makefile.contains(&format!("\n{target}:")), "{target}");
    }
    for target in ["rehearse", "test", "build"] {
        assert!(targets("README.md").iter().any(|named| named == target), "{target}");
    }
    assert!(page("README.md").contains("](README.svg)"));
    let picture = |name: &str| page(name) == page("README.svg");
    assert!(picture("docs/explanation/passes.svg"), "the book's picture is README's");
}
