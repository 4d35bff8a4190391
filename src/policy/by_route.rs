//! What a route keeps over reloads.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::router::{RouteKey, Table};
use super::settings::Route;

/// One `T` for every route that has been in force and of which something is left: the
/// configuration, a request in flight. A route is the same as another by what it matches: host,
/// prefix, methods, fields. So one that stays, or comes back while its old requests last, keeps its
/// `T`, and what nothing refers to any more is dropped.
#[derive(Debug)]
pub struct ByRoute<T> {
    pub(super) known: HashMap<RouteKey, Weak<T>>,
}

impl<T> Default for ByRoute<T> {
    fn default() -> Self {
        ByRoute {
            known: HashMap::new(),
        }
    }
}

impl<T: Default> ByRoute<T> {
    /// Those of the routes of `table`, in its order.
    pub fn of(&mut self, table: &Table) -> Vec<Arc<T>> {
        self.known.retain(|_, kept| kept.strong_count() > 0);
        let routes = table.routes().iter();
        routes.map(|route| self.get(route)).collect()
    }

    fn get(&mut self, route: &Route) -> Arc<T> {
        let key = RouteKey::of(route);
        if let Some(kept) = self.known.get(&key).and_then(Weak::upgrade) {
            return kept;
        }
        let fresh = Arc::new(T::default());
        self.known.insert(key, Arc::downgrade(&fresh));
        fresh
    }
}
