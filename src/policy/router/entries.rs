//! What a look-up ends in: the routes of one key, by their methods.

/// A route in the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Index into the routes of the table.
    pub(super) id: u32,
    /// The set of its methods; 0 is any.
    pub(super) methods: u64,
}

/// Entries with rising ids. One, as in most tables, lies where the list itself does: a hop to the heap
/// less.
#[derive(Debug, Default)]
pub(super) enum Entries {
    #[default]
    None,
    One(Entry),
    Several(Vec<Entry>),
}

impl Entries {
    pub(super) fn push(&mut self, entry: Entry) {
        *self = match std::mem::take(self) {
            Entries::None => Entries::One(entry),
            Entries::One(first) => Entries::Several(vec![first, entry]),
            Entries::Several(mut all) => {
                all.push(entry);
                Entries::Several(all)
            }
        };
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Entries::None)
    }

    fn as_slice(&self) -> &[Entry] {
        match self {
            Entries::None => &[],
            Entries::One(entry) => std::slice::from_ref(entry),
            Entries::Several(all) => all,
        }
    }

    /// The first that takes the method and for which `holds`; methods of those that only lack the
    /// method go into `allow`.
    pub(super) fn first_with(
        &self,
        method: u64,
        allow: &mut u64,
        holds: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        for entry in self.as_slice().iter().filter(|entry| holds(entry.id)) {
            if entry.methods == 0 || entry.methods & method != 0 {
                return Some(entry.id);
            }
            *allow |= entry.methods;
        }
        None
    }
}
