//! A YAML file as a tree in which every node knows its place.
//!
//! Scalars stay text: what they mean depends on the key they stand under. Aliases are expanded
//! (their places are those of the anchor), `<<` merges mappings, a key that is given twice is a
//! fault that names both places.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, StrInput, Tag};

use super::finding::{Findings, Mark};

/// Most nodes of a file, aliases expanded: a bound for files that repeat aliases of aliases.
const MAX_NODES: usize = 1_000_000;

/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// A value and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// First character.
    pub mark: Mark,
    /// What it is.
    pub value: Value,
}

/// What a [`Node`] is.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// A text, a number, a truth value.
    Scalar {
        /// As written, quotes and escapes resolved.
        text: String,
        /// Without quotes, so that it may be a number or truth value.
        plain: bool,
    },
    /// A sequence.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<Entry>),
}

impl Value {
    /// For messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Scalar { .. } => "a single value",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// A key of a mapping with its value.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key stands.
    pub mark: Mark,
    /// The value.
    pub value: Node,
}

/// Why building the tree stopped.
struct Stop {
    mark: Mark,
    message: String,
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        Stop {
            mark: mark(error.marker()),
            message: format!("not YAML: {}", error.info()),
        }
    }
}

fn mark(marker: &Marker) -> Mark {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Mark {
        line: number(marker.line()),
        column: number(marker.col().saturating_add(1)),
    }
}

/// Reads one document. `None` after a fault of syntax, which is the one kind that ends the reading
/// of a file. An empty file is [`Value::Null`].
pub fn parse(file: &Arc<str>, text: &str, findings: &Findings) -> Option<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        anchors: HashMap::new(),
        nodes: 0,
        file,
        findings,
    };
    match builder.document() {
        Ok(node) => Some(node),
        Err(stop) => {
            findings.fault(file, stop.mark, stop.message);
            None
        }
    }
}

struct Builder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
    file: &'a Arc<str>,
    findings: &'a Findings,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Mark), Stop> {
        match self.parser.next_event() {
            Some(event) => {
                let (event, span) = event?;
                Ok((event, mark(&span.start)))
            }
            None => Ok((Event::StreamEnd, Mark::default())),
        }
    }

    fn document(&mut self) -> Result<Node, Stop> {
        let mut root: Option<Node> = None;
        loop {
            let (event, mark) = self.next()?;
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => {
                    let start = Mark { line: 1, column: 1 };
                    return Ok(root.unwrap_or(Node {
                        mark: start,
                        value: Value::Null,
                    }));
                }
                Event::DocumentStart(_) if root.is_some() => {
                    let message = "a second document begins (one file holds one)".to_owned();
                    return Err(Stop { mark, message });
                }
                Event::DocumentStart(_) => {
                    let (event, mark) = self.next()?;
                    root = Some(self.node(event, mark, 0)?);
                }
                event => root = Some(self.node(event, mark, 0)?),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, mark: Mark, depth: usize) -> Result<Node, Stop> {
        self.count(1, mark)?;
        if depth > MAX_DEPTH {
            return Err(too_deep(mark));
        }
        let (anchor, value) = match event {
            Event::Alias(anchor) => return self.alias(anchor, mark, depth),
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !self.is_text(tag.as_deref(), mark);
                let null = plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let text = text.into_owned();
                (
                    anchor,
                    if null {
                        Value::Null
                    } else {
                        Value::Scalar { text, plain }
                    },
                )
            }
            Event::SequenceStart(anchor, tag) => {
                self.is_text(tag.as_deref(), mark);
                (anchor, Value::List(self.list(depth)?))
            }
            Event::MappingStart(anchor, tag) => {
                self.is_text(tag.as_deref(), mark);
                (anchor, Value::Map(self.map(depth)?))
            }
            _ => {
                return Err(Stop {
                    mark,
                    message: "not YAML: a value is missing".to_owned(),
                })
            }
        };
        let node = Node { mark, value };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize, mark: Mark) -> Result<(), Stop> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            let message = format!("too large (at most {MAX_NODES} values, aliases expanded)");
            return Err(Stop { mark, message });
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, mark: Mark, depth: usize) -> Result<Node, Stop> {
        // An anchor is known once its node is complete, so a node cannot hold itself.
        let Some(node) = self.anchors.get(&anchor) else {
            let message = "the alias stands inside the value that it names".to_owned();
            return Err(Stop { mark, message });
        };
        let node = node.clone();
        let (nodes, levels) = extent(&node);
        self.count(nodes, mark)?;
        if depth + levels > MAX_DEPTH {
            return Err(too_deep(mark));
        }
        Ok(node)
    }

    /// Whether a tag makes a scalar a text; tags outside the core schema are faults.
    fn is_text(&self, tag: Option<&Tag>, mark: Mark) -> bool {
        match tag {
            None => false,
            Some(tag) if tag.is_yaml_core_schema() => tag.suffix == "str",
            Some(tag) => {
                let message = format!("unknown tag \"{}{}\"", tag.handle, tag.suffix);
                self.findings.fault(self.file, mark, message);
                false
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Vec<Node>, Stop> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(list),
                (event, mark) => list.push(self.node(event, mark, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Stop> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged: Vec<Entry> = Vec::new();
        loop {
            let (event, mark) = self.next()?;
            if event == Event::MappingEnd {
                break;
            }
            let key = self.node(event, mark, depth + 1)?;
            let (event, at) = self.next()?;
            let value = self.node(event, at, depth + 1)?;
            match key.value {
                Value::Scalar { text, plain: true } if text == "<<" => {
                    self.merge(value, &mut merged);
                }
                Value::Scalar { text, .. } => self.add(
                    Entry {
                        key: text,
                        mark,
                        value,
                    },
                    &mut entries,
                ),
                Value::Null | Value::List(_) | Value::Map(_) => {
                    let message = format!("a key cannot be {}", key.value.kind());
                    self.findings.fault(self.file, mark, message);
                }
            }
        }
        // A key written out wins over a merged one, an earlier merged one over a later.
        for entry in merged {
            if !entries.iter().any(|e| e.key == entry.key) {
                entries.push(entry);
            }
        }
        Ok(entries)
    }

    fn add(&self, entry: Entry, entries: &mut Vec<Entry>) {
        if let Some(first) = entries.iter().find(|e| e.key == entry.key) {
            let Mark { line, column } = first.mark;
            let message = format!(
                "key \"{}\" is given twice (first at line {line}, column {column})",
                entry.key
            );
            self.findings.fault(self.file, entry.mark, message);
        } else {
            entries.push(entry);
        }
    }

    fn merge(&self, value: Node, merged: &mut Vec<Entry>) {
        match value.value {
            Value::Map(entries) => merged.extend(entries),
            Value::List(list) => list.into_iter().for_each(|node| self.merge(node, merged)),
            Value::Null | Value::Scalar { .. } => {
                let message = format!("\"<<\" must name a mapping, not {}", value.value.kind());
                self.findings.fault(self.file, value.mark, message);
            }
        }
    }
}

fn too_deep(mark: Mark) -> Stop {
    Stop {
        mark,
        message: format!("nested too deeply (at most {MAX_DEPTH} levels)"),
    }
}

/// Number of nodes and of levels below the node.
fn extent(node: &Node) -> (usize, usize) {
    let below: Vec<(usize, usize)> = match &node.value {
        Value::Null | Value::Scalar { .. } => return (1, 0),
        Value::List(list) => list.iter().map(extent).collect(),
        Value::Map(entries) => entries.iter().map(|entry| extent(&entry.value)).collect(),
    };
    let nodes = below.iter().map(|(nodes, _)| nodes).sum::<usize>();
    let levels = below.iter().map(|(_, levels)| levels).max();
    (1 + nodes, 1 + levels.unwrap_or(&0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Option<Node>, Vec<String>) {
        let findings = Findings::default();
        let node = parse(&"f".into(), text, &findings);
        let (faults, _) = findings.into_sorted();
        (node, faults.iter().map(ToString::to_string).collect())
    }

    fn get<'n>(node: &'n Node, key: &str) -> &'n Entry {
        let Value::Map(entries) = &node.value else {
            unreachable!("{node:?}")
        };
        entries.iter().find(|e| e.key == key).unwrap()
    }

    fn text(text: &str, plain: bool) -> Value {
        Value::Scalar {
            text: text.to_owned(),
            plain,
        }
    }

    #[test]
    fn every_node_has_its_place() {
        let (node, faults) = read("a: 1\nb:\n  - x\n  - c: \"y\"\n    d:\n");
        assert!(faults.is_empty(), "{faults:?}");
        let node = node.unwrap();
        assert_eq!(get(&node, "a").value.value, text("1", true));
        assert_eq!(get(&node, "a").value.mark, Mark { line: 1, column: 4 });
        assert_eq!(get(&node, "b").mark, Mark { line: 2, column: 1 });
        let Value::List(list) = &get(&node, "b").value.value else {
            unreachable!()
        };
        assert_eq!(list[0].mark, Mark { line: 3, column: 5 });
        assert_eq!(get(&list[1], "c").mark, Mark { line: 4, column: 5 });
        assert_eq!(get(&list[1], "c").value.value, text("y", false));
        assert_eq!(get(&list[1], "d").value.value, Value::Null);
    }

    #[test]
    fn a_key_given_twice_names_both_places() {
        let (node, faults) = read("a: 1\nb: 2\n\na: 3\n");
        assert_eq!(
            faults,
            ["f:4:1: key \"a\" is given twice (first at line 1, column 1)"]
        );
        assert_eq!(get(&node.unwrap(), "a").value.value, text("1", true));
    }

    #[test]
    fn aliases_and_merges_are_expanded() {
        let (node, faults) = read(
            "base: &b {x: 1, y: 2}\nother: *b\nown:\n  y: 3\n  <<: *b\nlist: {<<: [*b, {z: 9}]}\n",
        );
        assert!(faults.is_empty(), "{faults:?}");
        let node = node.unwrap();
        assert_eq!(
            get(&get(&node, "other").value, "x").value.value,
            text("1", true)
        );
        assert_eq!(
            get(&get(&node, "own").value, "y").value.value,
            text("3", true)
        );
        assert_eq!(
            get(&get(&node, "own").value, "x").value.value,
            text("1", true)
        );
        assert_eq!(
            get(&get(&node, "list").value, "z").value.value,
            text("9", true)
        );
        let (_, faults) = read("a: {<<: 1}");
        assert_eq!(
            faults,
            ["f:1:9: \"<<\" must name a mapping, not a single value"]
        );
    }

    #[test]
    fn a_laughing_file_is_bounded() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for i in 1..12 {
            let aliases = vec![format!("*a{}", i - 1); 10].join(", ");
            text.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
        }
        let (node, faults) = read(&text);
        assert!(node.is_none());
        assert!(faults[0].contains("too large"), "{faults:?}");
    }

    #[test]
    fn bad_syntax_has_a_place() {
        for bad in [
            "a: [1, 2",
            "a: 'x",
            "a:\n  - b\n c: d",
            "a:\n\tb: 1",
            "a: *nowhere",
            "- a\nb: c",
        ] {
            let (node, faults) = read(bad);
            assert!(node.is_none(), "{bad:?}");
            assert_eq!(faults.len(), 1, "{bad:?}: {faults:?}");
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(read(&deep).0.is_none());
        let half = |inside: &str| "[".repeat(40) + inside + &"]".repeat(40);
        let aliased = format!("a: &a {}\nb: {}\n", half("x"), half("*a"));
        let (node, faults) = read(&aliased);
        assert!(
            node.is_none() && faults[0].contains("nested too deeply"),
            "{faults:?}"
        );
        assert!(read("a: 1\n---\nb: 2\n").0.is_none());
        assert!(read("a: &a [*a]").0.is_none());
    }

    #[test]
    fn an_empty_file_is_nothing() {
        for empty in ["", "# only a comment\n", "---\n", "\u{feff}"] {
            assert_eq!(read(empty).0.unwrap().value, Value::Null, "{empty:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_read_or_refused(text in "[-a:\\[\\]{}&*<'\"#|> \n0-9,!~?%]{0,60}") {
            let (node, faults) = read(&text);
            prop_assert!(node.is_some() || !faults.is_empty());
        }
    }
}
