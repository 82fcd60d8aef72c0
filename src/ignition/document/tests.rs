use proptest::prelude::*;
use serde_json::json;

use super::*;

fn fault(text: impl AsRef<[u8]>) -> String {
    parse(text.as_ref()).unwrap_err().to_string()
}

#[test]
fn a_syntax_error_is_reported_with_its_position() {
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    for (text, expected) in [
        ("", "it is empty"),
        (" \n\t", "it is empty"),
        (
            "ignition:\n  version: 3.2.0\n",
            "line 1, column 1: this is YAML; Ignition configs are JSON",
        ),
        (
            "# of butane\nvariant: fcos\n",
            "line 1, column 1: this is YAML; Ignition configs are JSON",
        ),
        (
            "---\n- a\n",
            "line 1, column 1: this is YAML; Ignition configs are JSON",
        ),
        (
            "#cloud-config\nusers: []\n",
            "line 1, column 1: this is YAML; Ignition configs are JSON",
        ),
        ("\n  [1]", "line 2, column 3: a config must be an object, not a list"),
        (
            "\"{}\"",
            "line 1, column 1: a config must be an object, not a single value",
        ),
        (
            "3.2",
            "line 1, column 1: a config must be an object, not a single value",
        ),
        (
            "null",
            "line 1, column 1: a config is a JSON object and starts with `{`",
        ),
        (
            "<html>",
            "line 1, column 1: this is XML or HTML; Ignition configs are JSON",
        ),
        ("// x\n{}", "line 1, column 1: JSON does not support comments"),
        ("{ nope", "line 1, column 3: keys must be in double quotes"),
        ("{'a': 1}", "line 1, column 2: strings must be in double quotes"),
        (
            "{\"ignition\":",
            "line 1, column 13, in $.ignition: unexpected end of the config",
        ),
        (
            "{\"storage\": {\"files\": [{}, {\"path\": \"/a\"\n",
            "line 1, column 41, in $.storage.files.1: unexpected end of the config",
        ),
        (
            "{\"storage\": {\"files\": [\n{\"mode\": 0644}]}}",
            "line 2, column 11, in $.storage.files.0.mode: a number must not start with 0; modes are decimal: octal 0644 is 420",
        ),
        (
            "{\"a\": {\"b\": 1 \"c\": 2}}",
            "line 1, column 15, in $.a: expected `,` or `}`",
        ),
        ("{\"a\" 1}", "line 1, column 6: expected `:`"),
        ("{\"a\": [1,]}", "line 1, column 10, in $.a: trailing comma"),
        ("{\"a\": 1,}", "line 1, column 9: trailing comma"),
        ("{\"a\": }", "line 1, column 7, in $.a: expected a value"),
        (
            "{\"a\": yes}",
            "line 1, column 7, in $.a: not a value: strings must be in double quotes",
        ),
        (
            "{\"a\": \"two\nlines\"}",
            "line 1, column 11, in $.a: in a string, write a line break as \\n and a tab as \\t",
        ),
        (
            "{\"ü\": \"ü\", /* x */}",
            "line 1, column 12: JSON does not support comments",
        ),
        ("{} x", "line 1, column 4: unexpected text after the end of the config"),
        (
            "{}\n{}",
            "line 2, column 1: unexpected text after the end of the config",
        ),
        (
            &deep,
            "line 1, column 105: objects and lists are nested more than 100 levels deep",
        ),
    ] {
        assert_eq!(fault(text), expected, "{}", &text[..text.len().min(80)]);
    }
}

#[test]
fn a_file_that_is_not_text_is_reported_without_a_position() {
    for (bytes, expected) in [
        (&b"\x1f\x8b\x08\x00"[..], "it is compressed with gzip"),
        (b"\xef\xbb\xbf{}", "it starts with a BOM, which JSON does not allow"),
        (b"\xff\xfe{\x00}\x00", "it is UTF-16; a config must be UTF-8"),
        (b"\x7fELF\x00\x00", "it is not text"),
    ] {
        assert_eq!(fault(bytes), expected);
    }
    assert_eq!(
        fault(vec![b' '; 50 << 20]),
        "it has 50 MiB, and the limit for a config is 16 MiB"
    );
}

#[test]
fn a_truncated_config_is_rejected_wherever_it_ends() {
    let config = json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [{"path": "/ü\n", "mode": 420, "overwrite": true, "user": {"id": null}}]},
    });
    let text = config.to_string();
    assert_eq!(parse(text.as_bytes()).unwrap(), config);
    for length in 1..text.len() {
        let error = parse(&text.as_bytes()[..length]).unwrap_err();
        assert!(error.place.is_some(), "{length}: {error}");
        assert!(error.snippet.is_some(), "{length}: {error}");
    }
}

#[test]
fn only_known_versions_are_accepted() {
    let of = |version: &str| format!("{{\"ignition\": {{\"version\": {version}}}}}");
    for good in ["2.0.0", "2.2.0", "2.4.0", "3.0.0", "3.6.0", "03.2.0"] {
        assert!(parse(of(&format!("\"{good}\"")).as_bytes()).is_ok(), "{good}");
    }
    let unknown = |version: &str| {
        format!("unsupported config version `{version}`: 2.0.0 to 2.4.0 and 3.0.0 to 3.6.0 are supported")
    };
    for (version, expected) in [
        (
            "\"3.2\"",
            "a version has three numbers: write `3.2.0` instead of `3.2`".to_owned(),
        ),
        (
            "\"3\"",
            "the version `3` must be three numbers, such as `3.2.0`".to_owned(),
        ),
        ("\"\"", "the version must be three numbers, such as `3.2.0`".to_owned()),
        (
            "\"3.2.0 \"",
            "the version must be three numbers, such as `3.2.0`".to_owned(),
        ),
        ("3.2", "the version must be a string, such as \"3.2.0\"".to_owned()),
        ("null", "the config has no spec version".to_owned()),
        ("\"3.99.0\"", unknown("3.99.0")),
        ("\"3.2.1\"", unknown("3.2.1")),
        ("\"2.5.0\"", unknown("2.5.0")),
        ("\"1.0.0\"", unknown("1.0.0")),
        (
            "\"3.3.0-experimental\"",
            "`3.3.0-experimental` is an experimental version, which CoreOS rejects".to_owned(),
        ),
    ] {
        let error = parse(of(version).as_bytes()).unwrap_err();
        assert_eq!((error.reason, error.place), (expected, Some((1, 26))), "{version}");
    }
    assert_eq!(
        fault("{}"),
        "line 1, column 1, in $.ignition.version: the config has no spec version"
    );
}

#[test]
fn ambiguous_json_is_parsed_as_by_ignition_and_reported() {
    let text = br#"{"Ignition": {"VERSION": "3.2.0"}, "x": "\u00fc",
        "storage": {"files": [{"PATH": "/a", "Unknown": 1}], "links": []}, "storage": {"files": [{"path": "/b"}]},
        "storage": null, "passwd": {"users": [{"name": "a", "name": "b"}]}, "y": "ab"}"#;
    let text = String::from_utf8_lossy(text)
        .replace("\"ab\"", "\"a\u{0}b\"")
        .into_bytes();
    // One byte that is not UTF-8.
    let text: Vec<u8> = text.iter().map(|byte| if *byte == 0 { 0xff } else { *byte }).collect();
    let document = read(&text).unwrap();
    assert_eq!(
        document.config,
        json!({
            "ignition": {"version": "3.2.0"}, "x": "ü",
            "storage": {"files": [{"path": "/b"}], "links": []},
            "passwd": {"users": [{"name": "b"}]}, "y": "a\u{fffd}b",
        })
    );
    let warnings: Vec<_> = document
        .warnings
        .iter()
        .map(|it| (it.path.as_str(), it.text.as_str()))
        .collect();
    assert_eq!(
        warnings,
        [
            (
                "$",
                "line 3, column 84: invalid UTF-8; Ignition replaces it with U+FFFD"
            ),
            ("$.storage", "duplicate key: the last one takes effect"),
            ("$.storage", "duplicate key: the last one takes effect"),
            ("$.passwd.users.0.name", "duplicate key: the last one takes effect"),
            (
                "$.Ignition",
                "Ignition reads this key as `ignition`; other programs may ignore it"
            ),
            (
                "$.ignition.VERSION",
                "Ignition reads this key as `version`; other programs may ignore it"
            ),
        ]
    );
}

#[test]
fn no_error_quotes_the_file() {
    let secret = "hunter2";
    for text in [
        format!("{{\"passwd\": \"{secret}"),
        format!("{{\"{secret} in a key\": {{\"a\": {secret}}}}}"),
        format!("{{\"ignition\": {{\"version\": \"{secret}!\"}}}}"),
        secret.to_owned(),
        format!("{{\"a\": \"{secret}\\q\"}}"),
        format!("{{\"a\": 1 {secret}}}"),
    ] {
        let error = parse(text.as_bytes()).unwrap_err();
        let message = format!("{error}{:?}", error.snippet);
        assert!(!message.contains(secret), "{message}");
    }
    let error = parse(b"{\"ab\": [1,\n {\"password\": \"pw\", }]}").unwrap_err();
    assert_eq!(
        error.snippet.as_deref(),
        Some(" {\"········\": \"··\", }]}\n                    ^")
    );
}

proptest! {
    #[test]
    fn any_json_is_read_as_serde_json_reads_it(value in any_json()) {
        let config = json!({"ignition": {"version": "3.2.0"}, "z": value});
        prop_assert_eq!(parse(config.to_string().as_bytes()).unwrap(), config);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
        let mut bytes = bytes;
        bytes.insert(0, b'{');
        let _ = read(&bytes);
    }

    #[test]
    fn any_pieces_of_json_are_read_or_refused(
        pieces in prop::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ":", ",", "\"", "\"a\"", "\"ignition\"", "\\u12", "\\", "0", "-", "1e9", "true", "nul", "\n", " ", "ü", "'", "/",
        ]), 0..30)
    ) {
        let text = format!("{{{}", pieces.concat());
        let ours = read_json(text.as_bytes());
        prop_assert_eq!(ours.is_ok(), serde_json::from_str::<Value>(&text).is_ok(), "{}", text);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,3}\"?", inner, 0..5).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}
