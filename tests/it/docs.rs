//! Help and documentation: help fits a terminal, its examples parse, the command reference is generated from it, and
//! the pages in `docs/` form one book without dead links, long lines or terms that the style excludes.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory, Parser};
use ocpdeploy::cli::Cli;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The program's command with all its subcommands, at the maximum help width.
fn program() -> Command {
    let mut program = Cli::command().term_width(80);
    program.build();
    program
}

/// The program itself and all subcommands, at every level.
fn all(program: &Command) -> Vec<Command> {
    let beneath = program.get_subcommands().flat_map(all);
    std::iter::once(program.clone()).chain(beneath).collect()
}

/// The full name of a command, e.g. `ocpdeploy ignition merge`.
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
        // clap would wrap a longer line in the middle of a paragraph, and a command into two.
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{name}: {line}");
        }
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

#[test]
fn the_command_reference_is_the_help() {
    let mut page = "# Commands\n\nThis page has the help of every command. It is generated from the code.\n".to_owned();
    for mut command in all(&program()) {
        let title = full_name(&command).to_owned();
        write!(page, "\n## {title}\n\n```text\n").unwrap();
        for line in command.render_long_help().to_string().lines() {
            writeln!(page, "{}", line.trim_end()).unwrap();
        }
        page.push_str("```\n");
    }
    let path = root().join("docs/reference/commands.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "{} is out of date: this test with UPDATE_GOLDEN=1 writes it",
        path.display()
    );
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Markdown files below a folder, by their path from the root of the repository.
fn markdown(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let path = path.strip_prefix(root()).unwrap();
        match root().join(path).is_dir() {
            true => found.extend(markdown(path.to_str().unwrap())),
            false if path.extension().is_some_and(|end| end == "md") => found.push(path.to_owned()),
            false => {}
        }
    }
    found.sort();
    found
}

/// The pages for readers: those of the book, and those next to the source.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
        .map(PathBuf::from)
        .into();
    for folder in ["docs", "images", "tests"] {
        pages.extend(markdown(folder));
    }
    pages
}

fn text(page: &Path) -> String {
    std::fs::read_to_string(root().join(page)).unwrap()
}

/// Lines outside of code blocks, with their numbers.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let lines = text.lines().enumerate().filter(|(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|(index, line)| (index + 1, line)).collect()
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
}

/// How GitHub and mdBook name a heading in a link (rust-lang/mdBook: `normalize_id`).
fn anchor(heading: &str) -> String {
    let mut anchor = heading.trim().to_lowercase().replace(' ', "-");
    anchor.retain(|c| c.is_alphanumeric() || "-_".contains(c));
    anchor
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|(_, line)| line.starts_with('#'));
    headings.map(|(_, line)| anchor(line.trim_start_matches('#'))).collect()
}

/// Targets of all links and pictures, with their line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in prose(text) {
        let text = without_code(text);
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(targets.map(|target| (line, target.to_owned())));
    }
    found
}

/// A path without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(resolved.pop()),
            std::path::Component::CurDir => {}
            part => resolved.push(part),
        }
    }
    resolved
}

/// What is wrong with the links of a page.
fn dead_links(page: &Path, content: &str) -> Vec<String> {
    let mut dead = Vec::new();
    for (line, target) in links(content) {
        if target.starts_with("https://") {
            continue;
        }
        let (file, place) = target.split_once('#').unwrap_or((&target, ""));
        let path = match file {
            "" => page.to_owned(),
            file => resolved(&page.parent().unwrap().join(file)),
        };
        let why = if !root().join(&path).exists() {
            "the file does not exist"
        } else if page.starts_with("docs") && !path.starts_with("docs") {
            "the target is outside docs/"
        } else if page.starts_with("docs") && path.ends_with("README.md") && !page.ends_with("SUMMARY.md") {
            // rust-lang/mdBook issue 984: such a link leads to README.html, and the page is index.html.
            "mdBook does not translate links to README.md"
        } else if !place.is_empty() && !anchors(&text(&path)).contains(place) {
            "the heading does not exist"
        } else {
            continue;
        };
        dead.push(format!("{}:{line}: {target}: {why}", page.display()));
    }
    dead
}

#[test]
fn every_link_leads_to_a_page_and_heading() {
    let dead: Vec<String> = pages().iter().flat_map(|page| dead_links(page, &text(page))).collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    let page = Path::new("docs/explanation/passes.md");
    for (wrong, why) in [
        ("[a](nowhere.md)", "the file does not exist"),
        ("[a](security.md#nowhere)", "the heading does not exist"),
        ("[a](#nowhere)", "the heading does not exist"),
        ("[a](../../README.md)", "outside docs/"),
        ("[a](../README.md)", "does not translate"),
    ] {
        assert!(dead_links(page, wrong)[0].contains(why), "{wrong}");
    }
    assert_eq!(
        dead_links(page, "`[a](nowhere.md)`\n```\n[a](nowhere.md)\n```\n"),
        [""; 0]
    );
}

#[test]
fn the_book_has_every_page_once() {
    let config = text(Path::new("book.toml"));
    assert!(config.contains("\nsrc = \"docs\"\n") && config.contains("\ncreate-missing = false\n"));
    let summary = text(Path::new("docs/SUMMARY.md"));
    let mut listed: Vec<PathBuf> = links(&summary)
        .iter()
        .map(|(_, page)| Path::new("docs").join(page))
        .collect();
    listed.sort();
    let mut pages = markdown("docs");
    pages.retain(|page| !page.ends_with("SUMMARY.md"));
    assert_eq!(listed, pages);
    // The introduction lists all of them except the single decisions.
    let introduction = links(&text(Path::new("docs/README.md")));
    for page in pages.iter().filter(|page| !page.ends_with("README.md")) {
        let name = page.strip_prefix("docs").unwrap().to_str().unwrap();
        let is_decision = name.starts_with("decisions/") && !name.ends_with("index.md");
        assert!(
            is_decision || introduction.iter().any(|(_, target)| target == name),
            "docs/README.md does not list {name}"
        );
    }
}

#[test]
fn pages_begin_with_a_title_and_their_purpose() {
    for page in markdown("docs").iter().filter(|page| !page.ends_with("SUMMARY.md")) {
        let text = text(page);
        let mut lines = text.lines();
        let (title, blank, purpose) = (lines.next(), lines.next(), lines.next());
        assert!(title.is_some_and(|line| line.starts_with("# ")), "{}", page.display());
        assert_eq!(blank, Some(""), "{}", page.display());
        let is_decision = page.starts_with("docs/decisions") && !page.ends_with("index.md");
        let begins = ["This page ", "`ocpdeploy` ", "Every command "]
            .iter()
            .any(|begin| purpose.is_some_and(|line| line.starts_with(begin)));
        assert!(begins || is_decision, "{}: {purpose:?}", page.display());
    }
}

#[test]
fn lines_are_wrapped_at_100_columns() {
    let mut long = Vec::new();
    for page in pages().iter().filter(|page| !is_from_the_program(page)) {
        let text = text(page);
        for (number, line) in prose(&text) {
            // Tables and pictures cannot be wrapped; a message is one line.
            let is_whole = ["|", "![", "**`", "    "].iter().any(|begin| line.starts_with(begin));
            if line.chars().count() > 100 && !is_whole {
                long.push(format!("{}:{number}", page.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// What documentation and messages must not say, in lower case: house words, and phrases translated word by word.
///
/// `*` is any ending. Standard terms: operation, module, workflow, tag, reserve, another user, fix, report, again.
const EXCLUDED: &[&str] = &[
    "anew",
    "answers for",
    "anybody",
    "anything is made",
    "anything was made",
    "asks what",
    "asks with what",
    "at home on",
    "at one time",
    "by luck",
    "deed",
    "deeds",
    "does not do",
    "does not tell",
    "door",
    "ended well",
    "ends well",
    "folder*",
    "for good",
    "give back",
    "gives back",
    "go on where",
    "goes on where",
    "half gone",
    "half way",
    "half-way",
    "hand out",
    "hands out",
    "heed*",
    "held",
    "in vain",
    "in words",
    "is for you alone",
    "is known here",
    "known here with",
    "let in",
    "let us in",
    "lets in",
    "looked at",
    "looks at",
    "mark",
    "marks",
    "mend*",
    "no obstacle",
    "nobody",
    "not wanted to",
    "ours",
    "patience",
    "pretend",
    "put right",
    "room",
    "rooms",
    "shall",
    "sit",
    "sits",
    "so far as",
    "somebody",
    "speaks against",
    "stand-in",
    "stories",
    "story",
    "stranger*",
    "take away",
    "takes away",
    "tell this computer",
    "tells no",
    "tells nothing",
    "tells of",
    "told",
    "way out",
    "what is there",
    "what it is for",
    "whoever",
    "wished",
    "wishes",
    "word",
    "words",
];

/// Pages generated from the program's texts; their code blocks are checked, too.
const FROM_THE_PROGRAM: &[&str] = &[
    "docs/reference/commands.md",
    "docs/reference/exit-codes.md",
    "docs/reference/settings.md",
    "docs/tutorials/tour.md",
    "env.sh.sample",
];

fn is_from_the_program(page: &Path) -> bool {
    FROM_THE_PROGRAM.iter().any(|name| page == Path::new(name))
}

/// The excluded phrases in a line.
fn excluded_in(line: &str) -> Vec<&'static str> {
    let plain: String = without_code(line)
        .to_lowercase()
        .chars()
        .map(|c| if c.is_alphanumeric() || c == '-' { c } else { ' ' })
        .collect();
    let line = format!(" {} ", plain.split_whitespace().collect::<Vec<_>>().join(" "));
    let is_there = |phrase: &&&str| match phrase.strip_suffix('*') {
        Some(begin) => line.contains(&format!(" {begin}")),
        None => line.contains(&format!(" {phrase} ")),
    };
    EXCLUDED.iter().filter(is_there).copied().collect()
}

#[test]
fn documentation_uses_standard_terms() {
    let mut found = Vec::new();
    let mut check = |page: &Path, number: usize, line: &str| {
        let excluded = excluded_in(line).into_iter();
        found.extend(excluded.map(|phrase| format!("{}:{number}: {phrase}", page.display())));
    };
    for page in pages().iter().filter(|page| !is_from_the_program(page)) {
        // Code blocks have the program's messages.
        for (number, line) in prose(&text(page)) {
            // A comment has the names of tests.
            check(page, number, line.split("<!--").next().unwrap_or_default());
        }
    }
    for page in FROM_THE_PROGRAM.iter().map(Path::new) {
        for (index, line) in text(page).lines().enumerate() {
            check(page, index + 1, line);
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(
        excluded_in("| A Deed, mended by strangers. |"),
        ["deed", "mend*", "stranger*"]
    );
    assert_eq!(
        excluded_in("Indeed, `told` is a keyword in recommended bedrooms."),
        [""; 0]
    );
}

/// The string literals of more than one word in code that is not for tests.
fn messages(tokens: TokenStream, found: &mut Vec<String>) {
    let mut is_test = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => match group.stream().to_string().replace(' ', "") {
                attribute if attribute.starts_with("doc=") => {}
                attribute if attribute == "cfg(test)" => is_test = true,
                _ if is_test && group.delimiter() == Delimiter::Brace => is_test = false,
                _ => messages(group.stream(), found),
            },
            TokenTree::Punct(end) if end.as_char() == ';' => is_test = false,
            TokenTree::Literal(literal) => {
                let text = syn::parse_str::<syn::LitStr>(&literal.to_string());
                found.extend(text.map(|text| text.value()).ok().filter(|text| text.contains(' ')));
            }
            _ => {}
        }
    }
}

/// A format string without its arguments: `{room}` is a variable.
fn without_arguments(text: &str) -> String {
    let parts = text
        .split('{')
        .enumerate()
        .map(|(index, part)| match part.split_once('}') {
            Some((_, rest)) if index > 0 => rest,
            _ => part,
        });
    parts.collect::<Vec<_>>().join(" ")
}

#[test]
fn messages_use_standard_terms() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (file, text) in crate::layering::sources() {
        if !file.ends_with("tests.rs") {
            let mut found = Vec::new();
            messages(text.parse().unwrap(), &mut found);
            checked += found.len();
            for text in found.iter().map(|text| without_arguments(text)) {
                let phrases = excluded_in(&text).into_iter();
                wrong.extend(phrases.map(|phrase| format!("{file}: {phrase}: {text}")));
            }
        }
    }
    assert!(checked > 1000, "only {checked} messages were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let mut found = Vec::new();
    let code = r#"/// A deed.
        fn f() { info!("a {room}: mend {x}") } #[cfg(test)] mod tests { const A: &str = "a deed"; }"#;
    messages(code.parse().unwrap(), &mut found);
    assert_eq!(
        found
            .iter()
            .map(|text| excluded_in(&without_arguments(text)))
            .collect::<Vec<_>>(),
        [["mend*"]]
    );
}

/// The names of all tests of this crate, also of the promises of the contract.
fn tests() -> BTreeSet<String> {
    let mut files = vec![root().join("src"), root().join("tests")];
    let mut found = BTreeSet::new();
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let is_contract = path.ends_with("tests/it/contract.rs");
        let mut is_test = false;
        for line in text(&path).lines().map(str::trim) {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            let name = match line.split_once("fn ") {
                Some((_, name)) if std::mem::take(&mut is_test) => name,
                _ if is_contract && line.ends_with("],") => line,
                _ => continue,
            };
            found.extend(name.split(['(', ' ']).next().map(str::to_owned));
        }
    }
    found
}

/// Each row and paragraph about measures and checks names its tests in a comment, or says that there is none.
#[test]
fn each_measure_and_each_check_of_a_file_names_tests_that_exist() {
    let tests = tests();
    let mut unnamed = Vec::new();
    for (page, sections) in [
        (
            "docs/explanation/security.md",
            &["Attacks and measures", "Operations that lose data", "Text from outside"][..],
        ),
        ("docs/reference/named-files.md", &["Checks"]),
    ] {
        let page = text(&root().join(page));
        let mut section = "";
        for block in page.split("\n\n") {
            if let Some(heading) = block.strip_prefix("## ") {
                section = heading.lines().next().unwrap();
            }
            let is_table = block.starts_with('|');
            let claims: Vec<&str> = match is_table {
                true => block.lines().skip(2).collect(),
                false if block.starts_with('#') => continue,
                false => vec![block],
            };
            for claim in claims {
                let comments = claim
                    .split("<!-- ")
                    .skip(1)
                    .map(|rest| rest.split(" -->").next().unwrap());
                let comments: Vec<&str> = comments.collect();
                for names in comments.iter().filter_map(|comment| comment.strip_prefix("tests: ")) {
                    for name in names.split(',').map(str::trim) {
                        assert!(tests.contains(name), "no test {name}, named by: {claim}");
                    }
                }
                if comments.is_empty() && sections.contains(&section) {
                    unnamed.push(claim.to_owned());
                }
            }
        }
    }
    assert_eq!(unnamed, [""; 0], "these name no test");
}
