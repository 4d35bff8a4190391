//! Which socket (D2).

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::policy::discovery::{ContainerEngine, DiscoverySettings};

/// Docker's socket.
const DOCKER: &str = "/var/run/docker.sock";
/// That of root's Podman.
const PODMAN: &str = "/run/podman/podman.sock";

/// A place to look for a socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Where.
    pub path: PathBuf,
    /// Whether the engine behind it runs without root: the networks of its containers are not the
    /// machine's.
    pub rootless: bool,
}

/// Where `settings` have it looked for, in order. `runtime_dir` is the environment's
/// `XDG_RUNTIME_DIR`, `uid` that of this process.
#[must_use]
pub fn candidates(
    settings: &DiscoverySettings,
    runtime_dir: Option<&Path>,
    uid: u32,
) -> Vec<Candidate> {
    let of_user = PathBuf::from(format!("/run/user/{uid}"));
    let is_rootless = |path: &Path| {
        path.starts_with("/run/user") || runtime_dir.is_some_and(|dir| path.starts_with(dir))
    };
    let candidate = |path: PathBuf| Candidate {
        rootless: is_rootless(&path),
        path,
    };
    if let Some(path) = &settings.socket {
        return vec![candidate(path.clone())];
    }
    let podmans = || {
        let mut places = vec![PathBuf::from(PODMAN)];
        places.extend(runtime_dir.map(|dir| dir.join("podman/podman.sock")));
        places.push(of_user.join("podman/podman.sock"));
        places.dedup();
        places
    };
    let places = match settings.engine {
        ContainerEngine::Docker => vec![PathBuf::from(DOCKER)],
        ContainerEngine::Podman => podmans(),
        ContainerEngine::Auto => {
            let mut places = vec![PathBuf::from(DOCKER)];
            places.extend(podmans());
            places
        }
    };
    places.into_iter().map(candidate).collect()
}

/// As [`candidates`], for this process.
#[must_use]
pub fn candidates_here(settings: &DiscoverySettings) -> Vec<Candidate> {
    let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime_dir = runtime_dir.filter(|dir| dir.is_absolute());
    let uid = rustix::process::getuid().as_raw();
    candidates(settings, runtime_dir.as_deref(), uid)
}

/// Tells a socket from one that was made anew in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Seconds and nanoseconds: inode numbers of a file system in memory are used again.
    changed: (i64, i64),
}

/// The identity of the socket at `path`, if there is one.
#[must_use]
pub fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::metadata(path).ok()?;
    found.file_type().is_socket().then(|| Identity {
        path: path.to_owned(),
        device: found.dev(),
        inode: found.ino(),
        changed: (found.ctime(), found.ctime_nsec()),
    })
}

/// The first of the candidates that is there.
#[must_use]
pub fn find(candidates: &[Candidate]) -> Option<(&Candidate, Identity)> {
    let there = |candidate| Some((candidate, identity(&Candidate::clone(candidate).path)?));
    candidates.iter().find_map(there)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;

    fn settings(engine: ContainerEngine, socket: Option<&str>) -> DiscoverySettings {
        DiscoverySettings {
            engine,
            socket: socket.map(PathBuf::from),
            poll_interval: Duration::from_secs(10),
            default_weight: 1,
            network: None,
        }
    }

    fn places(settings: &DiscoverySettings, runtime_dir: Option<&str>) -> Vec<String> {
        let found = candidates(settings, runtime_dir.map(Path::new), 7);
        let shown = |c: Candidate| {
            let rootless = if c.rootless { " rootless" } else { "" };
            format!("{}{rootless}", c.path.display())
        };
        found.into_iter().map(shown).collect()
    }

    #[test]
    fn d2_the_standard_places_in_order() {
        let all = [
            "/var/run/docker.sock",
            "/run/podman/podman.sock",
            "/srv/x/podman/podman.sock rootless",
            "/run/user/7/podman/podman.sock rootless",
        ];
        let auto = settings(ContainerEngine::Auto, None);
        assert_eq!(places(&auto, Some("/srv/x")), all);
        assert_eq!(places(&auto, None), [all[0], all[1], all[3]]);
        assert_eq!(places(&auto, Some("/run/user/7")), [all[0], all[1], all[3]]);
        let docker = settings(ContainerEngine::Docker, None);
        assert_eq!(places(&docker, Some("/srv/x")), all[..1]);
        let podman = settings(ContainerEngine::Podman, None);
        assert_eq!(places(&podman, Some("/srv/x")), all[1..]);
        let named = settings(ContainerEngine::Podman, Some("/a/b.sock"));
        assert_eq!(places(&named, Some("/srv/x")), ["/a/b.sock"]);
    }

    #[test]
    fn a_socket_made_anew_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| Candidate {
            path: dir.path().join(name),
            rootless: false,
        };
        let both = [at("a"), at("b")];
        assert_eq!(find(&both), None);
        std::fs::write(dir.path().join("a"), "no socket").unwrap();
        let first = UnixListener::bind(dir.path().join("b")).unwrap();
        let (found, identity) = find(&both).unwrap();
        assert_eq!(found, &both[1]);
        assert_eq!(find(&both).unwrap().1, identity);
        drop(first);
        std::fs::remove_file(dir.path().join("b")).unwrap();
        // Times of the file system have the length of a tick.
        let again = std::iter::repeat_with(|| {
            let _ = std::fs::remove_file(dir.path().join("b"));
            let listener = UnixListener::bind(dir.path().join("b")).unwrap();
            let found = find(&both).unwrap().1;
            drop(listener);
            found
        });
        assert!(again.take(10_000).any(|found| found != identity));
    }
}
