//! However the bytes of a client are cut, the outcome is the same.

use std::sync::Arc;
use std::time::Duration;

use toron::policy::snapshot::Snapshot;
use toron_reactor::sim::{Faults, Random, Remote, RemoteListener, World};

use crate::message::{Body, Inbox};
use crate::plan::{Plan, Request, Route, UPSTREAMS};
use crate::scene::{machine, server_address};
use crate::setup;

/// Requests of a stream at most.
const REQUESTS: u64 = 4;
/// Bodies beyond this would make cuts into single bytes slow.
const BODY: usize = 3_000;
/// Differs from run to run, or (`Connection`) may say whether a refused body had come already.
const ASIDE: [&str; 2] = ["x-request-id", "connection"];

/// A message, put so that two can be compared.
type Seen = (String, Vec<u8>, Vec<String>, bool);

/// What came of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    client: Vec<Seen>,
    /// Sorted: requests may go to different targets.
    upstream: Vec<Seen>,
    /// Bytes behind the last message.
    rest: Vec<u8>,
}

/// Messages as they come in.
#[derive(Debug, Default)]
struct Reader {
    inbox: Inbox,
    now: Option<(String, Body, Vec<u8>, Vec<String>)>,
    done: Vec<Seen>,
}

impl Reader {
    /// Reads on. `bodiless`: the n-th message ends with its head whatever it says.
    fn read(&mut self, bytes: &[u8], bodiless: impl Fn(usize, &str) -> bool) {
        self.inbox.push(bytes);
        loop {
            if self.now.is_none() {
                let Some(head) = self.inbox.head() else {
                    return;
                };
                let shown = head.shown_without(&ASIDE);
                let body = match head.body() {
                    Some(body) if !bodiless(self.done.len(), &head.start) => body,
                    _ => Body::Length(0),
                };
                self.now = Some((shown, body, Vec::new(), Vec::new()));
            }
            let Some((head, mut body, mut content, mut trailers)) = self.now.take() else {
                return;
            };
            let whole = body.read(&mut self.inbox, &mut trailers, |part| {
                content.extend_from_slice(part);
            });
            if !whole {
                self.now = Some((head, body, content, trailers));
                return;
            }
            self.done.push((head, content, trailers, true));
        }
    }

    /// The unfinished one as well, its arrived part aside: how much of it came before the fault was
    /// noticed depends on the cuts.
    fn finish(mut self) -> (Vec<Seen>, Vec<u8>) {
        if let Some((head, ..)) = self.now.take() {
            self.done.push((head, Vec::new(), Vec::new(), false));
        }
        (self.done, self.inbox.rest().to_vec())
    }
}

/// A stream: valid requests, pipelined, and perhaps one that is none at the end.
fn stream(seed: u64) -> (Vec<u8>, Vec<Request>) {
    let mut random = Random::new(seed ^ 0x5e67_0000);
    let mut requests = Vec::new();
    let mut nth = seed * 100;
    let wanted = random.between(1, REQUESTS) as usize;
    while requests.len() < wanted {
        nth += 1;
        let plan = Plan::new(nth);
        let usable = |r: &&Request| {
            // Whether a connection survives an answer of toron's own depends, by the rules, on
            // whether the body had come by then.
            let refused = matches!(r.route, Route::Limited | Route::Fixed | Route::Dead);
            !refused && r.tunnel.is_none() && r.body_length() <= BODY && !r.expect
        };
        let Some(request) = plan.requests.iter().find(usable) else {
            continue;
        };
        let mut request = request.clone();
        request.id = requests.len();
        let last = request.malformed.is_some() || request.close || request.http10;
        requests.push(request);
        if last {
            break;
        }
    }
    let mut bytes = Vec::new();
    for request in &requests {
        let (head, body) = request.bytes();
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&body);
    }
    (bytes, requests)
}

/// Where to cut, and how long to wait at each cut.
fn cuts(random: &mut Random, length: usize) -> Vec<(usize, Duration)> {
    let most = match random.below(4) {
        0 => 1,
        1 => 7,
        2 => 300,
        _ => 5_000,
    };
    let mut at = 0;
    let mut cuts = Vec::new();
    while at < length {
        at = (at + random.between(1, most) as usize).min(length);
        cuts.push((at, Duration::from_micros(random.below(300))));
    }
    cuts
}

/// An upstream connection that answers every request with its path.
struct Echo {
    remote: Remote,
    reader: Reader,
    answered: usize,
}

impl Echo {
    fn act(&mut self) {
        let bytes = self.remote.recv(usize::MAX);
        self.reader.read(&bytes, |_, _| false);
        while self.answered < self.reader.done.len() {
            let (head, ..) = &self.reader.done[self.answered];
            let path = head.split(' ').nth(1).unwrap_or_default();
            let body = if head.starts_with("HEAD ") { "" } else { path };
            let text = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                path.len()
            );
            assert_eq!(self.remote.send(text.as_bytes()), text.len());
            self.answered += 1;
        }
    }
}

fn play(snapshot: &Arc<Snapshot>, seed: u64, cuts: &[(usize, Duration)]) -> Outcome {
    let (bytes, requests) = stream(seed);
    let world = World::new(seed, Faults::none());
    let mut machine = machine(&world, &setup::anew(snapshot), 64, seed);
    let doors: Vec<RemoteListener> = UPSTREAMS[..3]
        .iter()
        .map(|address| world.remote_listen(address.parse().unwrap(), 16).unwrap())
        .collect();
    let mut echoes: Vec<Echo> = Vec::new();
    let client = world.connect("127.0.2.1:0".parse().unwrap(), server_address());
    let mut reader = Reader::default();
    let (mut sent, mut cut, mut next) = (0, 0, world.now());
    let limit = world.now() + setup::longest();
    while !(client.at_end() || client.is_broken()) && world.now() < limit {
        while cut < cuts.len() && client.is_open() && world.now() >= next {
            sent += client.send(&bytes[sent..cuts[cut].0]);
            if sent < cuts[cut].0 {
                break;
            }
            next = world.now() + cuts[cut].1;
            cut += 1;
        }
        if cut < cuts.len() && next > world.now() {
            world.alarm(next);
        }
        let received = client.recv(usize::MAX);
        reader.read(&received, |n, _| {
            requests.get(n).is_some_and(|r| r.method == "HEAD")
        });
        if client.at_end() {
            break;
        }
        for door in &doors {
            echoes.extend(door.accept().map(|remote| Echo {
                remote,
                reader: Reader::default(),
                answered: 0,
            }));
        }
        echoes.iter_mut().for_each(Echo::act);
        machine.reactor.step(Some(limit)).unwrap();
    }
    assert!(world.now() < limit, "the connection does not end");
    reader.read(&client.recv(usize::MAX), |_, _| false);
    let (client, rest) = reader.finish();
    let mut upstream: Vec<Seen> = echoes
        .into_iter()
        .flat_map(|echo| echo.reader.finish().0)
        // One that is cut is seen or not, as its head was passed on before the fault or not.
        .filter(|(.., whole)| *whole)
        .collect();
    upstream.sort();
    Outcome {
        client,
        upstream,
        rest,
    }
}

/// Plays one stream whole and cut in several ways.
pub fn check(snapshot: &Arc<Snapshot>, seed: u64) -> usize {
    let (bytes, _) = stream(seed);
    let mut random = Random::new(seed);
    let whole = play(snapshot, seed, &[(bytes.len(), Duration::ZERO)]);
    assert!(!whole.client.is_empty(), "seed {seed}: nothing came back");
    for _ in 0..3 {
        let cuts = cuts(&mut random, bytes.len());
        let outcome = play(snapshot, seed, &cuts);
        assert_eq!(whole, outcome, "seed {seed}, cut at {cuts:?}");
    }
    whole.upstream.len()
}
