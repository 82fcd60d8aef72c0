//! The README quotes the program's words; this holds the quotes to the source.

use std::path::Path;

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// What stands in bold in the chapter on failures: the program's words, with … for what varies.
fn quoted(readme: &str) -> Vec<String> {
    let chapter = readme.split("## When something goes wrong").nth(1).unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let headings = chapter.lines().filter(|line| line.starts_with("**"));
    headings
        .flat_map(|line| {
            line.split("**")
                .filter(|part| part.trim_start_matches("hint ").starts_with('`'))
        })
        .map(|part| part.trim_start_matches("hint ").trim_matches('`').to_owned())
        .collect()
}

/// One line, so that a quote is found wherever the source breaks it.
fn one_line(text: &str) -> String {
    text.replace("\\\n", " ")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Whether every part of a quote is said somewhere; a part may come from another room, e.g. a platform's reason.
fn is_said(quote: &str, files: &[String]) -> bool {
    let mut parts = quote
        .split('…')
        .flat_map(|part| part.split(": "))
        .map(one_line)
        .filter(|part| part.len() > 4)
        .peekable();
    parts.peek().is_some() && parts.all(|part| files.iter().any(|file| file.contains(&part)))
}

#[test]
fn the_words_it_explains_are_the_programs() {
    // These are QEMU's.
    let foreign = ["cannot open backing file"];
    let files: Vec<String> = crate::layering::sources()
        .iter()
        .map(|(_, text)| one_line(text))
        .collect();
    let quotes = quoted(&readme());
    assert!(quotes.len() > 10, "the chapter was not found: {quotes:?}");
    let unknown: Vec<_> = quotes
        .iter()
        .filter(|quote| !foreign.iter().any(|words| quote.starts_with(words)) && !is_said(quote, &files))
        .collect();
    assert!(unknown.is_empty(), "the program does not say: {unknown:#?}");
    assert!(!is_said("… runs, but has no leash …", &files));
}

/// The texts of all pages in `docs/`, by name.
fn pages() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    pages
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).unwrap())
        })
        .collect()
}

#[test]
fn each_symptom_has_the_programs_words() {
    let pages = pages();
    let (_, page) = pages.iter().find(|(name, _)| name == "troubleshooting.md").unwrap();
    let quotes: Vec<&str> = page
        .split("**`")
        .skip(1)
        .filter_map(|rest| rest.split("`**").next())
        .collect();
    assert!(quotes.len() > 25, "{quotes:?}");
    assert_eq!(page.matches("\n### ").count(), 30);
    let files: Vec<String> = crate::layering::sources()
        .iter()
        .map(|(_, text)| one_line(text))
        .collect();
    let unknown: Vec<_> = quotes.iter().filter(|quote| !is_said(quote, &files)).collect();
    assert!(unknown.is_empty(), "the program does not say: {unknown:#?}");
}

/// How a heading is named in a link.
fn anchor(heading: &str) -> String {
    let kept = heading
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || " -".contains(*c))
        .collect::<String>();
    kept.replace(' ', "-")
}

#[test]
fn the_pages_lead_to_each_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let pages = pages();
    let (_, index) = pages.iter().find(|(name, _)| name == "README.md").unwrap();
    for (name, text) in &pages {
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "{name} is not in the index"
        );
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let (file, sandbox) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() {
                folder.join(name)
            } else {
                folder.join(file)
            };
            assert!(link.starts_with("https://") || path.exists(), "{name}: {link}");
            if !sandbox.is_empty() {
                let text = std::fs::read_to_string(&path).unwrap();
                let mut headings = text
                    .lines()
                    .filter(|line| line.starts_with('#'))
                    .map(|line| anchor(line.trim_start_matches('#').trim()));
                assert!(headings.any(|heading| heading == sandbox), "{name}: {link}");
            }
        }
    }
}

/// The first block of a kind in a chapter.
fn block<'a>(chapter: &'a str, kind: &str) -> &'a str {
    let begin = format!("```{kind}\n");
    let (_, rest) = chapter.split_once(&begin).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn its_ignition_session_is_what_the_program_does() {
    let readme = readme();
    let chapter = readme.split("## Ignition: merge, check, show\n").nth(1).unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let worker = r#"{"ignition": {"version": "3.2.0"}, "storage": {"files": [{"path": "/etc/motd", "mode": 420,
        "contents": {"compression": "", "source": "data:,a%20worker%0A"}}]}, "passwd": {"users": [{"name": "core"}]}}"#;
    std::fs::write(folder.path().join("worker.ign"), worker).unwrap();
    std::fs::write(folder.path().join("mine.ign"), block(chapter, "json")).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_ocpdeploy")).parent().unwrap();
    let (shown, mut seen) = (block(chapter, "console"), String::new());
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

#[test]
fn its_links_lead_to_files_and_its_targets_exist() {
    let (root, readme) = (Path::new(env!("CARGO_MANIFEST_DIR")), readme());
    let links: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    for link in links.iter().filter(|link| !link.starts_with("https://")) {
        assert!(root.join(link).exists(), "{link}");
    }
    assert!(links.contains(&"README.svg"));
    let makefile = std::fs::read_to_string(root.join("Makefile")).unwrap();
    let targets: Vec<&str> = readme
        .split("make ")
        .skip(1)
        .filter_map(|rest| rest.split([' ', '`', '\n']).next())
        .collect();
    for target in ["rehearse", "test", "build"] {
        assert!(targets.contains(&target), "{target}");
        assert!(makefile.contains(&format!("\n{target}:")), "{target}");
    }
}
