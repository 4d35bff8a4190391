//! What a seed does: requests, what the upstream answers to each, how clients behave.

use std::net::SocketAddr;
use std::time::Duration;

use toron::http::answer::Answer;
use toron_reactor::sim::Faults;
use toron_reactor::Time;

use crate::pattern::{self, Whose};

/// Where requests go. The paths are those of `setup.rs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// `/`: two targets, one retry.
    Two,
    /// `/one`: one target, prefix stripped, chunks passed through, one request at a time.
    One,
    /// `/app`: one target with a path, prefix stripped, bodies streamed.
    App,
    /// `/up`: upgrades, two requests at a time.
    Up,
    /// `/limited`: at most 1000 body bytes.
    Limited,
    /// `/dead`: nobody answers there, or it is refused.
    Dead,
    /// `/pair`: a dead target and a live one, one retry; a high ceiling.
    Pair,
    /// `/pool`: a dead target between two live ones that take a request at a time each; two retries.
    Pool,
    /// `/fixed`: answered by toron.
    Fixed,
}

/// A request body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    None,
    Length(usize),
    /// Sizes of the chunks, with extensions, with a trailer.
    Chunked(Vec<usize>, bool, bool),
}

/// How a response is framed by the upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Framing {
    Length,
    /// With a trailer.
    Chunked(bool),
    UntilClose,
    /// 204 and 304.
    Bare,
}

/// What an upstream does at the end, or in place, of its response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Keep,
    /// `Connection: close`, then FIN.
    SayClose,
    /// FIN without a word.
    CloseSilently,
    /// Bytes that nobody asked for, at once.
    Surplus,
    /// The same, a little later.
    LateSurplus,
    /// Only so many per mille of the head, then the end; by RST if set.
    CutHead(usize, bool),
    /// The head and so many per mille of the body, then the end; by RST if set.
    CutBody(usize, bool),
    /// The head, and no byte of the body.
    Stall,
    Garbage,
    Never,
}

/// What becomes of a request body on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intake {
    /// Passed on as it comes, chunks as chunks.
    Streamed,
    /// Collected whole, then sent with its length.
    Collected,
    /// Which of them depends on the pieces in which it comes.
    Either,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub interims: Vec<u16>,
    pub status: u16,
    pub framing: Framing,
    pub size: usize,
    /// Answers when so many body bytes have come, though more will.
    pub early: Option<usize>,
    pub end: End,
    /// Bytes at a time and the pause between them.
    pub drip: Option<(usize, Duration)>,
}

/// What must come of a request if nothing else goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The upstream's response, whole.
    Planned,
    /// toron's answer.
    Canned(Answer),
    /// The response is cut.
    Cut,
    /// Several things may happen.
    Open,
}

/// What comes behind a response though nobody asked.
const STRAY: &[u8] = b"HTTP/1.1 200 Stray\r\nX-Id: stray\r\nContent-Length: 0\r\n\r\n";

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: usize,
    pub method: &'static str,
    pub http10: bool,
    pub close: bool,
    pub route: Route,
    pub body: Body,
    pub expect: bool,
    /// Not a valid request: this is sent in its place, and this is the answer.
    pub malformed: Option<(Vec<u8>, Answer)>,
    pub reply: Reply,
    /// Bytes that the client and the upstream send through the tunnel.
    pub tunnel: Option<(usize, usize)>,
}

impl Request {
    /// As sent.
    pub fn path(&self) -> String {
        let prefix = match self.route {
            Route::Two => "",
            Route::One => "/one",
            Route::App => "/app",
            Route::Up => "/up",
            Route::Limited => "/limited",
            Route::Dead => "/dead",
            Route::Pair => "/pair",
            Route::Pool => "/pool",
            Route::Fixed => "/fixed",
        };
        format!("{prefix}/r{}?q=%2F{}", self.id, self.id)
    }

    /// As the upstream is to see it.
    pub fn path_seen(&self) -> String {
        let base = match self.route {
            Route::App => "/base",
            _ => "",
        };
        format!("{base}/r{}?q=%2F{}", self.id, self.id)
    }

    pub fn idempotent(&self) -> bool {
        self.method != "POST"
    }

    pub fn body_length(&self) -> usize {
        match &self.body {
            Body::None => 0,
            Body::Length(n) => *n,
            Body::Chunked(sizes, ..) => sizes.iter().sum(),
        }
    }

    /// How the body goes on to the upstream (I37).
    pub fn intake(&self) -> Intake {
        let chunked = match self.body {
            Body::None => return Intake::Streamed,
            Body::Length(n) if n > 65_536 => return Intake::Streamed,
            Body::Length(_) => false,
            Body::Chunked(..) => true,
        };
        match self.route {
            Route::App => Intake::Streamed,
            Route::One if chunked => Intake::Streamed,
            Route::Pair if chunked && self.body_length() >= 65_536 => Intake::Either,
            _ => Intake::Collected,
        }
    }

    /// The head, then the body.
    pub fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        if let Some((text, _)) = &self.malformed {
            return (text.clone(), Vec::new());
        }
        let version = if self.http10 { "1.0" } else { "1.1" };
        let mut head = format!(
            "{} {} HTTP/{version}\r\nHost: sim.test\r\nX-Id: {}\r\n",
            self.method,
            self.path(),
            self.id
        );
        match &self.body {
            Body::None => {}
            Body::Length(n) => head.push_str(&format!("Content-Length: {n}\r\n")),
            Body::Chunked(..) => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        if self.expect {
            head.push_str("Expect: 100-continue\r\n");
        }
        if self.tunnel.is_some() {
            head.push_str("Connection: Upgrade\r\nUpgrade: pattern\r\n");
        } else if self.close {
            head.push_str("Connection: close\r\n");
        } else if self.http10 {
            head.push_str("Connection: keep-alive\r\n");
        }
        head.push_str("\r\n");
        (head.into_bytes(), self.body_bytes())
    }

    fn body_bytes(&self) -> Vec<u8> {
        let content = pattern::bytes(Whose::Client, self.id, self.body_length());
        let Body::Chunked(sizes, extensions, trailer) = &self.body else {
            return content;
        };
        let mut out = Vec::new();
        let mut from = 0;
        for size in sizes {
            let extension = if *extensions { ";note=\"a b\"" } else { "" };
            out.extend_from_slice(format!("{size:X}{extension}\r\n").as_bytes());
            out.extend_from_slice(&content[from..from + size]);
            out.extend_from_slice(b"\r\n");
            from += size;
        }
        out.extend_from_slice(b"0\r\n");
        if *trailer {
            out.extend_from_slice(self.trailer().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out
    }

    /// The trailer line of request and response.
    pub fn trailer(&self) -> String {
        format!("X-Sum: {}", self.id)
    }

    /// Whether the answer has no body whatever it says.
    pub fn bodiless(&self) -> bool {
        self.method == "HEAD" || self.reply.framing == Framing::Bare
    }

    /// What comes before the final response.
    pub fn interims(&self) -> Vec<u8> {
        let line = |status| format!("HTTP/1.1 {status} Interim\r\n\r\n");
        let text: String = self.reply.interims.iter().map(line).collect();
        text.into_bytes()
    }

    /// The bytes of the final response, and how many of them are sent at once.
    pub fn response(&self) -> (Vec<u8>, usize) {
        let reply = &self.reply;
        if reply.end == End::Never {
            return (Vec::new(), 0);
        }
        if reply.end == End::Garbage {
            return (b"HTPP/1.1 200 OK\r\n\r\n".to_vec(), 19);
        }
        let mut text = format!(
            "HTTP/1.1 {} Fine\r\nX-Id: {}\r\nKeep-Alive: timeout=60\r\n",
            reply.status, self.id
        );
        match reply.framing {
            Framing::Length => text.push_str(&format!("Content-Length: {}\r\n", reply.size)),
            Framing::Chunked(_) => text.push_str("Transfer-Encoding: chunked\r\n"),
            Framing::UntilClose | Framing::Bare => {}
        }
        if self.tunnel.is_some() && reply.status == 101 {
            text.push_str("Connection: Upgrade\r\nUpgrade: pattern\r\n");
        } else if reply.end == End::SayClose {
            text.push_str("Connection: close\r\n");
        }
        text.push_str("\r\n");
        let head = text.len();
        let mut out = text.into_bytes();
        if !self.bodiless() {
            self.push_response_body(&mut out);
        }
        let kept = match reply.end {
            End::CutHead(mille, _) => (head - 1) * mille / 1000,
            End::CutBody(mille, _) => head + (out.len() - head).saturating_sub(1) * mille / 1000,
            End::Stall => head,
            _ => out.len(),
        };
        let kept = kept.min(out.len());
        match reply.end {
            End::Surplus => {
                out.extend_from_slice(STRAY);
                let all = out.len();
                (out, all)
            }
            End::LateSurplus => {
                out.extend_from_slice(STRAY);
                (out, kept)
            }
            _ => (out, kept),
        }
    }

    /// Bytes of the response itself, without stray ones behind it.
    pub fn response_length(&self) -> usize {
        let (bytes, at_once) = self.response();
        match self.reply.end {
            End::Surplus | End::LateSurplus => bytes.len() - STRAY.len(),
            _ => at_once,
        }
    }

    fn push_response_body(&self, out: &mut Vec<u8>) {
        let content = pattern::bytes(Whose::Upstream, self.id, self.reply.size);
        let Framing::Chunked(trailer) = self.reply.framing else {
            return out.extend_from_slice(&content);
        };
        for chunk in content.chunks(1 + self.id * 7919 % 20_000) {
            out.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            out.extend_from_slice(chunk);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n");
        if trailer {
            out.extend_from_slice(self.trailer().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// What must come of it if client, network and machine do nothing wrong.
    pub fn fate(&self) -> Fate {
        if let Some((_, answer)) = &self.malformed {
            return Fate::Canned(*answer);
        }
        let over = self.route == Route::Limited && self.body_length() > 1000;
        match self.route {
            Route::Limited if over && matches!(self.body, Body::Length(_)) => {
                return Fate::Canned(Answer::DeclaredTooLarge);
            }
            // A response may come before the ceiling is reached.
            Route::Limited if over => return Fate::Open,
            Route::Dead => return Fate::Canned(Answer::ConnectFailed),
            Route::Fixed => return Fate::Open,
            _ => {}
        }
        if self.reply.drip.is_some() {
            return Fate::Open;
        }
        let early = self.reply.early.is_some();
        match self.reply.end {
            End::Keep | End::SayClose | End::Surplus | End::LateSurplus => Fate::Planned,
            // Closing before the request was read is a reset.
            End::CloseSilently if early => Fate::Open,
            End::CloseSilently => Fate::Planned,
            _ if early => Fate::Open,
            // Sent again to the dead target, if it may be.
            End::CutHead(..) if matches!(self.route, Route::Pair | Route::Pool) => Fate::Open,
            End::CutHead(..) if self.reply.interims.is_empty() && self.response().1 == 0 => {
                Fate::Canned(Answer::UpstreamClosed)
            }
            // Whether interim responses count as a response begun is open.
            End::CutHead(..) if !self.reply.interims.is_empty() => Fate::Open,
            // A reset may overtake what was sent before it.
            End::CutHead(_, true) | End::CutBody(_, true) => Fate::Open,
            End::CutHead(..) => Fate::Canned(Answer::UpstreamClosed),
            End::CutBody(..) | End::Stall => Fate::Cut,
            End::Garbage => Fate::Canned(Answer::InvalidResponse),
            End::Never => Fate::Canned(Answer::HeaderTimeout),
        }
    }
}

/// How a client's connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// By the client, after the last response.
    Clean,
    /// FIN behind the last request; responses are still read.
    HalfClose,
    /// By the server: the client does nothing any more after the last response.
    Wait,
    /// At this per mille of what it would send: FIN, RST or close, then gone.
    Leave(usize, Leaving),
    /// Sends only so many per mille, and waits.
    Stop(usize),
    /// Leaves when so many bytes have been received.
    LeaveReading(usize, Leaving),
}

/// See [`Ending::Leave`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leaving {
    Fin,
    Reset,
    Close,
}

/// A client.
#[derive(Clone, Debug)]
pub struct Client {
    pub address: SocketAddr,
    pub start: Duration,
    /// Ids, in order.
    pub requests: Vec<usize>,
    pub pipelined: bool,
    /// Waits for the next [`tick`] before each further request.
    pub thinks: bool,
    pub ending: Ending,
    /// Most bytes of one send, and most time between two.
    pub send: (usize, Duration),
    /// The same for receiving.
    pub receive: (usize, Duration),
    pub window: Option<usize>,
}

impl Client {
    /// Does what clients are expected to do, without losing time.
    pub fn behaves(&self) -> bool {
        matches!(
            self.ending,
            Ending::Clean | Ending::Wait | Ending::HalfClose
        ) && self.send.1.is_zero()
            && self.receive.1.is_zero()
            && self.window.is_none()
    }
}

/// The next tick of the clock by which peers meet: what two of them do then reaches the server in
/// the same turn.
pub fn tick(now: Time) -> Time {
    const GRAIN: u64 = 10_000_000;
    Time((now.0 / GRAIN + 1) * GRAIN)
}

/// How an upstream address behaves.
#[derive(Clone, Copy, Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    /// Closes a connection that was idle for this long.
    pub idle: Option<Duration>,
    /// The same for reading as [`Client::receive`].
    pub receive: (usize, Duration),
}

/// How the story ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Story {
    /// Clients play to the end.
    Whole,
    /// Every peer stops acting at this time.
    Freeze(Duration),
    /// The server is told to end within the second time, at the first.
    Drain(Duration, Duration),
}

/// Everything a seed does.
#[derive(Debug)]
pub struct Plan {
    pub faults: Faults,
    /// No faults at all.
    pub calm: bool,
    /// Only faults that must not show: short reads and writes, delays below the latency.
    pub harmless: bool,
    pub buffers: usize,
    pub requests: Vec<Request>,
    pub clients: Vec<Client>,
    pub upstreams: Vec<Upstream>,
    /// The dead target is silent, not refusing.
    pub silent: bool,
    pub story: Story,
}

/// The upstream addresses; the last one is dead.
pub const UPSTREAMS: [&str; 4] = [
    "127.0.1.1:81",
    "127.0.1.2:82",
    "127.0.1.3:83",
    "127.0.1.9:89",
];
