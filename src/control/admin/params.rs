//! What a question says, by name: the pairs of its query, and of its body, which is a form or one
//! JSON object.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Fault;
use crate::control::config::hint::allowed;
use crate::server::admin::desk::Question;

/// Names and values; each is taken once.
#[derive(Debug)]
pub struct Params {
    values: BTreeMap<String, Value>,
    asked: Vec<&'static str>,
}

impl Params {
    /// Reads query and body. A name that comes twice is a fault: nobody could tell which holds.
    pub fn read(question: &Question) -> Result<Self, Fault> {
        let mut values = BTreeMap::new();
        let mut add = |name: String, value: Value| match values.insert(name.clone(), value) {
            None => Ok(()),
            Some(_) => Err(Fault::bad(format!("{name} is given twice"))),
        };
        for (name, value) in form_urlencoded::parse(question.query.as_bytes()) {
            add(name.into_owned(), Value::String(value.into_owned()))?;
        }
        let body = question.body.trim_ascii();
        if body.first() == Some(&b'{') {
            let object: BTreeMap<String, Value> = serde_json::from_slice(body)
                .map_err(|error| Fault::bad(format!("the body is not a JSON object: {error}")))?;
            for (name, value) in object {
                add(name, value)?;
            }
        } else {
            for (name, value) in form_urlencoded::parse(body) {
                add(name.into_owned(), Value::String(value.into_owned()))?;
            }
        }
        Ok(Params {
            values,
            asked: Vec::new(),
        })
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.asked.push(name);
        self.values.remove(name).filter(|value| !value.is_null())
    }

    /// A text.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Fault> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(Fault::bad(format!("{name}: {other} is not a text"))),
        }
    }

    /// On or off; a name without a value is on.
    pub fn switch(&mut self, name: &'static str) -> Result<Option<bool>, Fault> {
        let value = match self.take(name) {
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
        let Some(value) = self.take(name) else {
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
        assert_eq!(
            said(params("a=1", "{\"a\": 1}").unwrap_err()),
            "a is given twice"
        );
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
