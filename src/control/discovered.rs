//! What the publisher keeps of discovery: the containers found last and what they come to.

use std::collections::{BTreeSet, HashMap};
use std::io;

use super::config::inherited::Inherited;
use super::discovery::container::Container;
use super::discovery::group::{desired, is_same, Desired, EndpointOf, Verdict};
use super::discovery::report::{changes, view};
use super::discovery::watch::{Sink, Status, Watcher};
use crate::policy::discovery::{DiscoverySettings, DiscoveryView};
use crate::policy::router::{Clash, RouteKey};
use crate::policy::settings::Route;

/// Discovery that is on.
#[derive(Debug)]
pub struct Discovered {
    /// Tells its news from those of one that was switched off before.
    pub number: u64,
    settings: DiscoverySettings,
    watcher: Watcher,
    status: Status,
    containers: Vec<Container>,
    desired: Desired,
    /// Keys whose route is another source's, and where that stands.
    shadowed: HashMap<RouteKey, String>,
    shown: DiscoveryView,
}

impl Discovered {
    /// Starts to look for containers. `sink` takes what is found.
    pub fn start(
        number: u64,
        settings: DiscoverySettings,
        sink: Box<dyn Sink>,
    ) -> io::Result<Self> {
        Ok(Discovered {
            number,
            watcher: Watcher::start(settings.clone(), sink)?,
            settings,
            status: Status::default(),
            containers: Vec::new(),
            desired: Desired::default(),
            shadowed: HashMap::new(),
            shown: DiscoveryView::default(),
        })
    }

    /// The thread that watches.
    #[must_use]
    pub fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// Goes on with other settings.
    pub fn set(&mut self, settings: &DiscoverySettings) {
        if self.settings != *settings {
            self.settings = settings.clone();
            self.watcher.set(settings.clone());
        }
    }

    /// Takes news. `true` if there are other containers than before, so that [`Discovered::work_out`]
    /// is to follow.
    pub fn take(&mut self, status: &Status, list: Option<&[Container]>) -> bool {
        self.status = status.clone();
        match list {
            Some(list) if list != self.containers => {
                self.containers = list.to_vec();
                true
            }
            _ => false,
        }
    }

    /// Works out the routes anew. `true` if they are others than before.
    pub fn work_out(
        &mut self,
        inherited: &Inherited,
        methods: BTreeSet<String>,
        endpoint: &mut EndpointOf<'_>,
    ) -> bool {
        let made = desired(
            &self.containers,
            &self.settings,
            inherited,
            methods,
            endpoint,
        );
        let before = std::mem::replace(&mut self.desired, made);
        let (old, new) = (&before.routes, &self.desired.routes);
        old.len() != new.len() || old.iter().zip(new).any(|(a, b)| !is_same(a, b))
    }

    /// The routes as they should be.
    #[must_use]
    pub fn routes(&self) -> &[Route] {
        &self.desired.routes
    }

    /// Containers that run and have no address yet.
    #[must_use]
    pub fn unfinished(&self) -> Vec<String> {
        let unfinished = self.desired.verdicts.iter().filter(|v| v.unfinished);
        unfinished.map(|v: &Verdict| v.id.clone()).collect()
    }

    /// Which routes another source's stand in front of.
    pub fn set_shadowed(&mut self, clashes: &[Clash]) {
        self.shadowed = clashes
            .iter()
            .map(|clash| (RouteKey::of(&clash.dropped), clash.kept.origin.to_string()))
            .collect();
    }

    /// What there is to show now; the log is told what is new in it.
    pub fn show(&mut self) -> DiscoveryView {
        let verdicts = &self.desired.verdicts;
        let now = view(&self.status, verdicts, &self.desired.routes, &self.shadowed);
        for (level, line) in changes(&self.shown.containers, &now.containers) {
            log::log!(level, "discovery: {line}");
        }
        self.shown.clone_from(&now);
        now
    }
}
