//! Where reactors lay down what control threads are to answer.

use std::net::IpAddr;
use std::sync::OnceLock;

use crossbeam_channel::{unbounded, Receiver, Sender};
use toron_reactor::Token;

use crate::http::Answer;

/// A request to a built-in endpoint that is answered off the reactors. Who asks has been checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Number of the reactor that asks.
    pub reactor: usize,
    /// The session that waits for the answer.
    pub token: Token,
    /// The client.
    pub client: IpAddr,
    /// The method as sent.
    pub method: String,
    /// The normalised path.
    pub path: String,
    /// What stands behind the first `?`, as sent.
    pub query: String,
    /// The body, decoded; at most [`BODY_MOST`] bytes.
    pub body: Vec<u8>,
}

/// Most bytes of the body of a question.
pub const BODY_MOST: usize = 64 * 1024;

/// The answer to a [`Question`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// Status code, 200 to 599.
    pub status: u16,
    /// Further fields; never those that frame the message or speak about the connection.
    pub fields: Vec<(String, String)>,
    /// The body, of any length.
    pub body: Vec<u8>,
}

impl Reply {
    /// A JSON text.
    #[must_use]
    pub fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Reply {
            status,
            fields: vec![("Content-Type".to_owned(), "application/json".to_owned())],
            body: body.into(),
        }
    }

    /// One of the canned answers.
    #[must_use]
    pub fn of(answer: Answer) -> Self {
        Reply::json(answer.status(), answer.body())
    }
}

/// What lies on the desk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Paper {
    /// A question; its session waits until [`Message::Reply`](crate::server::Message::Reply) comes.
    Question(Question),
    /// Nobody is to answer any more.
    Close,
}

/// The one desk of a process. No bound on it is needed: a session lays down one question at a time,
/// and has shown the admin key.
#[derive(Debug, Default)]
pub struct Desk {
    sender: OnceLock<Sender<Paper>>,
}

impl Desk {
    /// Opens it, once; whoever has the receiver must answer.
    #[must_use]
    pub fn open(&self) -> Receiver<Paper> {
        let (sender, receiver) = unbounded();
        // A second receiver would wait for papers that go to the first.
        let _ = self.sender.set(sender);
        receiver
    }

    /// Lays a question down. `false` if nobody is there to answer.
    #[must_use]
    pub fn ask(&self, question: Question) -> bool {
        let sender = self.sender.get();
        sender.is_some_and(|sender| sender.send(Paper::Question(question)).is_ok())
    }

    /// Tells who answers to end.
    pub fn close(&self) {
        if let Some(sender) = self.sender.get() {
            // Who is gone needs no telling.
            let _ = sender.send(Paper::Close);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn question() -> Question {
        Question {
            reactor: 0,
            token: Token {
                index: 1,
                generation: 2,
            },
            client: Ipv4Addr::LOCALHOST.into(),
            method: "GET".to_owned(),
            path: "/internal/api/status".to_owned(),
            query: String::new(),
            body: Vec::new(),
        }
    }

    #[test]
    fn it_is_known_whether_somebody_answers() {
        let desk = Desk::default();
        assert!(!desk.ask(question()));
        let papers = desk.open();
        assert!(desk.ask(question()));
        desk.close();
        let all: Vec<Paper> = papers.try_iter().collect();
        assert_eq!(all, [Paper::Question(question()), Paper::Close]);
        drop(papers);
        assert!(!desk.ask(question()));
    }
}
