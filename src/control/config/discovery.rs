//! `discovery`.

use std::path::PathBuf;
use std::time::Duration;

use crate::policy::discovery::{ContainerEngine, DiscoverySettings};

use super::section::Section;

/// Least time between lists: an engine answers one in some milliseconds, and has other work.
const LEAST_POLL: Duration = Duration::from_millis(100);

/// Names of sockets that speak gRPC, and the engine behind.
const GRPC_SOCKETS: [(&str, &str); 3] = [
    ("containerd.sock", "containerd"),
    ("crio.sock", "CRI-O"),
    ("containerd.sock.ttrpc", "containerd"),
];

/// Reads the block. `None` where discovery is off (D1: a block without `enabled` is on).
pub fn read(root: &Section<'_>) -> Option<DiscoverySettings> {
    let s = root.section("discovery", "discovery")?;
    let enabled = s.boolean("enabled").unwrap_or(true);
    let settings = DiscoverySettings {
        engine: read_engine(&s),
        socket: read_socket(&s),
        poll_interval: read_interval(&s),
        default_weight: s.number("default_weight", 1..=1000).unwrap_or(1),
        network: s
            .string("network")
            .filter(|name| !name.is_empty())
            .map(str::to_owned),
    };
    s.finish();
    Some(settings).filter(|_| enabled)
}

fn read_engine(s: &Section<'_>) -> ContainerEngine {
    let grpc = ["containerd", "cri-o", "crio"];
    if let Some(name) = s.string("engine").filter(|name| grpc.contains(name)) {
        let text = format!(
            "discovery.engine: {name} speaks gRPC, not the Docker API (allowed: auto, docker, podman)"
        );
        s.report.fault(s.value_mark("engine"), text);
        return ContainerEngine::Auto;
    }
    let engines = [
        ("auto", ContainerEngine::Auto),
        ("docker", ContainerEngine::Docker),
        ("podman", ContainerEngine::Podman),
    ];
    s.choice("engine", &engines, 3)
        .unwrap_or(ContainerEngine::Auto)
}

fn read_socket(s: &Section<'_>) -> Option<PathBuf> {
    let text = s.string("socket_path").filter(|text| *text != "auto")?;
    let fault = |problem: &str| {
        let text = format!(
            "discovery.socket_path: \"{text}\" {problem} (allowed: auto, /var/run/docker.sock, \
             unix:///var/run/docker.sock)"
        );
        s.report.fault(s.value_mark("socket_path"), text);
    };
    let path = PathBuf::from(text.strip_prefix("unix://").unwrap_or(text));
    let file = path.file_name().and_then(|name| name.to_str());
    let grpc = GRPC_SOCKETS.iter().find(|(name, _)| file == Some(name));
    if let Some((_, engine)) = grpc {
        fault(&format!(
            "is {engine}'s, which speaks gRPC, not the Docker API; nerdctl and Finch have a \
             Docker-compatible socket beside it"
        ));
    } else if path.as_os_str().len() > 107 {
        // sun_path of unix(7), with its zero.
        fault("is longer than the path of a socket can be, 107 bytes");
    } else if text.contains("://") && !text.starts_with("unix://") {
        fault("is not a Unix socket");
    } else if !path.is_absolute() {
        fault("is not the whole path of a socket");
    }
    Some(path)
}

fn read_interval(s: &Section<'_>) -> Duration {
    let interval = s
        .duration("poll_interval")
        .unwrap_or(Duration::from_secs(10));
    if interval < LEAST_POLL {
        let text = "discovery.poll_interval is too short (allowed: 100ms or more)";
        s.report.fault(s.value_mark("poll_interval"), text);
    }
    interval
}

#[cfg(test)]
mod tests {
    use super::super::{load_texts, Loaded, Rejected};
    use super::*;
    use crate::control::resolve::Endpoints;

    fn read_text(block: &str) -> Result<Option<DiscoverySettings>, Vec<String>> {
        let text = format!("{block}\nroutes: [{{prefix: /a, status: 200}}]\n");
        match load_texts(&text, None, &mut Endpoints::default()) {
            Ok(Loaded { snapshot, .. }) => Ok(snapshot.settings.discovery.clone()),
            Err(Rejected { faults, .. }) => {
                Err(faults.into_iter().map(|fault| fault.message).collect())
            }
        }
    }

    #[test]
    fn d1_no_block_is_off_and_a_block_is_on() {
        let defaults = DiscoverySettings {
            engine: ContainerEngine::Auto,
            socket: None,
            poll_interval: Duration::from_secs(10),
            default_weight: 1,
            network: None,
        };
        assert_eq!(read_text(""), Ok(None));
        assert_eq!(read_text("discovery: {}"), Ok(Some(defaults.clone())));
        assert_eq!(
            read_text("discovery: {enabled: on, network: \"\"}"),
            Ok(Some(defaults))
        );
        assert_eq!(
            read_text("discovery: {enabled: false, engine: podman}"),
            Ok(None)
        );
    }

    #[test]
    fn d2_a_socket_is_a_path_or_a_unix_url() {
        for text in ["/run/a.sock", "unix:///run/a.sock"] {
            let read = read_text(&format!("discovery: {{socket_path: \"{text}\"}}"));
            let socket = read.map(|s| s.and_then(|s| s.socket));
            assert_eq!(socket, Ok(Some("/run/a.sock".into())), "{text}");
        }
        let long = format!("/{}", "a".repeat(107));
        for (text, said) in [
            (
                "/run/containerd/containerd.sock",
                "containerd's, which speaks gRPC",
            ),
            (
                "unix:///var/run/crio/crio.sock",
                "CRI-O's, which speaks gRPC",
            ),
            ("tcp://127.0.0.1:2375", "is not a Unix socket"),
            ("docker.sock", "is not the whole path"),
            (&long, "is longer than"),
        ] {
            let read = read_text(&format!("discovery: {{socket_path: \"{text}\"}}"));
            let faults = read.err().unwrap_or_default();
            assert!(
                faults.iter().any(|f| f.contains(said)),
                "{text}: {faults:?}"
            );
        }
    }

    #[test]
    fn values_out_of_range_are_faults() {
        for (block, said) in [
            ("{poll_interval: 0}", "poll_interval is too short"),
            ("{default_weight: 0}", "default_weight: 0 is too small"),
            ("{engine: crio}", "crio speaks gRPC"),
            ("{engine: dockr}", "did you mean \"docker\""),
        ] {
            let faults = read_text(&format!("discovery: {block}")).err();
            let faults = faults.unwrap_or_default();
            assert!(
                faults.iter().any(|f| f.contains(said)),
                "{block}: {faults:?}"
            );
        }
    }
}
