//! Forged certificate requests: DER as a tree, in which anything can be corrupted before it is signed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData, SigningKey};

/// A generator of numbers (splitmix64): the same seed, the same requests.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }

    fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// An element of DER, or something similar.
#[derive(Clone)]
pub enum Node {
    Of(u8, Vec<Node>),
    Leaf(u8, Vec<u8>),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// An element whose length is encoded in another way.
    Odd(u8, Length, Box<Node>),
}

/// Encodings of a length that are not DER, or wrong.
#[derive(Clone, Copy)]
pub enum Length {
    Padded,
    Indefinite,
    Less,
    More,
    Huge,
}

impl Node {
    pub fn der(&self) -> Vec<u8> {
        match self {
            Node::Of(tag, nodes) => element(*tag, nodes.iter().flat_map(Node::der).collect()),
            Node::Leaf(tag, bytes) => element(*tag, bytes.clone()),
            Node::Raw(bytes) => bytes.clone(),
            Node::Odd(tag, length, content) => {
                let content = content.der();
                let number = u8::try_from(content.len()).unwrap_or(0x7f);
                let mut der = vec![*tag];
                match length {
                    Length::Padded => der.extend([0x83, 0, 0, number]),
                    Length::Indefinite => der.push(0x80),
                    Length::Less => der.push(number.saturating_sub(1) & 0x7f),
                    Length::More => der.push(number.wrapping_add(1) & 0x7f),
                    Length::Huge => der.extend([0x84, 0xff, 0xff, 0xff, 0xff]),
                }
                der.extend(content);
                if let Length::Indefinite = length {
                    der.extend([0, 0]);
                }
                der
            }
        }
    }

    /// The number of elements in this one, itself included.
    fn count(&self) -> usize {
        match self {
            Node::Of(_, nodes) => 1 + nodes.iter().map(Node::count).sum::<usize>(),
            _ => 1,
        }
    }

    /// The element of that number, depth first.
    fn at(&mut self, index: usize) -> &mut Node {
        if index == 0 {
            return self;
        }
        let Node::Of(_, nodes) = self else { unreachable!() };
        let mut left = index - 1;
        for node in nodes {
            if left < node.count() {
                return node.at(left);
            }
            left -= node.count();
        }
        unreachable!()
    }

    fn tag(&mut self) -> Option<&mut u8> {
        match self {
            Node::Of(tag, _) | Node::Leaf(tag, _) | Node::Odd(tag, ..) => Some(tag),
            Node::Raw(_) => None,
        }
    }
}

fn element(tag: u8, content: Vec<u8>) -> Vec<u8> {
    let mut der = vec![tag];
    match content.len() {
        length @ ..=0x7f => der.push(length as u8),
        length @ ..=0xff => der.extend([0x81, length as u8]),
        length => der.extend([0x82, (length >> 8) as u8, length as u8]),
    }
    der.extend(content);
    der
}

fn seq(nodes: Vec<Node>) -> Node {
    Node::Of(0x30, nodes)
}

fn oid(numbers: &[u8]) -> Node {
    Node::Leaf(6, numbers.to_vec())
}

const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 14];

/// `tag` and content of an alternative name.
pub type Name = (u8, Vec<u8>);

pub fn dns(name: &str) -> Name {
    (0x82, name.as_bytes().to_vec())
}

/// One attribute that requests these alternative names.
pub fn extension_request(names: &[Name]) -> Node {
    Node::Of(
        0x30,
        vec![oid(EXTENSION_REQUEST), Node::Of(0x31, vec![seq(vec![san(names)])])],
    )
}

fn san(names: &[Name]) -> Node {
    let names = names.iter().map(|(tag, name)| Node::Leaf(*tag, name.clone())).collect();
    seq(vec![oid(&[0x55, 0x1d, 0x11]), Node::Of(4, vec![seq(names)])])
}

pub fn name_part(kind: u8, string: u8, text: &[u8]) -> Node {
    seq(vec![oid(&[0x55, 4, kind]), Node::Leaf(string, text.to_vec())])
}

/// The key that signs, and requests of it.
pub struct Signer(KeyPair);

impl Signer {
    pub fn new() -> Self {
        Self(KeyPair::generate().unwrap())
    }

    pub fn info(&self, subject: Vec<Node>, attributes: Vec<Node>) -> Node {
        let key = Node::Raw(self.0.subject_public_key_info());
        seq(vec![
            Node::Leaf(2, vec![0]),
            seq(subject),
            key,
            Node::Of(0xa0, attributes),
        ])
    }

    /// Any info with a valid signature.
    pub fn sign(&self, info: Node) -> Node {
        let signature = self.0.sign(&info.der()).unwrap();
        let algorithm = seq(vec![oid(&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2])]);
        seq(vec![info, algorithm, Node::Leaf(3, [&[0][..], &signature].concat())])
    }
}

/// As Go writes it.
pub fn pem(der: &[u8]) -> Vec<u8> {
    let body = STANDARD.encode(der);
    let lines: Vec<_> = body.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    let body = lines.join("\n");
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n").into_bytes()
}

/// Creates requests; `host`, `short` and `address` are those of a valid one of this node.
pub struct Maker<'a> {
    pub signer: &'a Signer,
    pub host: &'a str,
    pub short: &'a str,
    pub address: [u8; 4],
}

impl Maker<'_> {
    /// A request, corrupted in zero to five places.
    pub fn request(&self, dice: &mut Dice) -> Vec<u8> {
        let subject = self.subject(dice);
        let attributes = self.attributes(dice);
        let mut info = self.signer.info(subject, attributes);
        for _ in 0..*dice.one(&[0, 0, 0, 1, 1, 1, 1, 2, 3, 5]) {
            self.spoil(&mut info, dice);
        }
        let mut request = self.signer.sign(info);
        if dice.once_in(12) {
            // What the signature does not cover, and sometimes what it does.
            self.spoil(&mut request, dice);
        }
        let mut der = request.der();
        if dice.once_in(25) && !der.is_empty() {
            let at = dice.below(der.len());
            der[at] ^= 1 << dice.below(8);
        }
        if dice.once_in(40) {
            der.extend([0; 3]);
        }
        self.pem(&der, dice)
    }

    fn subject(&self, dice: &mut Dice) -> Vec<Node> {
        let node = format!("system:node:{}", self.host);
        let mut common_name = node.clone().into_bytes();
        let mut organization = b"system:nodes".to_vec();
        let mut strings = [*dice.one(&[0x13, 0x13, 0x0c]), *dice.one(&[0x13, 0x13, 0x0c])];
        let mut parts = vec![];
        if dice.once_in(5) {
            match dice.below(9) {
                0 => common_name = b"system:admin".to_vec(),
                1 => common_name.extend(b"\0.example.org"),
                2 => common_name.extend("\u{200b}".bytes()),
                3 => organization = b"system:masters".to_vec(),
                4 => organization.push(0),
                // BMPString, T61String, VisibleString, IA5String and bytes.
                5 => strings[dice.below(2)] = *dice.one(&[0x1e, 0x14, 0x1a, 0x16, 0x04]),
                6 => common_name = node.encode_utf16().flat_map(u16::to_be_bytes).collect(),
                7 => common_name.make_ascii_uppercase(),
                _ => common_name.push(b' '),
            }
        }
        let organization = name_part(10, strings[0], &organization);
        let common_name = name_part(3, strings[1], &common_name);
        if dice.once_in(20) {
            // All in one set.
            parts.push(Node::Of(0x31, vec![common_name, organization]));
        } else {
            parts.extend([organization, common_name].map(|part| Node::Of(0x31, vec![part])));
        }
        if dice.once_in(10) {
            let more = match dice.below(5) {
                0 => name_part(10, 0x13, b"system:masters"),
                1 => name_part(3, 0x13, b"system:admin"),
                2 => name_part(3, 0x1e, &[0, b'r', 0, b'o', 0, b'o', 0, b't']),
                3 => name_part(11, 0x0c, b"unit"),
                _ => name_part(5, 0x13, b"1"),
            };
            match dice.below(3) {
                0 => parts.push(Node::Of(0x31, vec![more])),
                1 => parts.insert(0, Node::Of(0x31, vec![more])),
                _ => match &mut parts[0] {
                    Node::Of(_, nodes) => nodes.push(more),
                    _ => unreachable!(),
                },
            }
        }
        parts
    }

    fn names(&self, hostile: bool, dice: &mut Dice) -> Vec<Name> {
        let mut names = vec![dns(self.host), (0x87, self.address.to_vec()), dns(self.short)];
        names.truncate(1 + dice.below(3));
        if dice.once_in(3) {
            names.reverse();
        }
        if hostile {
            names.push(self.foreign_name(dice));
        }
        names
    }

    fn foreign_name(&self, dice: &mut Dice) -> Name {
        let domain = self.host.strip_prefix(self.short).unwrap();
        let mapped = [&[0; 10][..], &[0xff; 2], &self.address].concat();
        match dice.below(16) {
            0 => dns(&format!("*{domain}")),
            1 => dns("*"),
            2 => dns(&format!("{}\0.example.org", self.host)),
            3 => dns(&format!("{}.", self.host)),
            4 => dns(&self.host.to_uppercase()),
            5 => (0x82, vec![0xc3, 0xa4]),
            6 => (0x82, vec![]),
            7 => (0x87, mapped),
            8 => (0x87, vec![192, 0, 2, 66]),
            9 => (0x87, vec![0; *dice.one(&[0, 3, 5, 8, 15, 17])]),
            10 => (0x81, b"root@example.org".to_vec()),
            11 => (0x86, b"https://example.org".to_vec()),
            // Another name, with its type and value; a directory name; a registered one.
            12 => (0xa0, Node::Leaf(6, vec![0x2a, 3]).der()),
            13 => (0xa4, seq(vec![Node::Of(0x31, vec![name_part(3, 0x13, b"root")])]).der()),
            14 => (0x88, vec![0x2a, 3]),
            _ => dns(&format!("api{domain}")),
        }
    }

    fn attributes(&self, dice: &mut Dice) -> Vec<Node> {
        let rightful = || Self::names(self, false, &mut Dice(7));
        match dice.below(16) {
            0..=2 => vec![],
            3..=7 => vec![extension_request(&self.names(false, dice))],
            8 => vec![extension_request(&self.names(true, dice))],
            9 | 10 => {
                let mut both = vec![
                    extension_request(&rightful()),
                    extension_request(&self.names(true, dice)),
                ];
                // The one that must be skipped: by its tag's class or number, its type, or because it is empty.
                let spoilt = dice.below(2);
                let tag = *dice.one(&[0xb1, 0x71, 0xf1, 0x11, 0x91, 0x30, 0xb0, 0x70]);
                match dice.below(4) {
                    0 | 1 => *both[spoilt].at(2).tag().unwrap() = tag,
                    2 => *both[spoilt].tag().unwrap() = tag,
                    _ => {}
                }
                both
            }
            11 => {
                // Two sets of extensions in one attribute; of the second Go reads nothing.
                let sets = [self.names(false, dice), self.names(true, dice)].map(|names| seq(vec![san(&names)]));
                vec![seq(vec![oid(EXTENSION_REQUEST), Node::Of(0x31, sets.to_vec())])]
            }
            12 => {
                // Two extensions of one kind, or one more of another: CA, usages, or an unknown one.
                let more = match dice.below(4) {
                    0 => san(&self.names(true, dice)),
                    1 => seq(vec![oid(&[0x55, 0x1d, 0x13]), Node::Leaf(4, vec![0x30, 3, 1, 1, 0xff])]),
                    2 => seq(vec![oid(&[0x55, 0x1d, 0x0f]), Node::Leaf(4, vec![3, 2, 1, 6])]),
                    _ => seq(vec![oid(&[0x2a, 3, 4]), Node::Leaf(4, vec![])]),
                };
                let mut extensions = vec![san(&rightful()), more];
                if dice.once_in(2) {
                    extensions.reverse();
                }
                vec![seq(vec![oid(EXTENSION_REQUEST), Node::Of(0x31, vec![seq(extensions)])])]
            }
            13 => {
                // Critical, in each spelling.
                let mut attribute = extension_request(&rightful());
                let Node::Of(_, parts) = attribute.at(4) else {
                    unreachable!()
                };
                parts.insert(1, Node::Leaf(1, vec![*dice.one(&[0, 1, 0xff])]));
                vec![attribute]
            }
            14 => {
                // A challenge password, which Go ignores.
                let kind = oid(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 7]);
                let other = seq(vec![kind, Node::Of(0x31, vec![Node::Leaf(0x13, b"word".to_vec())])]);
                vec![other, extension_request(&rightful())]
            }
            _ => vec![extension_request(&[])],
        }
    }

    fn spoil(&self, root: &mut Node, dice: &mut Dice) {
        let foreign = extension_request(&self.names(true, dice));
        let node = root.at(dice.below(root.count()));
        match dice.below(13) {
            // Its class, whether it has parts, or its number.
            0 => node
                .tag()
                .into_iter()
                .for_each(|tag| *tag ^= *dice.one(&[0x40, 0x80, 0xc0])),
            1 => node.tag().into_iter().for_each(|tag| *tag ^= 0x20),
            2 => node.tag().into_iter().for_each(|tag| *tag ^= 1 << dice.below(5)),
            3 | 4 => {
                if let Some(tag) = node.tag() {
                    let tag = *tag;
                    let content = match node.clone() {
                        Node::Of(_, nodes) => Node::Raw(nodes.iter().flat_map(Node::der).collect()),
                        Node::Leaf(_, bytes) => Node::Raw(bytes),
                        other => other,
                    };
                    let lengths = [
                        Length::Padded,
                        Length::Indefinite,
                        Length::Less,
                        Length::More,
                        Length::Huge,
                    ];
                    *node = Node::Odd(tag, *dice.one(&lengths), Box::new(content));
                }
            }
            5 => match node {
                Node::Of(_, nodes) => nodes.push(Node::Raw(vec![dice.below(256) as u8; 1 + dice.below(4)])),
                Node::Leaf(_, bytes) | Node::Raw(bytes) => bytes.push(dice.below(256) as u8),
                Node::Odd(..) => {}
            },
            6 => match node {
                Node::Of(_, nodes) if !nodes.is_empty() => {
                    let twice = dice.one(nodes).clone();
                    nodes.insert(dice.below(nodes.len() + 1), twice);
                }
                _ => {}
            },
            7 => match node {
                Node::Of(_, nodes) if !nodes.is_empty() => {
                    nodes.remove(dice.below(nodes.len()));
                }
                _ => {}
            },
            8 => match node {
                Node::Of(_, nodes) => nodes.reverse(),
                Node::Leaf(_, bytes) => bytes.reverse(),
                _ => {}
            },
            9 => match node {
                Node::Of(_, nodes) => nodes.insert(dice.below(nodes.len() + 1), foreign),
                other => *other = foreign,
            },
            10 => *node = Node::Of(*dice.one(&[0x30, 0x31, 0xa0, 0x24]), vec![node.clone()]),
            11 => match node {
                Node::Leaf(_, bytes) | Node::Raw(bytes) if !bytes.is_empty() => {
                    let at = dice.below(bytes.len());
                    bytes[at] ^= 1 << dice.below(8);
                }
                _ => {}
            },
            _ => match node {
                Node::Leaf(_, bytes) => bytes.insert(0, 0),
                other => *other = Node::Raw(vec![]),
            },
        }
    }

    fn pem(&self, der: &[u8], dice: &mut Dice) -> Vec<u8> {
        let text = String::from_utf8(pem(der)).unwrap();
        if !dice.once_in(10) {
            return text.into_bytes();
        }
        let foreign = self.signer.info(
            [(10, "system:masters"), (3, "system:admin")]
                .map(|(kind, text)| Node::Of(0x31, vec![name_part(kind, 0x13, text.as_bytes())]))
                .to_vec(),
            vec![],
        );
        let foreign = String::from_utf8(pem(&self.signer.sign(foreign).der())).unwrap();
        let begin = "-----BEGIN CERTIFICATE REQUEST-----\n";
        match dice.below(14) {
            0 => format!("words before\n{text}"),
            1 => format!("{text}words after\n"),
            2 => text.replacen(begin, &format!("{begin}Name: value\n\n"), 1),
            3 => text.replace('\n', "\r\n"),
            4 => text.replacen('M', " M", 1),
            5 => text.trim_end().to_owned(),
            6 => format!("{text}{foreign}"),
            7 => format!("{foreign}{text}"),
            8 => text.replace("CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST"),
            // A block that Go rejects and we must not accept, or the reverse.
            9 => format!("-----BEGIN CERTIFICATE REQUEST----- \n{foreign}{text}"),
            10 => foreign.replacen("-----END", &format!("{begin}{text}-----END"), 1),
            11 => text.replacen('\n', &format!("\n{}", foreign.lines().nth(1).unwrap()), 1),
            12 => text.replacen("=\n", "\n", 1),
            _ => format!("\u{feff}{text}"),
        }
        .into_bytes()
    }
}
