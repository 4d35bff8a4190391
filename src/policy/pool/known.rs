//! What is known of the targets of all routes, kept over changes of the configuration.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use super::{Pool, TargetState};
use crate::policy::router::{RouteKey, Table};
use crate::policy::settings::{Algorithm, Target, Upstream};

/// The pools of all routes that have been in force and of which something is left: the configuration
/// or a request in flight. A route that stays keeps the state of those targets that stay (R20), and
/// one whose targets stay all the same keeps its pool.
#[derive(Debug, Default)]
pub struct Pools {
    known: HashMap<RouteKey, Known>,
    next_id: u64,
}

#[derive(Debug, Default)]
struct Known {
    going: Arc<Mutex<()>>,
    targets: HashMap<Name, Weak<TargetState>>,
    /// The last one, and what it was made for.
    pool: Weak<Pool>,
    shape: Option<Shape>,
}

/// What makes a target the same as before: its URL, and whose it is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Name {
    url: String,
    identity: String,
}

#[derive(PartialEq, Eq, Debug)]
struct Shape {
    algorithm: Algorithm,
    targets: Vec<(Name, u32)>,
}

impl Name {
    fn of(target: &Target) -> Self {
        Name {
            url: target.url(),
            identity: target.endpoint.identity.clone(),
        }
    }
}

impl Known {
    fn is_used(&self) -> bool {
        self.pool.strong_count() > 0 || self.targets.values().any(|t| t.strong_count() > 0)
    }

    fn pool(&mut self, upstream: &Upstream, next_id: &mut u64) -> Arc<Pool> {
        let targets = upstream.targets.iter();
        let shape = Shape {
            algorithm: upstream.algorithm,
            targets: targets.map(|t| (Name::of(t), t.weight)).collect(),
        };
        let same = self.pool.upgrade();
        if let Some(pool) = same.filter(|_| self.shape.as_ref() == Some(&shape)) {
            return pool;
        }
        self.targets.retain(|_, state| state.strong_count() > 0);
        let names = shape.targets.iter();
        let states = names.map(|(name, _)| self.state(name)).collect();
        let pool = Arc::new(Pool {
            id: *next_id,
            targets: states,
            going: Arc::clone(&self.going),
        });
        *next_id += 1;
        self.pool = Arc::downgrade(&pool);
        self.shape = Some(shape);
        pool
    }

    fn state(&mut self, name: &Name) -> Arc<TargetState> {
        if let Some(state) = self.targets.get(name).and_then(Weak::upgrade) {
            return state;
        }
        let state = Arc::<TargetState>::default();
        self.targets.insert(name.clone(), Arc::downgrade(&state));
        state
    }
}

impl Pools {
    /// The pools of the routes of `table`, in its order; none for a route without targets.
    pub fn of(&mut self, table: &Table) -> Vec<Option<Arc<Pool>>> {
        self.known.retain(|_, known| known.is_used());
        let routes = table.routes().iter();
        let pools = routes.map(|route| {
            let upstream = route.upstream()?;
            let known = self.known.entry(RouteKey::of(route)).or_default();
            let pool = known.pool(upstream, &mut self.next_id);
            pool.revive(&upstream.health);
            Some(pool)
        });
        pools.collect()
    }
}
