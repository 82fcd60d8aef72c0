//! Reads Rust source just far enough to say which paths and words it holds.

use std::collections::BTreeMap;
use std::path::Path;

/// One file's program text: no comments, literals or tests.
pub struct Source {
    pub file: String,
    tokens: Vec<Token>,
    /// Every path that is named, from its root: `std::fs::File`, `crate::journal`.
    paths: Vec<(usize, Vec<String>)>,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Self {
        let tokens = without_tests(&tokens(&without_comments_and_literals(text))).0;
        let paths = paths(file, &tokens);
        Self {
            file: file.to_owned(),
            tokens,
            paths,
        }
    }

    /// Paths that lead into, or take all of what contains, one of `roots`.
    pub fn uses_of(&self, roots: &[&str]) -> Vec<(usize, String)> {
        let leads_into = |path: &[String]| {
            roots.iter().any(|root| {
                let root: Vec<&str> = root.split("::").collect();
                match path.split_last() {
                    Some((last, head)) if last == "*" => head.iter().zip(&root).all(|(a, b)| a == b),
                    _ => path.len() >= root.len() && path.iter().zip(&root).all(|(a, b)| a == b),
                }
            })
        };
        self.paths
            .iter()
            .filter(|(_, path)| leads_into(path))
            .map(|(line, path)| (*line, path.join("::")))
            .collect()
    }

    /// Paths into this crate that are not `allowed`; these are given without `crate`.
    pub fn crate_uses(&self, allowed: impl Fn(&[&str]) -> bool) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (line, path) in &self.paths {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match path.as_slice() {
                ["crate", inner @ ..] if !inner.is_empty() && !allowed(inner) => found.push((*line, path.join("::"))),
                _ => {}
            }
        }
        found
    }

    /// Places where one of `patterns` stands, however it is spaced.
    pub fn words(&self, patterns: &[&str]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for pattern in patterns {
            let wanted = tokens(pattern);
            for window in self.tokens.windows(wanted.len()) {
                if window.iter().zip(&wanted).all(|(a, b)| a.text == b.text) {
                    found.push((window[0].line, (*pattern).to_owned()));
                }
            }
        }
        found
    }
}

/// A word or sign of the program text.
#[derive(Clone, Debug)]
struct Token {
    line: usize,
    text: String,
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn tokens(code: &str) -> Vec<Token> {
    let chars: Vec<char> = code.chars().collect();
    let (mut tokens, mut line, mut at) = (Vec::new(), 1, 0);
    while at < chars.len() {
        let start = at;
        at += 1;
        match chars[start] {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            c => {
                if is_word(c) {
                    while at < chars.len() && is_word(chars[at]) {
                        at += 1;
                    }
                } else if matches!((c, chars.get(at)), (':', Some(':')) | ('!', Some('='))) {
                    at += 1;
                }
                let text = chars[start..at].iter().collect();
                tokens.push(Token { line, text });
            }
        }
    }
    tokens
}

/// Blanks comments, strings and characters; lines stay where they are.
fn without_comments_and_literals(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = end_of_comment_or_literal(&chars, at);
        let next = end.unwrap_or(at + 1).min(chars.len());
        for c in &chars[at..next] {
            code.push(if end.is_some() && *c != '\n' { ' ' } else { *c });
        }
        at = next;
    }
    code
}

/// Where the comment or literal that begins `at` ends; `None` if none begins there.
fn end_of_comment_or_literal(chars: &[char], at: usize) -> Option<usize> {
    let is = |at: usize, c: char| chars.get(at) == Some(&c);
    let ends = |from: usize, by: &dyn Fn(usize) -> bool| (from..chars.len()).find(|at| by(*at));
    match chars[at] {
        '/' if is(at + 1, '/') => Some(ends(at, &|at| is(at, '\n')).unwrap_or(chars.len())),
        '/' if is(at + 1, '*') => {
            let (mut depth, mut at) = (1, at + 2);
            while depth > 0 && at < chars.len() {
                match (chars[at], chars.get(at + 1)) {
                    ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
                    ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
                    _ => at += 1,
                }
            }
            Some(at)
        }
        '"' => Some(end_of_quoted(chars, at + 1, '"')),
        '\'' if is(at + 1, '\\') => Some(end_of_quoted(chars, at + 1, '\'')),
        // Everything else after a quote is a lifetime.
        '\'' if is(at + 2, '\'') => Some(at + 3),
        'r' if at == 0 || !is_word(chars[at - 1]) || is_raw_prefix(chars, at) => {
            let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
            if !is(at + 1 + hashes, '"') {
                return None;
            }
            let closes = |at: usize| is(at, '"') && (1..=hashes).all(|n| is(at + n, '#'));
            Some(ends(at + 2 + hashes, &closes).map_or(chars.len(), |at| at + 1 + hashes))
        }
        _ => None,
    }
}

/// Whether the `r` belongs to `br` or `cr` before a string.
fn is_raw_prefix(chars: &[char], at: usize) -> bool {
    matches!(chars[at - 1], 'b' | 'c') && (at < 2 || !is_word(chars[at - 2]))
}

fn end_of_quoted(chars: &[char], mut at: usize, quote: char) -> usize {
    while at < chars.len() && chars[at] != quote {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Takes out every `#[cfg(test)]` item, and tells the names of modules that are files of their own.
fn without_tests(tokens: &[Token]) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        let Some(end) = end_of_attribute(tokens, at) else {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        };
        let attribute: Vec<&str> = tokens[at + 2..end].iter().map(|token| token.text.as_str()).collect();
        let has = |word| attribute.contains(&word);
        if attribute[0] == "cfg" && has("test") && !has("not") && !has("any") {
            let item = end_of_item(tokens, end);
            if let [.., module, name, end] = &tokens[at..item]
                && module.text == "mod"
                && end.text == ";"
            {
                modules.push(name.text.clone());
            }
            at = item;
        } else {
            kept.extend_from_slice(&tokens[at..end]);
            at = end;
        }
    }
    (kept, modules)
}

/// The end of the outer attribute that begins `at`, if one does.
fn end_of_attribute(tokens: &[Token], at: usize) -> Option<usize> {
    let is = |at: usize, text: &str| tokens.get(at).is_some_and(|token| token.text == text);
    (is(at, "#") && is(at + 1, "[")).then(|| end_of_group(tokens, at + 1))
}

/// The end of the bracketed group that begins `at`.
fn end_of_group(tokens: &[Token], at: usize) -> usize {
    let mut depth = 0;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + offset + 1;
        }
    }
    tokens.len()
}

/// The end of the item that begins `at`: its semicolon, or the end of its body.
fn end_of_item(tokens: &[Token], mut at: usize) -> usize {
    while let Some(end) = end_of_attribute(tokens, at) {
        at = end;
    }
    let ends_with_semicolon = tokens[at..]
        .iter()
        .take_while(|token| !["{", "(", ";"].contains(&token.text.as_str()))
        .any(|token| ["use", "static", "let"].contains(&token.text.as_str()));
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "{" if !ends_with_semicolon => return end_of_group(tokens, at),
            "{" | "(" | "[" => at = end_of_group(tokens, at),
            // The end of what the item stands in, e.g. of a struct whose last field it is.
            "}" | ")" | "]" => return at,
            _ => at += 1,
        }
    }
    at
}

/// Every path of a file: those of `use` trees, and those named in place.
fn paths(file: &str, tokens: &[Token]) -> Vec<(usize, Vec<String>)> {
    let (mut used, mut named) = (Vec::new(), Vec::new());
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut at = 0;
    while at < tokens.len() {
        let line = tokens[at].line;
        let starts_word = text(at).starts_with(is_word);
        if text(at) == "use" && text(at + 1) != "<" {
            let mut tree = UseTree {
                tokens,
                at: at + 1,
                found: Vec::new(),
            };
            tree.read(&[]);
            at = tree.at;
            used.extend(tree.found.into_iter().map(|(path, name)| (line, path, name)));
        } else if starts_word && (at == 0 || text(at - 1) != ".") {
            let mut path = vec![text(at).to_owned()];
            at += 1;
            while text(at) == "::" && text(at + 1).starts_with(is_word) {
                path.push(text(at + 1).to_owned());
                at += 2;
            }
            if path.len() > 1 {
                named.push((line, path));
            }
        } else {
            at += 1;
        }
    }
    let names: BTreeMap<String, Vec<String>> = used
        .iter()
        .map(|(_, path, name)| (name.clone(), path.clone()))
        .collect();
    let module = module_of(file);
    let used = used.into_iter().map(|(line, path, _)| (line, path));
    used.chain(named)
        .map(|(line, path)| (line, from_root(&path, &names, &module, 4)))
        .collect()
}

/// Follows renames, `self` and `super`. Modules within a file count as the file's own.
fn from_root(path: &[String], names: &BTreeMap<String, Vec<String>>, module: &[String], depth: usize) -> Vec<String> {
    let rest = &path[1..];
    match path[0].as_str() {
        "self" => ["crate".to_owned()].iter().chain(module).chain(rest).cloned().collect(),
        "super" => {
            let ups = path.iter().take_while(|part| *part == "super").count();
            let above = &module[..module.len().saturating_sub(ups)];
            ["crate".to_owned()]
                .iter()
                .chain(above)
                .chain(&path[ups..])
                .cloned()
                .collect()
        }
        first => match names.get(first) {
            Some(full) if depth > 0 && full[0] != first => {
                let full: Vec<String> = full.iter().chain(rest).cloned().collect();
                from_root(&full, names, module, depth - 1)
            }
            _ => path.to_vec(),
        },
    }
}

/// `backend/libvirt/mod.rs` is the module `backend::libvirt`.
fn module_of(file: &str) -> Vec<String> {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    if ["lib", "main"].contains(&path) {
        return Vec::new();
    }
    path.split('/').map(str::to_owned).collect()
}

/// Reads one `use` declaration into paths and the names they get.
struct UseTree<'a> {
    tokens: &'a [Token],
    at: usize,
    found: Vec<(Vec<String>, String)>,
}

impl UseTree<'_> {
    fn text(&self) -> &str {
        self.tokens.get(self.at).map_or(";", |token| token.text.as_str())
    }

    fn read(&mut self, above: &[String]) {
        let mut path = above.to_vec();
        loop {
            match self.text().to_owned().as_str() {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !["}", ";"].contains(&self.text()) {
                        self.read(&path);
                        if self.text() == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "as" => {
                    self.at += 1;
                    let name = self.text().to_owned();
                    self.at += 1;
                    self.found.push((path, name));
                    return;
                }
                "," | "}" | ";" => {
                    let name = path.last().cloned().unwrap_or_default();
                    self.found.push((path, name));
                    return;
                }
                // `net::{self, ..}` is `net`; a leading `self` is a module.
                "self" if !path.is_empty() => self.at += 1,
                part => {
                    path.push(part.to_owned());
                    self.at += 1;
                }
            }
        }
    }
}

/// All files of `src` that are not tests: path beneath `src`, text.
pub fn program() -> Vec<(String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut folders = vec![src.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&src).unwrap().to_str().unwrap().to_owned();
                files.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut tests = Vec::new();
    for (file, text) in &files {
        let module = module_of(file);
        for name in without_tests(&tokens(&without_comments_and_literals(text))).1 {
            tests.push(module.iter().cloned().chain([name]).collect::<Vec<_>>());
        }
    }
    files.retain(|(file, _)| !tests.iter().any(|module| module_of(file).starts_with(module)));
    files.sort();
    files
}
