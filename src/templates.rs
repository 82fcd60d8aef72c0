//! Text from templates: strict about names, silent about values.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Value, json};
use tera::{Context, ErrorKind, Tera};

use crate::backend::Payload;
use crate::cluster::Mac;

/// A template that cannot be rendered. Its text holds no value of any variable.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The line starts at 1, the column at 1.
    #[error("template {name}:{line}:{column}: {problem}")]
    At {
        name: String,
        line: usize,
        column: usize,
        problem: String,
    },
    #[error("template {name} cannot be rendered")]
    Other { name: String },
}

/// Renders a page: each `{{ value }}` is text, whatever is in it, in an element or in a quoted attribute.
pub fn render_html(name: &str, template: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let render = || {
        let mut tera = Tera::new();
        tera.autoescape_on([name.to_owned()]);
        tera.set_escape_fn(tera::escape_html);
        tera.add_raw_template(name, template)?;
        tera.render(name, &Context::from_serialize(values)?)
    };
    render().map_err(|error| without_values(name, &error))
}

/// Renders a template; a variable that is not defined is an error.
///
/// In a template whose name ends in `.yaml`, each `{{ value }}` is written as a quoted string by [`yaml`], so it takes
/// no quotes around it; a number or a word such as `true` is written with `{{ value | safe }}`.
pub fn render(name: &str, template: &str, values: &impl Serialize) -> Result<String, TemplateError> {
    let render = || {
        let mut tera = Tera::new();
        tera.autoescape_on([".yaml"]);
        tera.set_escape_fn(write_quoted);
        tera.add_raw_template(name, template)?;
        tera.render(name, &Context::from_serialize(values)?)
    };
    render().map_err(|error| without_values(name, &error))
}

/// Keeps of tera's error what comes from the template and from names of variables.
fn without_values(name: &str, error: &tera::Error) -> TemplateError {
    let (report, problem) = match error.kind() {
        ErrorKind::SyntaxError(report) => (report, report.message()),
        // Filters put the value they do not like into their message.
        ErrorKind::RenderingError(report) if report.message().contains("not defined") => (report, report.message()),
        ErrorKind::RenderingError(report) => (report, "this expression cannot be evaluated"),
        _ => return TemplateError::Other { name: name.to_owned() },
    };
    TemplateError::At {
        name: name.to_owned(),
        line: report.span().start_line,
        column: report.span().start_col + 1,
        problem: problem.to_owned(),
    }
}

fn write_quoted(text: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(yaml(&Value::from(text)).as_bytes())
}

/// A value as YAML that all readers take alike, old ones too: JSON, with YAML's escapes for all beyond ASCII.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    // Nothing but strings holds such characters, and there both escapes are YAML's.
    for c in format!("{value:#}").chars() {
        match u32::from(c) {
            0..=0x7e => text.push(c),
            code @ 0x7f..=0xffff => text += &format!("\\u{code:04x}"),
            code => text += &format!("\\U{code:08x}"),
        }
    }
    text
}

/// What a CentOS machine of pass one is told by cloud-init: its name, who may log in, and to name itself to the
/// DHCP server by its MAC, as CoreOS does in pass two.
pub fn helper_payload(host_name: &str, mac: Mac, ssh_keys: &[String]) -> Result<Payload, TemplateError> {
    let values = json!({"host_name": host_name, "mac": mac, "ssh_keys": ssh_keys});
    Ok(Payload::CloudInit {
        user_data: render("user-data.yaml", include_str!("templates/user-data.yaml"), &values)?,
        meta_data: render("meta-data.yaml", include_str!("templates/meta-data.yaml"), &values)?,
        network_config: render(
            "network-config.yaml",
            include_str!("templates/network-config.yaml"),
            &values,
        )?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;

    use super::*;

    const SECRET: &str = "hunter2-of-the-registry";

    #[test]
    fn errors_tell_the_place_and_no_value() {
        let values = json!({"secret": SECRET, "node": {"ip": SECRET, "name": "x"}, "n": 1, "list": [SECRET]});
        for (template, text) in [
            (
                "a\n  {{ secrt }}",
                "t.conf:2:6: Variable `secrt` is not defined. Available variables: ",
            ),
            ("{{ node.adress }}", "t.conf:1:"),
            ("{{ secret | int }}", "this expression cannot be evaluated"),
            ("{{ node + 1 }}", "this expression cannot be evaluated"),
            ("{{ secret + 1 }}", "this expression cannot be evaluated"),
            ("{% for a in n %}{% endfor %}", "this expression cannot be evaluated"),
            ("{{ list[secret] }}", "this expression cannot be evaluated"),
            ("a\nb {% if %}", "t.conf:2:"),
            ("{{ secret", "t.conf:1:"),
            ("{% include \"other\" %}", "template t.conf cannot be rendered"),
        ] {
            let error = render("t.conf", template, &values).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(error.to_string().contains(text), "{template}: {error}");
            assert!(!shown.contains("hunter2"), "{template}: {shown}");
        }
    }

    #[test]
    fn only_yaml_is_quoted() {
        let values = json!({"text": "a\"b\\c\n\u{85}😀", "number": 3});
        let template = "v: {{ text }}, n: {{ number | safe }}";
        assert_eq!(
            render("t.conf", template, &values).unwrap(),
            "v: a\"b\\c\n\u{85}😀, n: 3"
        );
        assert_eq!(
            render("t.yaml", template, &values).unwrap(),
            r#"v: "a\"b\\c\n\u0085\U0001f600", n: 3"#
        );
    }

    /// What PyYAML, cloud-init's own reader, makes of documents; a process for all of them.
    fn python_reads(documents: &[String]) -> Vec<Value> {
        let script = "import json,sys,yaml\nprint(json.dumps([yaml.safe_load(d) for d in json.load(sys.stdin)]))";
        let mut python = std::process::Command::new("python3")
            .args(["-c", script])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("this test needs PyYAML: apt-get install python3-yaml");
        let input = serde_json::to_vec(documents).unwrap();
        python.stdin.take().unwrap().write_all(&input).unwrap();
        let output = python.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "this test needs PyYAML: apt-get install python3-yaml"
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn documents(host_name: &str, keys: &[String]) -> [String; 3] {
        let mac = Mac([0x52, 0x54, 0, 1, 2, 3]);
        match helper_payload(host_name, mac, keys).unwrap() {
            Payload::CloudInit {
                user_data,
                meta_data,
                network_config,
            } => [user_data, meta_data, network_config],
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_documents_of_a_helper() {
        let keys = [
            "ssh-ed25519 AAAA me@home: \"x\"".to_owned(),
            "ssh-rsa BBBB # b".to_owned(),
        ];
        let [user_data, meta_data, network_config] = documents("lab-harvest-master-0", &keys);
        assert_eq!(
            user_data.lines().next(),
            Some("#cloud-config"),
            "cloud-init goes by the first line"
        );
        let read = python_reads(&[user_data.clone(), meta_data, network_config]);
        assert_eq!(read[0]["hostname"], "lab-harvest-master-0");
        assert_eq!(read[0]["ssh_authorized_keys"], json!(keys));
        assert_eq!(
            read[1],
            json!({"instance-id": "lab-harvest-master-0", "local-hostname": "lab-harvest-master-0"})
        );
        assert_eq!(
            read[2],
            json!({"version": 2, "ethernets": {"eth0": {
                "match": {"macaddress": "52:54:00:01:02:03"}, "set-name": "eth0",
                "dhcp4": true, "dhcp-identifier": "mac",
            }}})
        );
        for list in ["bootcmd", "runcmd"] {
            for command in read[0][list].as_array().unwrap() {
                let checked = std::process::Command::new("sh")
                    .args(["-n", "-c", command.as_str().unwrap()])
                    .status();
                assert!(checked.unwrap().success(), "{command}");
            }
        }
        assert_eq!(
            python_reads(&documents("a", &[])[..1])[0]["ssh_authorized_keys"],
            json!([])
        );
    }

    #[test]
    fn any_text_comes_back_as_it_was() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let nasty = prop_oneof![
            any::<String>(),
            "[\"'\\\\{}%#:\n\r\t &*!|>@`\u{0}-\u{1f}\u{7f}-\u{a0}\u{2028}\u{2029}\u{feff}\u{fffe}😀{}-]{0,12}",
            Just("{{ ssh_keys }}".to_owned()),
            Just("\u{85}- a\n# b: {c}".to_owned()),
            Just("no".to_owned()),
            Just("0o17".to_owned()),
        ];
        let cases: Vec<(String, Vec<String>)> = (0..300)
            .map(|_| {
                let strategy = (nasty.clone(), prop::collection::vec(nasty.clone(), 0..3));
                strategy.new_tree(&mut runner).unwrap().current()
            })
            .collect();
        let texts: Vec<_> = cases.iter().flat_map(|(name, keys)| documents(name, keys)).collect();
        let read = python_reads(&texts);
        for (index, (name, keys)) in cases.iter().enumerate() {
            let [user_data, meta_data] = [&read[3 * index], &read[3 * index + 1]];
            assert_eq!(user_data["hostname"], json!(name));
            assert_eq!(user_data["ssh_authorized_keys"], json!(keys));
            assert_eq!(meta_data["local-hostname"], json!(name));
        }
    }
}
