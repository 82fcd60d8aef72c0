//! The fake's own XML code; nothing of it is shared with the client.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use quick_xml::Reader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::Event;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub name: String,
    pub id: Option<String>,
    pub href: Option<String>,
    /// Of links only.
    pub rel: Option<String>,
    pub text: String,
    pub nodes: Vec<Node>,
}

pub fn node(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        ..Node::default()
    }
}

impl Node {
    pub fn id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    pub fn href(mut self, href: String) -> Self {
        self.href = Some(href);
        self
    }

    pub fn text(mut self, name: &str, text: impl fmt::Display) -> Self {
        let mut leaf = node(name);
        leaf.text = text.to_string();
        self.nodes.push(leaf);
        self
    }

    pub fn add(mut self, child: Node) -> Self {
        self.nodes.push(child);
        self
    }

    pub fn all(mut self, children: impl IntoIterator<Item = Node>) -> Self {
        self.nodes.extend(children);
        self
    }

    pub fn link(self, rel: &str, href: String) -> Self {
        let mut link = node("link");
        link.rel = Some(rel.to_owned());
        link.href = Some(href);
        self.add(link)
    }

    pub fn at(&self, path: &str) -> Option<&Node> {
        let (first, rest) = path
            .split_once('/')
            .map_or((path, None), |(first, rest)| (first, Some(rest)));
        let child = self.nodes.iter().find(|child| child.name == first)?;
        rest.map_or(Some(child), |rest| child.at(rest))
    }

    /// A leaf's text.
    pub fn get(&self, path: &str) -> Option<String> {
        self.at(path).map(|leaf| leaf.text.clone())
    }

    pub fn number(&self, path: &str) -> Option<u64> {
        self.get(path)?.parse().ok()
    }

    pub fn is_true(&self, path: &str) -> bool {
        self.get(path).is_some_and(|text| text == "true")
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        for (name, value) in [("href", &self.href), ("id", &self.id), ("rel", &self.rel)] {
            if let Some(value) = value {
                write!(f, " {name}=\"{}\"", escape(value))?;
            }
        }
        f.write_char('>')?;
        f.write_str(&escape(&self.text))?;
        for child in &self.nodes {
            child.fmt(f)?;
        }
        write!(f, "</{}>", self.name)
    }
}

/// What a document has in its elements of a kind: `version/major`, `data_center/@id`, `link networks`.
pub fn paths(document: &str, entity: &str) -> BTreeSet<String> {
    let root = parse(document.as_bytes()).unwrap_or_else(|| panic!("no document: {document}"));
    let mut paths = BTreeSet::new();
    let mut open = vec![(&root, None)];
    while let Some((node, path)) = open.pop() {
        let path: Option<String> = path.or((node.name == entity).then(String::new));
        for child in &node.nodes {
            open.push((child, path.as_ref().map(|path| format!("{path}{}/", child.name))));
        }
        let Some(path) = path else { continue };
        match &node.rel {
            Some(rel) => {
                paths.insert(format!("link {rel}"));
            }
            None => {
                let attributes = [("@id", &node.id), ("@href", &node.href)];
                let present = attributes.iter().filter(|(_, value)| value.is_some());
                paths.extend(present.map(|(name, _)| format!("{path}{name}")));
                paths.extend(path.strip_suffix('/').map(str::to_owned));
            }
        }
    }
    paths
}

/// A document; `None` when it is no XML or an attribute is unknown.
pub fn parse(bytes: &[u8]) -> Option<Node> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut reader = Reader::from_str(text);
    let mut open = vec![Node::default()];
    loop {
        match reader.read_event().ok()? {
            event @ (Event::Start(_) | Event::Empty(_)) => {
                let is_empty = matches!(event, Event::Empty(_));
                let (Event::Start(start) | Event::Empty(start)) = event else {
                    return None;
                };
                let mut child = node(start.name().as_ref());
                for attribute in start.attributes() {
                    let attribute = attribute.ok()?;
                    let value = attribute
                        .normalized_value(quick_xml::XmlVersion::default())
                        .ok()?
                        .into_owned();
                    match attribute.key.as_ref() {
                        "id" => child.id = Some(value),
                        "href" => child.href = Some(value),
                        "rel" => child.rel = Some(value),
                        _ => return None,
                    }
                }
                open.push(child);
                if is_empty {
                    close(&mut open)?;
                }
            }
            Event::End(_) => close(&mut open)?,
            Event::Text(text) => open.last_mut()?.text += &text.xml10_content(),
            Event::GeneralRef(reference) => {
                let name = reference.xml10_content();
                match reference.resolve_char_ref().ok()? {
                    Some(character) => open.last_mut()?.text.push(character),
                    None => open.last_mut()?.text += resolve_predefined_entity(&name)?,
                }
            }
            Event::Eof => break,
            Event::Decl(_) => {}
            _ => return None,
        }
    }
    let mut root = open.pop().filter(|_| open.is_empty())?;
    root.nodes.pop().filter(|_| root.nodes.is_empty())
}

fn close(open: &mut Vec<Node>) -> Option<()> {
    let mut done = open.pop()?;
    if !done.nodes.is_empty() {
        // Only white space stands between elements.
        if !done.text.trim().is_empty() {
            return None;
        }
        done.text.clear();
    }
    open.last_mut()?.nodes.push(done);
    Some(())
}
