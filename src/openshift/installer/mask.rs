//! Keeps secrets out of logs, errors and bundles, including encoded ones: base64, percent-encoding, escapes, gzip.

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use aho_corasick::AhoCorasick;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::bufread::GzDecoder;
use fs_err as fs;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::install_config::proxy_secrets;
use crate::cluster::ClusterConfig;

const MASK: &[u8] = b"****";

/// Most lines of a private key: one of 16384 bits has 200.
const MOST_KEY_LINES: usize = 250;

/// How many nested encodings are decoded: a pull secret in a Secret in a manifest in a compressed Ignition config has
/// five.
const DEEPEST: usize = 6;

/// Most unpacked bytes of one text; a larger one is masked as a whole.
const MOST_UNPACKED: usize = 64 << 20;

/// Shortest run of characters that may be base64 of a secret.
const SHORTEST_RUN: usize = 6;

/// Masks secrets in text.
pub struct Mask {
    /// `None` without secrets.
    secrets: Option<AhoCorasick>,
}

impl Mask {
    /// The pull secret, each credential in it, kubeadmin's password and the admin's kubeconfig, if the directory has
    /// them.
    pub fn new(config: &ClusterConfig, folder: &Path) -> Self {
        let pull_secret = config.node_pull_secret();
        let pull_secret = pull_secret.expose_secret();
        let mut secrets = vec![pull_secret.to_owned()];
        secrets.extend(proxy_secrets(config));
        let parsed: Value = serde_json::from_str(pull_secret).unwrap_or_default();
        for registry in parsed["auths"].as_object().into_iter().flat_map(|auths| auths.values()) {
            let fields = ["auth", "password", "identitytoken", "registrytoken"];
            for field in fields.iter().filter_map(|field| registry[field].as_str()) {
                secrets.push(field.to_owned());
            }
            // `user:password`.
            let auth = registry["auth"].as_str().and_then(|auth| STANDARD.decode(auth).ok());
            if let Some(auth) = auth.and_then(|auth| String::from_utf8(auth).ok()) {
                secrets.extend(auth.split_once(':').map(|(_, password)| password.to_owned()));
                secrets.push(auth);
            }
        }
        // Missing before `create ignition-configs`; a password of that form is always masked.
        if let Ok(password) = fs::read_to_string(folder.join("auth/kubeadmin-password")) {
            secrets.push(password.trim().to_owned());
        }
        // Its key needs no entry: private keys are always masked, also in base64.
        let kubeconfig = fs::read_to_string(folder.join("auth/kubeconfig")).unwrap_or_default();
        let kubeconfig: Value = serde_saphyr::from_str(&kubeconfig).unwrap_or_default();
        for user in kubeconfig["users"].as_array().into_iter().flatten() {
            let fields = ["token", "password"].map(|field| user["user"][field].as_str().map(str::to_owned));
            secrets.extend(fields.into_iter().flatten());
        }
        secrets.retain(|secret| secret.len() >= 4);
        Self {
            secrets: AhoCorasick::new(secrets).ok(),
        }
    }

    /// The text with `****` in place of each secret and of whatever decodes to one.
    pub fn apply(&self, text: &str) -> String {
        let text = text.as_bytes();
        let mut unpacked = 0;
        let mut found = self.find(text, DEEPEST, &mut unpacked);
        found.sort_by_key(|range| range.start);
        let mut masked = Vec::with_capacity(text.len());
        let mut copied = 0;
        for range in found {
            if range.start >= copied {
                masked.extend_from_slice(&text[copied..range.start]);
                masked.extend_from_slice(MASK);
            }
            copied = copied.max(range.end);
        }
        masked.extend_from_slice(&text[copied..]);
        String::from_utf8_lossy(&masked).into_owned()
    }

    /// The positions of secrets in the text, plain and encoded up to `depth` times.
    fn find(&self, text: &[u8], depth: usize, unpacked: &mut usize) -> Vec<Range<usize>> {
        let mut found = self.find_here(text, depth, unpacked);
        if depth == 0 {
            return found;
        }
        for skipped in 0..4 {
            let view = base64(text, skipped);
            found.extend(view.origins(self.find_here(&view.bytes, depth, unpacked)));
            // Decoded from the wrong offset, base64 is noise that contains no further encoding.
            let texts = view.texts();
            found.extend(texts.origins(self.find(&texts.bytes, depth - 1, unpacked)));
        }
        for view in [escapes(text), percent_signs(text)] {
            if view.bytes.len() < text.len() {
                found.extend(view.origins(self.find(&view.bytes, depth - 1, unpacked)));
            }
        }
        found
    }

    /// Secrets in plain and compressed form; `text` may be any bytes.
    fn find_here(&self, text: &[u8], depth: usize, unpacked: &mut usize) -> Vec<Range<usize>> {
        let plain = self
            .secrets
            .iter()
            .flat_map(|secrets| secrets.find_overlapping_iter(text));
        let mut found: Vec<Range<usize>> = plain.map(|found| found.range()).collect();
        found.extend(kubeadmin_passwords(text));
        found.extend(private_keys(text));
        for start in gzip_members(text).filter(|_| depth > 0) {
            let mut member = GzDecoder::new(&text[start..]);
            let mut bytes = Vec::new();
            let remaining = MOST_UNPACKED.saturating_sub(*unpacked);
            // Damaged data is searched as far as it can be read.
            let _ = member.by_ref().take(remaining as u64 + 1).read_to_end(&mut bytes);
            *unpacked += bytes.len();
            if bytes.len() > remaining {
                found.push(start..text.len());
            } else if !self.find(&bytes, depth - 1, unpacked).is_empty() {
                found.push(start..text.len() - member.into_inner().len());
            }
        }
        found
    }
}

/// Masks the lines of one stream in their order: a private key has many.
pub struct MaskedLines<'a> {
    mask: &'a Mask,
    /// How many more lines may belong to a private key that has begun.
    key_lines: usize,
}

impl<'a> MaskedLines<'a> {
    pub fn new(mask: &'a Mask) -> Self {
        Self { mask, key_lines: 0 }
    }

    /// The masked line; `None` if it is in the middle of a private key.
    pub fn apply(&mut self, line: &str) -> Option<String> {
        if self.key_lines > 0 {
            let Some(end) = line.find(END) else {
                self.key_lines -= 1;
                return None;
            };
            self.key_lines = 0;
            return self.apply(&line[end..]);
        }
        if let Some(key) = private_keys(line.as_bytes()).last()
            && key.end == line.len()
        {
            self.key_lines = MOST_KEY_LINES;
        }
        Some(self.mask.apply(line))
    }
}

/// A decoded text, and the position of each byte in the encoded text; the last entry is the encoded text's end.
#[derive(Default)]
struct View {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl View {
    fn push(&mut self, bytes: &[u8], start: usize) {
        self.bytes.extend_from_slice(bytes);
        self.starts.extend(bytes.iter().map(|_| start));
    }

    fn ends(mut self, end: usize) -> Self {
        self.starts.push(end);
        self
    }

    /// The positions of decoded ranges in the encoded text, including every character that contributes to them.
    fn origins(&self, decoded: Vec<Range<usize>>) -> impl Iterator<Item = Range<usize>> {
        decoded.into_iter().map(|range| {
            let (start, last) = (self.starts[range.start], self.starts[range.end - 1]);
            let mut after = self.starts[range.end..].iter().copied();
            start..after.find(|next| *next > last).unwrap_or(last)
        })
    }

    /// Only its text: runs of eight bytes or more.
    fn texts(&self) -> Self {
        let mut texts = Self::default();
        let mut at = 0;
        for chunk in self.bytes.utf8_chunks() {
            for piece in chunk
                .valid()
                .split_inclusive(|c: char| c.is_control() && !c.is_ascii_whitespace())
            {
                if piece.len() >= 8 {
                    texts.bytes.extend_from_slice(piece.as_bytes());
                    texts.starts.extend_from_slice(&self.starts[at..at + piece.len()]);
                    texts.push(&[0], self.starts[at + piece.len()]);
                }
                at += piece.len();
            }
            at += chunk.invalid().len();
        }
        texts.ends(self.starts.last().copied().unwrap_or_default())
    }
}

/// Everything that may be base64 in either alphabet, across line ends, decoded from the `skipped`-th character of each
/// run.
fn base64(text: &[u8], skipped: usize) -> View {
    let mut view = View::default();
    let mut at = 0;
    while at < text.len() {
        // The positions of a run's characters; a line may end within it, and the next may be indented.
        let mut run = Vec::new();
        while let Some(byte) = text.get(at) {
            if six_bits(*byte).is_some() {
                run.push(at);
            } else {
                let rest = &text[at..];
                let gap = rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                if !rest[..gap].contains(&b'\n') {
                    break;
                }
                at += gap - 1;
            }
            at += 1;
        }
        let end = run.last().map_or(at, |last| last + 1);
        at += 1;
        if run.len() < SHORTEST_RUN {
            continue;
        }
        for quad in run.get(skipped..).unwrap_or_default().chunks(4) {
            let bits = quad.iter().filter_map(|place| six_bits(text[*place]));
            let bits = bits.fold(0, |bits, six| bits << 6 | u32::from(six)) << (6 * (4 - quad.len()));
            let [_, bytes @ ..] = bits.to_be_bytes();
            view.push(&bytes[..quad.len() - 1], quad[0]);
        }
        // A byte that occurs in no secret separates runs.
        view.push(&[0], end);
    }
    view.ends(text.len())
}

fn six_bits(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' | b'-' => 62,
        b'/' | b'_' => 63,
        _ => return None,
    })
}

/// The text without backslashes, as JSON, Go and Rust write them.
fn escapes(text: &[u8]) -> View {
    let mut view = View::default();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let (bytes, length) = match (byte, text.get(at + 1)) {
            (b'\\', Some(b'n')) => (b"\n".to_vec(), 2),
            (b'\\', Some(b't')) => (b"\t".to_vec(), 2),
            (b'\\', Some(b'r')) => (b"\r".to_vec(), 2),
            (b'\\', Some(b'x')) => (vec![hex(text, at + 2, 2).unwrap_or(0) as u8], 4),
            (b'\\', Some(b'u')) => {
                let character = hex(text, at + 2, 4).and_then(char::from_u32).unwrap_or('\0');
                (character.to_string().into_bytes(), 6)
            }
            (b'\\', Some(other)) => (vec![*other], 2),
            _ => (vec![*byte], 1),
        };
        view.push(&bytes, at);
        at += length;
    }
    view.ends(text.len())
}

/// The text with `A` for `%41`.
fn percent_signs(text: &[u8]) -> View {
    let mut view = View::default();
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match (byte, hex(text, at + 1, 2)) {
            (b'%', Some(number)) => {
                view.push(&[number as u8], at);
                at += 3;
            }
            _ => {
                view.push(&[*byte], at);
                at += 1;
            }
        }
    }
    view.ends(text.len())
}

fn hex(text: &[u8], at: usize, digits: usize) -> Option<u32> {
    let digits = std::str::from_utf8(text.get(at..at + digits)?).ok()?;
    u32::from_str_radix(digits, 16).ok()
}

/// Possible beginnings of gzip members (RFC 1952, section 2.3.1).
fn gzip_members(text: &[u8]) -> impl Iterator<Item = usize> {
    let windows = text.windows(3).enumerate();
    windows.filter_map(|(start, window)| (window == [0x1f, 0x8b, 8]).then_some(start))
}

/// How the line after a key in PEM begins (RFC 7468, section 2).
const END: &str = "-----END ";

/// Private keys in PEM, of whatever kind, up to the line after each or to the end of the text.
fn private_keys(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(begin) = position(&text[at..], b"-----BEGIN ") {
        let begin = at + begin;
        at = begin + 1;
        let label = &text[begin..text.len().min(begin + 64)];
        // OpenPGP's is a `PRIVATE KEY BLOCK`.
        if position(label, b"PRIVATE KEY").is_some() {
            let end = position(&text[at..], END.as_bytes()).map_or(text.len(), |end| at + end);
            found.push(begin..end);
            at = end;
        }
    }
    found
}

fn position(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Tokens of four groups of five letters and digits: the form of kubeadmin's password.
fn kubeadmin_passwords(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    for word in text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-') {
        let groups = || word.split(|byte| *byte == b'-');
        if word.len() == 23 && groups().count() == 4 && groups().all(|group| group.len() == 5) {
            found.push(at..at + word.len());
        }
        at += word.len() + 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    use super::*;

    const PASSWORD: &str = "p4ss\"w%rd/ünï";

    fn mask() -> Mask {
        let mut config = ClusterConfig::example();
        let auth = STANDARD.encode(format!("me:{PASSWORD}"));
        config.pull_secret = serde_json::json!({"auths": {"a": {"auth": auth}}}).to_string().into();
        Mask::new(&config, Path::new("/nowhere"))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn percent(text: &[u8]) -> String {
        text.iter().map(|byte| format!("%{byte:02x}")).collect()
    }

    #[test]
    fn secrets_are_masked_and_nothing_else() {
        let mut config = ClusterConfig::example();
        config.pull_secret = r#"{"auths":{"a":{"auth":"Zm9vOmJhcg=="},"b":{"password":"p%ss\"w"}}}"#.into();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("auth")).unwrap();
        fs::write(folder.path().join("auth/kubeadmin-password"), "odd form\n").unwrap();
        let kubeconfig = "users: [{name: admin, user: {token: t0ken}}]";
        fs::write(folder.path().join("auth/kubeconfig"), kubeconfig).unwrap();
        let mask = Mask::new(&config, folder.path());
        for (line, masked) in [
            (
                "Login with \"kubeadmin\", password: \"aB3dE-fGh1j-Klmn0-pqrst\".",
                "Login with \"kubeadmin\", password: \"****\".",
            ),
            ("aB3dE-fGh1j-Klmn0-pqrst", "****"),
            ("auth Zm9vOmJhcg==, odd form", "auth ****, ****"),
            ("p%ss\"w t0ken", "**** ****"),
            (
                "lab-2fld9 api-int.lab.example.com aB3dE-fGh1j-Klmn0",
                "lab-2fld9 api-int.lab.example.com aB3dE-fGh1j-Klmn0",
            ),
            ("ünï — ok \\n %41 100%", "ünï — ok \\n %41 100%"),
            (
                "a\n-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\nb",
                "a\n****-----END RSA PRIVATE KEY-----\nb",
            ),
        ] {
            assert_eq!(mask.apply(line), masked);
        }
        let whole = config.pull_secret.expose_secret().to_owned();
        assert_eq!(mask.apply(&whole), "****");
    }

    #[test]
    fn encoded_secrets_are_masked_and_the_text_around_them_is_kept() {
        let mask = mask();
        let json = serde_json::to_string(PASSWORD).unwrap();
        let data = |bytes: &[u8]| format!("data:;base64,{}", STANDARD.encode(bytes));
        let wrapped = STANDARD.encode([&[b'x'; 40][..], PASSWORD.as_bytes()].concat());
        let wrapped: Vec<_> = wrapped.as_bytes().chunks(20).map(String::from_utf8_lossy).collect();
        for encoded in [
            STANDARD.encode(PASSWORD),
            STANDARD.encode(format!("x{PASSWORD}")),
            STANDARD.encode(format!("xx{PASSWORD}yy")),
            URL_SAFE_NO_PAD.encode(format!("xxx?>{PASSWORD}")),
            wrapped.join("\n    "),
            serde_json::to_string(&wrapped.join("\n")).unwrap(),
            json.clone(),
            serde_json::to_string(&json).unwrap(),
            format!("{PASSWORD:?}"),
            percent(PASSWORD.as_bytes()),
            percent(&percent(PASSWORD.as_bytes()).into_bytes()),
            data(&gzip(PASSWORD.as_bytes())),
            data(&gzip(data(&gzip(json.as_bytes())).as_bytes())),
            STANDARD.encode(STANDARD.encode(format!("{{\"source\":\"data:,{}\"}}", percent(PASSWORD.as_bytes())))),
        ] {
            let line = format!("before it {encoded} after it");
            let masked = mask.apply(&line);
            assert!(
                masked.starts_with("before it ") && masked.ends_with(" after it"),
                "{line}: {masked}"
            );
            assert!(masked.contains("****"), "{line}: {masked}");
            assert_eq!(mask.apply(&masked), masked, "something is left of {line}");
        }
    }

    #[test]
    fn no_line_of_a_private_key_is_shown() {
        let mask = mask();
        let shown = |text: &str| {
            let mut lines = MaskedLines::new(&mask);
            text.lines().filter_map(|line| lines.apply(line)).collect::<Vec<_>>()
        };
        for (begin, end) in [
            ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"),
            (
                "msg=-----BEGIN OPENSSH PRIVATE KEY-----",
                "-----END OPENSSH PRIVATE KEY-----",
            ),
            (
                "-----BEGIN PGP PRIVATE KEY BLOCK-----",
                "-----END PGP PRIVATE KEY BLOCK-----",
            ),
        ] {
            let text = format!("before\n{begin}\nProc-Type: 4\n\n  AAAA\nAAAA{end} {PASSWORD}\nafter");
            let masked = format!("{}****", begin.split("-----").next().unwrap());
            assert_eq!(shown(&text), ["before", &masked, &format!("{end} ****"), "after"]);
        }
        let whole = "a -----BEGIN PRIVATE KEY----- AAAA -----END PRIVATE KEY----- b";
        assert_eq!(shown(whole), ["a ****-----END PRIVATE KEY----- b"]);
        // One without an end does not hide all other lines.
        let begun = format!("-----BEGIN PRIVATE KEY-----\n{}after", "AAAA\n".repeat(MOST_KEY_LINES));
        assert_eq!(shown(&begun), ["****", "after"]);
        let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----";
        assert_eq!(shown(certificate).join("\n"), certificate);
    }

    /// A megabyte of gzip unpacks to a gigabyte: it is not unpacked, but masked.
    #[test]
    fn a_decompression_bomb_is_masked_as_a_whole() {
        let line = STANDARD.encode(gzip(&vec![0; MOST_UNPACKED + 1]));
        assert_eq!(mask().apply(&format!("a {line}")).trim_end_matches('='), "a ****");
    }

    proptest! {
        #[test]
        fn any_text_without_a_secret_stays_as_it_is(text in "[ -~\n\\\\%ü]{0,200}") {
            prop_assert_eq!(mask().apply(&text), text);
        }

        #[test]
        fn a_secret_is_found_at_every_alignment(before in prop::collection::vec(any::<u8>(), 0..9), after in prop::collection::vec(any::<u8>(), 0..9), lead in "[A-Za-z0-9+/]{0,5}") {
            let encoded = STANDARD.encode([&before[..], PASSWORD.as_bytes(), &after].concat());
            let masked = mask().apply(&format!("{lead}{encoded}"));
            prop_assert!(masked.contains("****"), "{}", masked);
        }
    }
}
