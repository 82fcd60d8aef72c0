//! Renders templates: strict about names, without revealing values.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use tera::{Context, ErrorKind, Tera};

/// A template that cannot be rendered. The error contains no variable's value.
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
    #[error("cannot render template {name}")]
    Other { name: String },
}

/// Renders a page: each `{{ value }}` is escaped text, in an element or in a quoted attribute.
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

/// Renders a template; an undefined variable is an error.
///
/// In a template whose name ends in `.yaml`, each `{{ value }}` is written as a quoted string by [`yaml`], so the
/// template has no quotes around it; write a number or a keyword such as `true` with `{{ value | safe }}`.
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

/// The parts of tera's error that come from the template and from names of variables.
fn without_values(name: &str, error: &tera::Error) -> TemplateError {
    let (report, problem) = match error.kind() {
        ErrorKind::SyntaxError(report) => (report, report.message()),
        // Filters include the rejected value in their message.
        ErrorKind::RenderingError(report) if report.message().contains("not defined") => (report, report.message()),
        ErrorKind::RenderingError(report) => (report, "cannot evaluate this expression"),
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

/// A value as YAML that all parsers read alike, including old ones: JSON, with YAML's escapes for non-ASCII characters.
pub fn yaml(value: &Value) -> String {
    let mut text = String::new();
    // Only strings contain such characters, and there both escapes are valid YAML.
    for c in format!("{value:#}").chars() {
        match u32::from(c) {
            0..=0x7e => text.push(c),
            code @ 0x7f..=0xffff => text += &format!("\\u{code:04x}"),
            code => text += &format!("\\U{code:08x}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "hunter2-of-the-registry";

    #[test]
    fn errors_contain_the_location_and_no_value() {
        let values = json!({"secret": SECRET, "node": {"ip": SECRET, "name": "x"}, "n": 1, "list": [SECRET]});
        for (template, text) in [
            (
                "a\n  {{ secrt }}",
                "t.conf:2:6: Variable `secrt` is not defined. Available variables: ",
            ),
            ("{{ node.adress }}", "t.conf:1:"),
            ("{{ secret | int }}", "cannot evaluate this expression"),
            ("{{ node + 1 }}", "cannot evaluate this expression"),
            ("{{ secret + 1 }}", "cannot evaluate this expression"),
            ("{% for a in n %}{% endfor %}", "cannot evaluate this expression"),
            ("{{ list[secret] }}", "cannot evaluate this expression"),
            ("a\nb {% if %}", "t.conf:2:"),
            ("{{ secret", "t.conf:1:"),
            ("{% include \"other\" %}", "cannot render template t.conf"),
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
}
