//! The stream of events: which of them mean that the containers must be looked at again (D3).

use std::io;

use serde::Deserialize;

use super::connection::Body;

/// Longest event; one has about 500 bytes and the labels of its container.
const MOST: usize = 1 << 20;

/// Actions after which a container may have another place, or none. Docker says `destroy` where
/// Podman says `remove`; `health_status` has its outcome behind a colon with Docker.
const ACTIONS: [&str; 13] = [
    "start",
    "stop",
    "die",
    "died",
    "pause",
    "unpause",
    "health_status",
    "connect",
    "disconnect",
    "destroy",
    "remove",
    "rename",
    "restart",
];

/// An event, as both engines tell it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Event {
    #[serde(default)]
    action: Option<String>,
    #[serde(default, rename = "Type")]
    kind: Option<String>,
    #[serde(default)]
    actor: Option<Actor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Actor {
    #[serde(default)]
    attributes: Option<std::collections::BTreeMap<String, serde_json::Value>>,
}

impl Event {
    /// Whether it concerns a container with our label, or a network, whose events do not tell.
    fn counts(&self) -> bool {
        let action = self.action.as_deref().unwrap_or_default();
        let action = action.split(':').next().unwrap_or_default();
        if !ACTIONS.contains(&action) {
            return false;
        }
        let attributes = self.actor.as_ref().and_then(|a| a.attributes.as_ref());
        self.kind.as_deref() == Some("network")
            || attributes.is_none_or(|all| all.contains_key("toron.enable"))
    }
}

/// Reads events until the stream ends or cannot be understood, and calls `changed` for each piece
/// with events that count.
pub fn read(mut stream: Body, mut changed: impl FnMut()) -> io::Result<()> {
    let mut text = Vec::new();
    while stream.next(&mut text)? {
        let (counting, taken) = take(&text)?;
        text.drain(..taken);
        if text.len() > MOST {
            return Err(bad("an event of more than 1 MiB"));
        }
        if counting > 0 {
            changed();
        }
    }
    Ok(())
}

fn bad(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// How many of the whole events in `text` count, and the bytes of all of them. Engines write one a
/// line.
fn take(text: &[u8]) -> io::Result<(usize, usize)> {
    let end = text
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    let whole = text.get(..end).unwrap_or_default();
    let mut counting = 0;
    for line in whole.split(|&b| b == b'\n') {
        let line = String::from_utf8_lossy(line);
        if line.trim().is_empty() {
            continue;
        }
        let event: Event = serde_json::from_str(&line)
            .map_err(|error| bad(&format!("not the JSON of an event ({error})")))?;
        counting += usize::from(event.counts());
    }
    Ok((counting, end))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn event(kind: &str, action: &str, attributes: &str) -> String {
        format!(
            "{{\"status\":\"{action}\",\"id\":\"a\",\"Type\":\"{kind}\",\"Action\":\"{action}\",\
             \"Actor\":{{\"ID\":\"a\",\"Attributes\":{attributes}}},\"time\":1}}\n"
        )
    }

    #[test]
    fn d3_what_moves_a_container_counts() {
        let ours = "{\"toron.enable\":\"true\",\"name\":\"web\"}";
        for action in [
            "start", "stop", "die", "pause", "unpause", "destroy", "remove",
        ] {
            let text = event("container", action, ours);
            assert_eq!(take(text.as_bytes()).unwrap(), (1, text.len()), "{action}");
        }
        let healthy = event("container", "health_status: healthy", ours);
        assert_eq!(take(healthy.as_bytes()).unwrap().0, 1);
        for action in [
            "create",
            "init",
            "exec_start",
            "exec_died",
            "top",
            "cleanup",
        ] {
            let text = event("container", action, ours);
            assert_eq!(take(text.as_bytes()).unwrap(), (0, text.len()), "{action}");
        }
        // Of containers that are none of ours nothing is asked.
        let other = event("container", "start", "{\"name\":\"db\"}");
        assert_eq!(take(other.as_bytes()).unwrap().0, 0);
        let network = event(
            "network",
            "connect",
            "{\"container\":\"a\",\"name\":\"edge\"}",
        );
        assert_eq!(take(network.as_bytes()).unwrap().0, 1);
        assert_eq!(
            take(event("container", "die", "null").as_bytes())
                .unwrap()
                .0,
            1
        );
    }

    #[test]
    fn events_come_in_any_pieces() {
        let one = event("network", "connect", "{}");
        let text = format!("{one}\r\n{one}{}", &one[..20]);
        assert_eq!(take(text.as_bytes()).unwrap(), (2, text.len() - 20));
        assert_eq!(take(&one.as_bytes()[..20]).unwrap(), (0, 0));
        for garbage in ["x\n", "{\"Action\":1}\n", "{\n", "\u{0}\n"] {
            assert!(take(garbage.as_bytes()).is_err(), "{garbage}");
        }
        assert_eq!(take(b"\n\n{}\n").unwrap(), (0, 5));
    }
}
