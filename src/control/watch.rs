//! `server.watch`: a change of a configuration file is a reload.
//!
//! The folders of the files are watched by inotify(7), not the files: editors put a new file in the
//! place of the old one by rename, and Kubernetes swaps a symbolic link to a folder. So the folder of
//! every link on the way is watched, too. What counts in the end is whether the bytes of the files
//! have changed, once the folders have been quiet for a moment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;

/// A change is looked at when nothing has happened for so long.
const QUIET: Duration = Duration::from_millis(100);
/// It is looked at after so long in any case.
const LONGEST: Duration = Duration::from_secs(2);
/// Links on the way to a file; more are a loop (as in path_resolution(7)).
const LINKS_MOST: usize = 40;

/// Folders, each with the names in it that matter.
type Points = BTreeMap<PathBuf, Vec<OsString>>;

/// Starts to watch: `files` says which files count at present, the configuration first, and `changed`
/// is called when their bytes have changed. Fails if the kernel has no more watches, or the thread
/// cannot be made.
pub fn start<F, C>(files: F, changed: C) -> io::Result<()>
where
    F: Fn() -> Vec<PathBuf> + Send + 'static,
    C: Fn() + Send + 'static,
{
    let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    let mut watch = Watch {
        inotify,
        folders: BTreeMap::new(),
        seen: Vec::new(),
    };
    let present = files();
    watch.look_at(&present)?;
    watch.seen = present.iter().map(|file| print_of(file)).collect();
    let thread = thread::Builder::new().name("watch".to_owned());
    thread.spawn(move || {
        if let Err(error) = watch.mind(&files, &changed) {
            log::error!("watching the files has ended: {error}");
        }
    })?;
    Ok(())
}

struct Watch {
    inotify: OwnedFd,
    /// By the number of their watch.
    folders: BTreeMap<i32, Vec<OsString>>,
    /// Of the files, when they were last looked at.
    seen: Vec<Option<u64>>,
}

impl Watch {
    fn mind(&mut self, files: &impl Fn() -> Vec<PathBuf>, changed: &impl Fn()) -> io::Result<()> {
        loop {
            self.wait(None)?;
            if !self.take_events()? {
                continue;
            }
            let first = Instant::now();
            while first.elapsed() < LONGEST && self.wait(Some(QUIET))? {
                self.take_events()?;
            }
            let files = files();
            self.look_at(&files)?;
            let now: Vec<Option<u64>> = files.iter().map(|file| print_of(file)).collect();
            // A configuration that is not there is about to be put there.
            let is_there = now.first().is_some_and(Option::is_some);
            if is_there && now != self.seen {
                self.seen = now;
                changed();
            }
        }
    }

    /// Waits for events. `false` if none have come within `limit`.
    fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN)];
        match poll(&mut fds, limit.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the events that are there; whether one of them matters.
    fn take_events(&self) -> io::Result<bool> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.inotify, &mut room);
        let mut matters = false;
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(Errno::WOULDBLOCK) => return Ok(matters),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            // Without a name it is about the folder itself, or events were lost.
            matters |= event.file_name().is_none_or(|name| {
                let name = OsStr::from_bytes(name.to_bytes());
                let names = self.folders.get(&event.wd());
                names.is_some_and(|names| names.iter().any(|known| known == name))
            });
        }
    }

    /// Watches what lies on the way to the files at present. Folders that are no longer on it stay
    /// watched until they are gone, which costs nothing.
    fn look_at(&mut self, files: &[PathBuf]) -> io::Result<()> {
        let mut points = Points::new();
        for file in files {
            way_to(file, &mut points);
        }
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        for (folder, names) in points {
            match inotify::add_watch(&self.inotify, &folder, flags) {
                Ok(watch) => {
                    self.folders.insert(watch, names);
                }
                // It comes back, or the link to it changes: both are seen one step before.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Adds the folder of every link on the way to `file`, and the one that the file is in.
fn way_to(file: &Path, points: &mut Points) {
    let Ok(mut path) = std::path::absolute(file) else {
        return;
    };
    for _ in 0..LINKS_MOST {
        let Some((link, target)) = first_link(&path) else {
            note(&path, points);
            return;
        };
        note(&link, points);
        let rest = path.strip_prefix(&link).unwrap_or(Path::new(""));
        let folder = link.parent().unwrap_or(Path::new("/"));
        let mut next = folder.join(target);
        if !rest.as_os_str().is_empty() {
            next.push(rest);
        }
        path = next;
    }
}

fn note(path: &Path, points: &mut Points) {
    if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
        points
            .entry(folder.to_owned())
            .or_default()
            .push(name.to_owned());
    }
}

/// The first part of a path that is a symbolic link, and what it says.
fn first_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut prefix = PathBuf::new();
    path.components().find_map(|component| {
        prefix.push(component);
        let target = fs::read_link(&prefix).ok()?;
        Some((prefix.clone(), target))
    })
}

/// A number that changes with the bytes of a file; `None` if it cannot be read.
fn print_of(file: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    fs::read(file).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;
    use std::sync::mpsc::{channel, Receiver};

    use super::*;

    /// Longer than anything takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(20);

    fn watched(files: Vec<PathBuf>) -> Receiver<()> {
        let (tell, told) = channel();
        start(
            move || files.clone(),
            move || {
                let _ = tell.send(());
            },
        )
        .unwrap();
        told
    }

    #[test]
    fn a_file_that_is_written_replaced_or_comes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (config, routes) = (
            dir.path().join("config.yaml"),
            dir.path().join("routes.yaml"),
        );
        fs::write(&config, "a").unwrap();
        let told = watched(vec![config.clone(), routes.clone()]);
        fs::write(&config, "b").unwrap();
        told.recv_timeout(PATIENCE).unwrap();
        let beside = dir.path().join(".config.yaml.swp");
        fs::write(&beside, "c").unwrap();
        fs::rename(&beside, &config).unwrap();
        told.recv_timeout(PATIENCE).unwrap();
        fs::write(&routes, "x").unwrap();
        told.recv_timeout(PATIENCE).unwrap();
        // Removed and made again, as some editors do: one change.
        fs::remove_file(&config).unwrap();
        fs::write(&config, "d").unwrap();
        told.recv_timeout(PATIENCE).unwrap();
        // The same bytes once more, and files that do not matter, are no change.
        fs::write(&config, "d").unwrap();
        fs::write(dir.path().join("access.log"), "line").unwrap();
        fs::write(&routes, "y").unwrap();
        told.recv_timeout(PATIENCE).unwrap();
        assert!(told.try_recv().is_err());
    }

    /// As the volume of a ConfigMap: `config.yaml` points to `..data/config.yaml`, and `..data` to a
    /// folder that is new with each change.
    #[test]
    fn a_link_that_is_swapped_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let publish = |version: &str| {
            fs::create_dir(path(version)).unwrap();
            fs::write(path(version).join("config.yaml"), version).unwrap();
            symlink(version, path("..data_tmp")).unwrap();
            fs::rename(path("..data_tmp"), path("..data")).unwrap();
        };
        publish("..1");
        symlink("..data/config.yaml", path("config.yaml")).unwrap();
        // The whole mount may be behind a link of its own.
        let outer = tempfile::tempdir().unwrap();
        symlink(dir.path(), outer.path().join("conf")).unwrap();
        let told = watched(vec![outer.path().join("conf/config.yaml")]);
        for version in ["..2", "..3"] {
            publish(version);
            told.recv_timeout(PATIENCE).unwrap();
        }
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("config.yaml"), "other").unwrap();
        symlink(other.path(), outer.path().join("next")).unwrap();
        fs::rename(outer.path().join("next"), outer.path().join("conf")).unwrap();
        told.recv_timeout(PATIENCE).unwrap();
        fs::write(other.path().join("config.yaml"), "changed").unwrap();
        told.recv_timeout(PATIENCE).unwrap();
    }

    #[test]
    fn a_loop_of_links_comes_to_an_end() {
        let dir = tempfile::tempdir().unwrap();
        symlink("b", dir.path().join("a")).unwrap();
        symlink("a", dir.path().join("b")).unwrap();
        let mut points = Points::new();
        way_to(&dir.path().join("a"), &mut points);
        assert_eq!(points.len(), 1);
    }
}
