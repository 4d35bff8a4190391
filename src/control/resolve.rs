//! Names of upstreams, resolved off the reactors.
//!
//! One thread asks the system's resolver (`/etc/hosts`, DNS, whatever `nsswitch.conf` says) for
//! every name in turn, keeps all addresses of both families, and asks again every `dns_refresh`. A
//! name that does not resolve is a warning, keeps its last addresses, and is tried again every
//! second.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crate::policy::settings::Endpoint;

/// Time between attempts at a name that does not resolve.
const RETRY: Duration = Duration::from_secs(1);

/// All endpoints in use, one for each host, port and identity, kept over reloads so that their
/// addresses and idle connections stay.
#[derive(Debug, Default)]
pub struct Endpoints {
    known: HashMap<(String, u16, String), Weak<Endpoint>>,
    next_id: u32,
}

impl Endpoints {
    /// The endpoint of a host (lower-case, IPv6 without brackets) and port.
    pub fn get(&mut self, host: &str, port: u16) -> Arc<Endpoint> {
        self.get_identified(host, port, "")
    }

    /// The same for one that is told from others with this host and port by `identity`, such as the
    /// id of the container that has the address at present: neither idle connections nor the state
    /// of its health are shared.
    pub fn get_identified(&mut self, host: &str, port: u16, identity: &str) -> Arc<Endpoint> {
        let key = (host.to_owned(), port, identity.to_owned());
        if let Some(endpoint) = self.known.get(&key).and_then(Weak::upgrade) {
            return endpoint;
        }
        let endpoint = Endpoint::identified(self.next_id, host, port, identity);
        let endpoint = Arc::new(endpoint);
        self.next_id = self.next_id.wrapping_add(1);
        self.known.insert(key, Arc::downgrade(&endpoint));
        endpoint
    }

    /// Those that are still in use.
    pub fn in_use(&mut self) -> Vec<Arc<Endpoint>> {
        self.known.retain(|_, endpoint| endpoint.strong_count() > 0);
        self.known.values().filter_map(Weak::upgrade).collect()
    }
}

/// Asks for the addresses of a name.
type Ask = Box<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send>;

/// The thread that resolves. Dropping it stops it.
#[derive(Debug)]
pub struct Resolver {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stopping: bool,
    /// A look-up is under way, which cannot be interrupted.
    asking: bool,
    refresh: Duration,
    names: Vec<Name>,
}

#[derive(Debug)]
struct Name {
    endpoint: Arc<Endpoint>,
    due: Instant,
    tried: bool,
    failing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resolver {
    /// Starts resolving. Fails if the thread cannot be made.
    pub fn start(endpoints: Vec<Arc<Endpoint>>, refresh: Duration) -> io::Result<Self> {
        let ask = |host: &str, port| Ok((host, port).to_socket_addrs()?.collect());
        Self::start_with(endpoints, refresh, Box::new(ask))
    }

    fn start_with(endpoints: Vec<Arc<Endpoint>>, refresh: Duration, ask: Ask) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let thread = thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || run(&its, &ask))?;
        let resolver = Resolver {
            shared,
            thread: Some(thread),
        };
        resolver.watch(endpoints, refresh);
        Ok(resolver)
    }

    /// Resolves these from now on, in place of those before. One that was known already keeps its
    /// time of refreshing; address literals need none.
    pub fn watch(&self, endpoints: Vec<Arc<Endpoint>>, refresh: Duration) {
        let now = Instant::now();
        let mut state = self.shared.lock();
        let mut old = std::mem::take(&mut state.names);
        state.refresh = refresh;
        for endpoint in endpoints
            .into_iter()
            .filter(|endpoint| !endpoint.is_literal())
        {
            let known = old
                .iter()
                .position(|name| Arc::ptr_eq(&name.endpoint, &endpoint));
            let name = match known {
                Some(at) => {
                    let mut name = old.swap_remove(at);
                    name.due = name.due.min(now + refresh);
                    name
                }
                None => Name {
                    endpoint,
                    due: now,
                    tried: false,
                    failing: false,
                },
            };
            state.names.push(name);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// Waits until every name has been tried once, but not longer than `limit`. Tells whether all
    /// have been.
    #[must_use]
    pub fn wait_until_tried(&self, limit: Duration) -> bool {
        let untried = |state: &mut State| state.names.iter().any(|name| !name.tried);
        let waited = self
            .shared
            .changed
            .wait_timeout_while(self.shared.lock(), limit, untried);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.names.iter().all(|name| name.tried)
    }

    /// Stops the thread. It is waited for unless the system's resolver has it: that can take many
    /// seconds and cannot be interrupted, so the thread is then left to end by itself.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        let asking = state.asking;
        drop(state);
        self.shared.changed.notify_all();
        let Some(thread) = self.thread.take() else {
            return;
        };
        if !asking && thread.join().is_err() {
            log::error!("the resolver thread had panicked");
        }
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(shared: &Shared, ask: &Ask) {
    while let Some(endpoint) = next_due(shared) {
        let answer = ask(&endpoint.host, endpoint.port);
        let mut state = shared.lock();
        state.asking = false;
        settle(&mut state, &endpoint, answer);
        drop(state);
        shared.changed.notify_all();
    }
}

/// The name that has been due for longest, once there is one; `None` to end.
fn next_due(shared: &Shared) -> Option<Arc<Endpoint>> {
    let mut state = shared.lock();
    loop {
        if state.stopping {
            return None;
        }
        let now = Instant::now();
        let first = state.names.iter().min_by_key(|name| name.due);
        let wait = match first {
            Some(name) if name.due <= now => {
                let endpoint = name.endpoint.clone();
                state.asking = true;
                return Some(endpoint);
            }
            Some(name) => name.due - now,
            None => Duration::from_secs(3600),
        };
        let waited = shared.changed.wait_timeout(state, wait);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn settle(state: &mut State, endpoint: &Arc<Endpoint>, answer: io::Result<Vec<SocketAddr>>) {
    let refresh = state.refresh;
    let name = state
        .names
        .iter_mut()
        .find(|name| Arc::ptr_eq(&name.endpoint, endpoint));
    let Some(name) = name else { return };
    name.tried = true;
    let answer = answer.and_then(|mut addresses| {
        // The system gives one entry per socket type in some set-ups.
        let mut seen = std::collections::HashSet::new();
        addresses.retain(|address| seen.insert(*address));
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no addresses"));
        }
        Ok(addresses)
    });
    let host = &endpoint.host;
    match answer {
        Ok(addresses) => {
            if name.failing {
                log::info!("upstream name {host} resolves again");
            }
            name.failing = false;
            name.due = Instant::now() + refresh;
            if **endpoint.addresses() != addresses {
                log::debug!("upstream name {host} is now {addresses:?}");
                endpoint.publish(addresses);
            }
        }
        Err(error) => {
            if !name.failing {
                let kept = endpoint.addresses().len();
                log::warn!(
                    "upstream name {host} does not resolve: {error}; {kept} last addresses stay in \
                     use, trying again every second"
                );
            }
            name.failing = true;
            name.due = Instant::now() + RETRY.min(refresh);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_endpoint_stays_while_it_is_in_use() {
        let mut endpoints = Endpoints::default();
        let first = endpoints.get("a", 80);
        assert!(Arc::ptr_eq(&first, &endpoints.get("a", 80)));
        assert_ne!(endpoints.get("a", 81).id, first.id);
        let one = endpoints.get_identified("a", 80, "one");
        let other = endpoints.get_identified("a", 80, "other");
        assert!(one.id != first.id && other.id != one.id);
        assert!(Arc::ptr_eq(&one, &endpoints.get_identified("a", 80, "one")));
        drop((one, other));
        assert_eq!(endpoints.in_use().len(), 1);
        let id = first.id;
        drop(first);
        assert!(endpoints.in_use().is_empty());
        assert_ne!(endpoints.get("a", 80).id, id);
    }

    #[test]
    fn the_system_knows_localhost() {
        let mut endpoints = Endpoints::default();
        let name = endpoints.get("localhost", 8080);
        let literal = endpoints.get("127.0.0.2", 1);
        let resolver =
            Resolver::start(vec![name.clone(), literal.clone()], Duration::from_secs(30)).unwrap();
        assert!(resolver.wait_until_tried(Duration::from_secs(60)));
        assert!(name
            .addresses()
            .iter()
            .all(|a| a.ip().is_loopback() && a.port() == 8080));
        assert!(!name.addresses().is_empty());
        assert_eq!(**literal.addresses(), [address("127.0.0.2:1")]);
        resolver.stop();
    }

    /// A resolver whose answers the test gives one by one, and sees asked for.
    struct Script {
        resolver: Resolver,
        asked: mpsc::Receiver<String>,
        answers: mpsc::Sender<io::Result<Vec<SocketAddr>>>,
    }

    fn script(endpoint: &Arc<Endpoint>, refresh: Duration) -> Script {
        let (tell, asked) = mpsc::channel();
        let (answers, take) = mpsc::channel();
        let ask = move |host: &str, _: u16| {
            let _ = tell.send(host.to_owned());
            take.recv().unwrap_or_else(|_| Ok(Vec::new()))
        };
        let resolver =
            Resolver::start_with(vec![endpoint.clone()], refresh, Box::new(ask)).unwrap();
        Script {
            resolver,
            asked,
            answers,
        }
    }

    #[test]
    fn the_last_addresses_stay_when_a_name_no_longer_resolves() {
        let endpoint = Arc::new(Endpoint::new(0, "name.test", 80));
        let script = script(&endpoint, Duration::from_millis(1));
        assert_eq!(script.asked.recv().unwrap(), "name.test");
        assert!(endpoint.addresses().is_empty());
        let both = vec![
            address("127.0.0.1:80"),
            address("[::1]:80"),
            address("127.0.0.1:80"),
        ];
        script.answers.send(Ok(both)).unwrap();
        // Asked again: so the first answer has been published.
        script.asked.recv().unwrap();
        assert_eq!(
            **endpoint.addresses(),
            [address("127.0.0.1:80"), address("[::1]:80")]
        );
        script
            .answers
            .send(Err(io::Error::other("no such name")))
            .unwrap();
        script.asked.recv().unwrap();
        assert_eq!(endpoint.addresses().len(), 2);
        script.answers.send(Ok(Vec::new())).unwrap();
        script.asked.recv().unwrap();
        assert_eq!(endpoint.addresses().len(), 2);
        script
            .answers
            .send(Ok(vec![address("127.0.0.9:80")]))
            .unwrap();
        script.asked.recv().unwrap();
        assert_eq!(**endpoint.addresses(), [address("127.0.0.9:80")]);
        // A stop does not wait for the look-up that is under way.
        script.resolver.stop();
    }

    #[test]
    fn names_can_be_replaced() {
        let first = Arc::new(Endpoint::new(0, "first.test", 80));
        let second = Arc::new(Endpoint::new(1, "second.test", 80));
        let script = script(&first, Duration::from_secs(3600));
        assert_eq!(script.asked.recv().unwrap(), "first.test");
        script
            .resolver
            .watch(vec![second.clone()], Duration::from_secs(3600));
        // The answer for a name that is no longer watched goes nowhere.
        script
            .answers
            .send(Ok(vec![address("127.0.0.1:80")]))
            .unwrap();
        assert_eq!(script.asked.recv().unwrap(), "second.test");
        assert!(first.addresses().is_empty());
        script
            .answers
            .send(Ok(vec![address("127.0.0.2:80")]))
            .unwrap();
        assert!(script.resolver.wait_until_tried(Duration::from_secs(60)));
        assert_eq!(**second.addresses(), [address("127.0.0.2:80")]);
        script.resolver.stop();
    }
}
