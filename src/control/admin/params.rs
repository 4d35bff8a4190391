//! What a question says, by name: the pairs of its query, and of its body, which is a form or one
//! JSON object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Fault;
use crate::control::config::hint::allowed;
use crate::server::admin::desk::Question;

/// Names and values; each name is asked for once.
#[derive(Debug)]
pub struct Params {
    values: BTreeMap<String, Vec<Value>>,
    asked: Vec<&'static str>,
}

impl Params {
    /// Reads query and body.
    pub fn read(question: &Question) -> Result<Self, Fault> {
        let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let mut add = |name: String, value| values.entry(name).or_default().push(value);
        for (name, value) in form_urlencoded::parse(question.query.as_bytes()) {
            add(name.into_owned(), Value::String(value.into_owned()));
        }
        let body = question.body.trim_ascii();
        if body.first() == Some(&b'{') {
            let object: BTreeMap<String, Value> = serde_json::from_slice(body)
                .map_err(|error| Fault::bad(format!("the body is not a JSON object: {error}")))?;
            for (name, value) in object {
                add(name, value);
            }
        } else {
            for (name, value) in form_urlencoded::parse(body) {
                add(name.into_owned(), Value::String(value.into_owned()));
            }
        }
        Ok(Params {
            values,
            asked: Vec::new(),
        })
    }

    /// A name that comes twice is a fault: nobody could tell which holds.
    fn take(&mut self, name: &'static str) -> Result<Option<Value>, Fault> {
        self.asked.push(name);
        let mut values = self.values.remove(name).unwrap_or_default();
        if values.len() > 1 {
            return Err(Fault::bad(format!("{name} is given twice")));
        }
        Ok(values.pop().filter(|value| !value.is_null()))
    }

    /// Texts, one for each time that the name comes; in JSON also a list of them.
    pub fn texts(&mut self, name: &'static str) -> Result<Vec<String>, Fault> {
        self.asked.push(name);
        let values = self.values.remove(name).unwrap_or_default();
        let values = values.into_iter().flat_map(|value| match value {
            Value::Array(list) => list,
            one => vec![one],
        });
        values.map(|value| text(name, value)).collect()
    }

    /// A text.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Fault> {
        self.take(name)?.map(|value| text(name, value)).transpose()
    }

    /// On or off; a name without a value is on.
    pub fn switch(&mut self, name: &'static str) -> Result<Option<bool>, Fault> {
        let value = match self.take(name)? {
            None => return Ok(None),
            Some(Value::Bool(on)) => return Ok(Some(on)),
            Some(value) => value,
        };
        match value.as_str() {
            Some("" | "true" | "on" | "yes" | "1") => Ok(Some(true)),
            Some("false" | "off" | "no" | "0") => Ok(Some(false)),
            _ => Err(Fault::bad(format!(
                "{name}: {value} is not on or off (allowed: true, false)"
            ))),
        }
    }

    /// A whole number.
    pub fn number(&mut self, name: &'static str) -> Result<Option<usize>, Fault> {
        let Some(value) = self.take(name)? else {
            return Ok(None);
        };
        let number = match &value {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64().and_then(|n| usize::try_from(n).ok()),
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(Fault::bad(format!("{name}: {value} is not a number"))),
        }
    }

    /// Names that nobody has asked for are faults.
    pub fn finish(self) -> Result<(), Fault> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(name) => {
                let hint = allowed(name, &self.asked);
                Err(Fault::bad(format!("unknown name \"{name}\" {hint}")))
            }
        }
    }
}

fn text(name: &str, value: Value) -> Result<String, Fault> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(Fault::bad(format!("{name}: {other} is not a text"))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::Ipv4Addr;

    use toron_reactor::Token;

    use super::*;

    fn params(query: &str, body: &str) -> Result<Params, Fault> {
        Params::read(&Question {
            reactor: 0,
            token: Token {
                index: 0,
                generation: 0,
            },
            client: Ipv4Addr::LOCALHOST.into(),
            method: "POST".to_owned(),
            path: "/internal/api/x".to_owned(),
            query: query.to_owned(),
            body: body.as_bytes().to_vec(),
        })
    }

    #[test]
    fn queries_forms_and_objects_say_the_same() {
        for (query, body) in [
            ("a=x%3A1+y&on&n=7", ""),
            ("", "a=x%3A1+y&on=true&n=7"),
            ("", " {\"a\": \"x:1 y\", \"on\": true, \"n\": 7}\n"),
            ("n=7", "{\"a\": \"x:1 y\", \"on\": \"yes\"}"),
        ] {
            let mut read = params(query, body).unwrap();
            assert_eq!(read.text("a").unwrap().unwrap(), "x:1 y");
            assert_eq!(read.switch("on"), Ok(Some(true)));
            assert_eq!(read.number("n"), Ok(Some(7)));
            assert_eq!(read.text("absent"), Ok(None));
            assert_eq!(read.finish(), Ok(()));
        }
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        let said = |fault: Fault| fault.text;
        let mut twice = params("a=1", "{\"a\": 1}").unwrap();
        assert_eq!(said(twice.text("a").unwrap_err()), "a is given twice");
        let mut list = params("a=1&a=2", "{\"a\": [\"3\", \"4\"]}").unwrap();
        assert_eq!(list.texts("a").unwrap(), ["1", "2", "3", "4"]);
        let broken = said(params("", "{\"a\": ").unwrap_err());
        assert!(broken.starts_with("the body is not a JSON object: "));
        let mut read = params("", "{\"a\": [1], \"on\": 0, \"n\": -1, \"clsoe\": true}").unwrap();
        assert_eq!(said(read.text("a").unwrap_err()), "a: [1] is not a text");
        assert!(said(read.switch("on").unwrap_err()).starts_with("on: 0 is not on or off"));
        assert_eq!(said(read.number("n").unwrap_err()), "n: -1 is not a number");
        assert_eq!(read.switch("close"), Ok(None));
        let unknown = said(read.finish().unwrap_err());
        assert!(unknown.starts_with("unknown name \"clsoe\""), "{unknown}");
        assert!(unknown.ends_with("did you mean \"close\"?)"), "{unknown}");
    }
}
