//! The admin API: what reactors lay on the desk is answered here, on a thread of its own, one
//! question after the other.
//!
//! ```text
//!  desk ─▶ mod      which endpoint, which method
//!            ├────▶ status, routes, firewall, explain: from what reactors share, at once
//!            └────▶ reload: by the thread of `control/reload`, which answers when it is done
//!          params   queries and bodies, as names and values
//! ```

mod discovery;
mod explain;
mod firewall;
mod params;
mod routes;
mod status;

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::Receiver;
use toron_reactor::{Running, Token};

use crate::http::answer::reason_phrase;
use crate::http::{Answer, Reason};
use crate::server::admin::desk::{Paper, Question, Reply};
use crate::server::shared::Shared;
use crate::server::Message;

/// What answers take.
pub struct Office {
    /// What reactors share.
    pub shared: Arc<Shared>,
    /// How reactors are reached.
    pub reactors: Running<Message>,
    /// Has both files read again, and the outcome answered.
    pub reload: Box<dyn Fn(Ticket) + Send>,
}

/// Who waits for an answer.
#[derive(Debug)]
pub struct Ticket {
    reactors: Running<Message>,
    reactor: usize,
    token: Token,
}

impl Ticket {
    /// Sends the answer.
    pub fn answer(self, reply: Reply) {
        let token = self.token;
        let message = Message::Reply { token, reply };
        // A reactor that has ended has nobody left who waits.
        let _ = self.reactors.send_to(self.reactor, message);
    }
}

/// Why a question cannot be answered, in the words of the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    status: u16,
    text: String,
}

impl Fault {
    /// 400: the question makes no sense.
    pub fn bad(text: impl Into<String>) -> Self {
        Fault::new(400, text)
    }

    /// With a status of its own.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        let text = text.into();
        Fault { status, text }
    }

    fn reply(&self) -> Reply {
        let (status, reason) = (self.status, reason_phrase(self.status));
        let error = format!("{status} {reason}: {}", self.text);
        Reply {
            reason: Some(Reason::AdminRequest),
            ..Reply::json(status, serde_json::json!({ "error": error }).to_string())
        }
    }
}

/// How an endpoint answers.
enum Answers {
    /// At once.
    Now(fn(&Office, &Question) -> Result<Reply, Fault>),
    /// By way of the ticket, when it has the answer.
    Later(fn(&Office, Ticket)),
}

struct Endpoint {
    path: &'static str,
    /// The methods that it takes, as in `Allow`.
    allow: &'static str,
    answers: Answers,
}

const ENDPOINTS: &[Endpoint] = &[
    get("/internal/api/status", status::answer),
    get("/internal/api/routes", routes::answer),
    get("/internal/api/discovery", discovery::answer),
    get("/internal/api/refusals", |office, _| {
        Ok(Reply::json(200, office.shared.ledger.to_json()))
    }),
    get("/internal/api/firewall", firewall::list),
    Endpoint {
        path: "/internal/api/explain",
        allow: "GET, HEAD, POST",
        answers: Answers::Now(explain::answer),
    },
    post("/internal/api/firewall/block", firewall::block),
    post("/internal/api/firewall/unblock", firewall::unblock),
    Endpoint {
        path: "/internal/api/reload",
        allow: "POST",
        answers: Answers::Later(|office, ticket| (office.reload)(ticket)),
    },
];

type Handler = fn(&Office, &Question) -> Result<Reply, Fault>;

const fn get(path: &'static str, handler: Handler) -> Endpoint {
    Endpoint {
        path,
        allow: "GET, HEAD",
        answers: Answers::Now(handler),
    }
}

const fn post(path: &'static str, handler: Handler) -> Endpoint {
    Endpoint {
        path,
        allow: "POST",
        answers: Answers::Now(handler),
    }
}

impl Endpoint {
    fn takes(&self, method: &str) -> bool {
        self.allow.split(", ").any(|allowed| allowed == method)
    }
}

impl Office {
    /// Starts to answer what is laid on the desk of `shared`, until that is closed. Fails if the
    /// thread cannot be made.
    pub fn start(self) -> io::Result<JoinHandle<()>> {
        let papers = self.shared.desk.open();
        let thread = thread::Builder::new().name("admin".to_owned());
        thread.spawn(move || self.mind(&papers))
    }

    fn mind(&self, papers: &Receiver<Paper>) {
        for paper in papers {
            match paper {
                Paper::Question(question) => self.respond(&question),
                Paper::Close => return,
            }
        }
    }

    fn respond(&self, question: &Question) {
        let ticket = Ticket {
            reactors: self.reactors.clone(),
            reactor: question.reactor,
            token: question.token,
        };
        let endpoint = ENDPOINTS.iter().find(|e| e.path == question.path);
        let reply = match endpoint {
            None => Reply::refuse(Answer::NotFound, Reason::NoRoute),
            Some(endpoint) if !endpoint.takes(&question.method) => {
                let mut reply = Reply::refuse(Answer::MethodNotAllowed, Reason::MethodNotAllowed);
                let allow = ("Allow".to_owned(), endpoint.allow.to_owned());
                reply.fields.push(allow);
                reply
            }
            Some(endpoint) => match endpoint.answers {
                Answers::Now(answer) => {
                    answer(self, question).unwrap_or_else(|fault| fault.reply())
                }
                Answers::Later(answer) => return answer(self, ticket),
            },
        };
        ticket.answer(reply);
    }
}

/// 200 with a value as JSON.
fn json(value: &impl serde::Serialize) -> Reply {
    match serde_json::to_vec(value) {
        Ok(text) => Reply::json(200, text),
        Err(error) => Fault::new(500, error.to_string()).reply(),
    }
}
