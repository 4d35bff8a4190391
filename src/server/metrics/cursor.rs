//! Where an exposition is, and its next piece.

use std::rc::Rc;

use toron_reactor::Time;

use super::families;
use super::family::{Family, Samples, View};
use super::text::{Format, Text};
use crate::server::shared::Shared;
use crate::server::Pinned;

/// Bytes after which a piece ends. With 10,000 routes in use, turns that write one take 20 to 50 µs
/// (`toron_reactor_turn_seconds` of a release build); a piece of 64 KiB would take four times that.
pub const PIECE: usize = 16 * 1024;

/// An exposition under way.
#[derive(Debug)]
pub struct Cursor {
    /// The routes that are told of, whatever is reloaded meanwhile.
    snapshot: Rc<Pinned>,
    format: Format,
    /// Whether pieces are framed as chunks.
    chunked: bool,
    /// Which family is next.
    family: usize,
    /// Where in it.
    place: Place,
}

/// Where in a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Front,
    Route(usize),
}

impl Cursor {
    /// At the beginning.
    pub(crate) fn new(snapshot: &Rc<Pinned>, format: Format, chunked: bool) -> Self {
        Cursor {
            snapshot: Rc::clone(snapshot),
            format,
            chunked,
            family: 0,
            place: Place::Front,
        }
    }

    /// Appends the next piece, framed; `false` when it was the last.
    pub(crate) fn write(&mut self, shared: &Shared, now: Time, out: &mut Vec<u8>) -> bool {
        const SIZE: &[u8] = b"00000000\r\n";
        if !self.chunked {
            return self.write_piece(shared, now, out);
        }
        let front = out.len();
        out.extend_from_slice(SIZE);
        let goes_on = self.write_piece(shared, now, out);
        let size = format!("{:08x}\r\n", out.len() - front - SIZE.len());
        if let Some(place) = out.get_mut(front..front + SIZE.len()) {
            place.copy_from_slice(size.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if !goes_on {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        goes_on
    }

    fn write_piece(&mut self, shared: &Shared, now: Time, out: &mut Vec<u8>) -> bool {
        let view = View::new(shared, &self.snapshot, now);
        let end = out.len() + PIECE;
        for family in families().skip(self.family) {
            let mut place = Some(self.place);
            while let Some(at) = place {
                if out.len() >= end {
                    self.place = at;
                    return true;
                }
                place = step(family, at, &view, self.format, out);
            }
            self.family += 1;
            self.place = Place::Front;
        }
        if self.format == Format::OpenMetrics {
            out.extend_from_slice(b"# EOF\n");
        }
        false
    }
}

/// Writes what is at a place; returns the next one in the same family.
fn step(
    family: &Family,
    place: Place,
    view: &View<'_>,
    format: Format,
    out: &mut Vec<u8>,
) -> Option<Place> {
    let mut text = Text::of(family.name, out);
    if place == Place::Front {
        text.describe(family.kind, family.help, format);
    }
    match (family.samples, place) {
        (Samples::Once(all), _) => {
            all(view, &mut text);
            None
        }
        (Samples::Requests(unrouted, _), Place::Front) => {
            unrouted(view, &mut text);
            Some(Place::Route(0))
        }
        (Samples::Routes(_), Place::Front) => Some(Place::Route(0)),
        (Samples::Routes(each) | Samples::Requests(_, each), Place::Route(id)) => {
            let route = view.snapshot.table.routes().get(id)?;
            each(view, id, route, &mut text);
            Some(Place::Route(id + 1))
        }
    }
}
