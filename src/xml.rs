//! XML documents as a small tree, written and read with quick-xml; used for libvirt and oVirt.

use std::fmt;

use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use quick_xml::{Reader, Writer, XmlVersion, escape};

/// Largest nesting depth. Trees are written and dropped by recursion; libvirt's and oVirt's documents
/// have about ten levels.
const DEEPEST: usize = 100;
/// Largest number of a document's elements, and of an element's attributes: each takes many times its size in memory,
/// and attributes are compared with each other.
const ELEMENTS: usize = 1 << 20;
const ATTRIBUTES: usize = 256;

/// One element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    /// With its prefix, as written.
    pub name: String,
    attributes: Vec<(String, String)>,
    children: Vec<Element>,
    /// All text directly inside, without surrounding white space.
    pub text: String,
}

impl Element {
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    pub fn attr(mut self, name: &str, value: impl fmt::Display) -> Self {
        self.attributes.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn child(mut self, child: Element) -> Self {
        self.children.push(child);
        self
    }

    pub fn children(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// Adds a child that contains only text.
    pub fn with(self, name: &str, text: impl fmt::Display) -> Self {
        self.child(Element::new(name).text(text))
    }

    pub fn text(mut self, text: impl fmt::Display) -> Self {
        self.text = text.to_string();
        self
    }

    /// The value of an attribute.
    pub fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes
            .iter()
            .find(|(name, _)| name == attribute)
            .map(|(_, value)| value.as_str())
    }

    pub fn attributes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attributes
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Element> {
        self.children.iter()
    }

    /// All elements at `path`, e.g. `devices/interface`.
    pub fn all<'a>(&'a self, path: &str) -> Vec<&'a Element> {
        path.split('/').fold(vec![self], |found, name| {
            found
                .into_iter()
                .flat_map(|element| element.children.iter().filter(move |child| child.name == name))
                .collect()
        })
    }

    /// The first element at `path`.
    pub fn find(&self, path: &str) -> Option<&Element> {
        self.all(path).first().copied()
    }

    /// The text of the first element at `path`; `None` if it is empty.
    pub fn text_of(&self, path: &str) -> Option<&str> {
        let text = self.find(path)?.text.as_str();
        (!text.is_empty()).then_some(text)
    }

    pub fn into_children(self) -> Vec<Element> {
        self.children
    }

    /// An attribute of the first element at `path`.
    pub fn value(&self, path: &str, attribute: &str) -> Option<&str> {
        self.find(path)?.get(attribute)
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
        let mut start = BytesStart::new(self.name.as_str());
        start.extend_attributes(self.attributes());
        if self.children.is_empty() && self.text.is_empty() {
            return writer.write_event(Event::Empty(start));
        }
        writer.write_event(Event::Start(start))?;
        if !self.text.is_empty() {
            writer.write_event(Event::Text(BytesText::new(&self.text)))?;
        }
        for child in &self.children {
            child.write(writer)?;
        }
        writer.write_event(Event::End(BytesEnd::new(self.name.as_str())))
    }
}

/// The document, indented.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write(&mut writer).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&writer.into_inner()).map_err(|_| fmt::Error)?)
    }
}

/// A document that is not well formed.
#[derive(Debug, thiserror::Error)]
#[error("XML cannot be read: {0}")]
pub(crate) struct BadXml(String);

/// Reads one document.
pub(crate) fn parse(document: &str) -> Result<Element, BadXml> {
    let bad = |error: &dyn fmt::Display| BadXml(error.to_string());
    let mut reader = Reader::from_str(document);
    // The last element is the innermost open one; the first contains the document.
    let mut open = vec![Element::default()];
    let mut elements = 0;
    loop {
        let event = reader.read_event().map_err(|error| bad(&error))?;
        elements += usize::from(matches!(event, Event::Start(_) | Event::Empty(_)));
        if elements > ELEMENTS {
            return Err(BadXml(format!("it has more than {ELEMENTS} elements")));
        }
        match event {
            Event::Start(_) if open.len() > DEEPEST => return Err(BadXml("it is nested too deeply".to_owned())),
            Event::Start(start) => open.push(element(&start)?),
            Event::Empty(start) => close(&mut open, element(&start)?),
            Event::End(_) => {
                if let Some(done) = open.pop() {
                    close(&mut open, done);
                }
            }
            Event::Text(text) => add_text(&mut open, &text.xml10_content()),
            Event::CData(text) => add_text(&mut open, &text.xml10_content()),
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                match reference.resolve_char_ref().map_err(|error| bad(&error))? {
                    Some(character) => add_text(&mut open, character.encode_utf8(&mut [0; 4])),
                    None => match escape::resolve_predefined_entity(&name) {
                        Some(text) => add_text(&mut open, text),
                        None => return Err(BadXml(format!("unknown entity `{name}`"))),
                    },
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    match (open.len(), open.pop().and_then(|mut document| document.children.pop())) {
        (1, Some(root)) => Ok(root),
        _ => Err(BadXml("it is cut off".to_owned())),
    }
}

fn element(start: &BytesStart) -> Result<Element, BadXml> {
    let mut element = Element::new(start.name().as_ref());
    for (index, attribute) in start.attributes().enumerate() {
        if index == ATTRIBUTES {
            return Err(BadXml(format!("an element has more than {ATTRIBUTES} attributes")));
        }
        let attribute = attribute.map_err(|error| BadXml(error.to_string()))?;
        let value = attribute
            .normalized_value(XmlVersion::default())
            .map_err(|error| BadXml(error.to_string()))?;
        let name = attribute.key.as_ref().to_owned();
        element.attributes.push((name, value.into_owned()));
    }
    Ok(element)
}

fn add_text(open: &mut [Element], text: &str) {
    if let Some(innermost) = open.last_mut() {
        innermost.text.push_str(text);
    }
}

fn close(open: &mut [Element], mut done: Element) {
    done.text = done.text.trim().to_owned();
    if let Some(parent) = open.last_mut() {
        parent.children.push(done);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn documents_of_platforms_are_parsed() {
        let document = parse(
            "<?xml version='1.0'?>\n<!-- by hand -->\n<network connections='1'>\n  <name>R&amp;D &#x41;</name>\n  <dns><host ip='10.0.0.1'>\
             <hostname>a</hostname><hostname><![CDATA[b<c]]></hostname></host></dns>\n</network>\n",
        )
        .unwrap();
        assert_eq!(document.find("name").unwrap().text, "R&D A");
        assert_eq!(document.get("connections"), Some("1"));
        let names: Vec<_> = document
            .all("dns/host/hostname")
            .iter()
            .map(|e| e.text.clone())
            .collect();
        assert_eq!(names, ["a", "b<c"]);
    }

    #[test]
    fn malformed_documents_are_rejected() {
        for bad in ["", "<a>", "<a></b>", "<a b=></a>", "<a>&nbsp;</a>", "<a", "</a>"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    /// Dropping a tree of a million levels would overflow the stack.
    #[test]
    fn a_deeply_nested_document_is_rejected() {
        let levels = |depth| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
        assert!(parse(&levels(DEEPEST)).is_ok());
        assert!(parse(&levels(DEEPEST + 1)).is_err());
        assert!(parse(&levels(1_000_000)).is_err());
        assert!(parse(&"<a>".repeat(1_000_000)).is_err());
    }

    #[test]
    fn documents_with_too_many_elements_or_attributes_are_rejected() {
        assert!(parse(&format!("<a>{}</a>", "<b/>".repeat(ELEMENTS))).is_err());
        let attributes: String = (0..=ATTRIBUTES).map(|n| format!(" a{n}=''")).collect();
        assert!(parse(&format!("<a{attributes}/>")).is_err());
    }

    proptest! {
        #[test]
        fn a_written_document_is_read_back(value in "[ -~äß€]{0,20}", text in "[!-~]{0,20}") {
            let element = Element::new("a").attr("b", &value).child(Element::new("c").text(&text));
            prop_assert_eq!(parse(&element.to_string()).unwrap(), element);
        }
    }
}
