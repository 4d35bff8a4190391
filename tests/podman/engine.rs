//! A real Podman that shares nothing with the machine: in namespaces of its own for processes, mounts
//! and the network, so that whatever a test leaves behind ends with it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::rig::{scratch, INSIDE};
use crate::support::process::{OnDrop, Process};
use crate::support::TempDir;

/// Runs this very test again in namespaces of its own. `true` if that is done, so that there is
/// nothing left to do; `false` inside.
///
/// # Panics
/// When the test fails there, or when there can be no such namespaces.
pub fn ran_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    // The shell stays, and reaps what containers leave. What is in /run and /dev/shm is Podman's.
    let script = "set -e
        PATH=$PATH:/usr/sbin:/sbin
        mount -t tmpfs none /run
        mount -t tmpfs none /dev/shm
        ip link set lo up
        \"$0\" \"$@\"";
    let this = std::env::current_exe().expect("the test's own path");
    let mut command = Command::new("unshare");
    command
        .args([
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args(["bash", "-c", script])
        .arg(this)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, test);
    let out = command.output().expect("run unshare (util-linux)");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", said(&out.stdout));
    assert!(
        out.status.success(),
        "in namespaces of its own (root is needed, and podman runc conmon netavark iptables \
         busybox-static): {}\n{}{}",
        out.status,
        said(&out.stdout),
        said(&out.stderr)
    );
    true
}

/// Podman with storage, networks and a service of its own.
pub struct Podman {
    dir: TempDir,
    /// Short, as the path of a socket must be.
    sockets: tempfile::TempDir,
    service: Option<Process>,
}

/// What the containers run: toron answering everything with what `$SAYS` holds, else the name of the
/// host, which is the container's id.
const SERVE: &str = r#"says=${SAYS:-$(cat /etc/hostname)}
at=${ADDRESS:-0.0.0.0}
printf '%s\n' "server: {engine: epoll, worker_pool_size: 2, shutdown_grace: 5s, listen: [\"$at:8080\", \"$at:8081\", \"$at:9000\", \"$at:7000\"]}" \
  "firewall: {enabled: false}" "routes: [{prefix: /, status: 200, body: \"$says\"}]" > /tmp/config.yaml
exec /toron serve -c /tmp/config.yaml"#;

impl Podman {
    /// Sets it up, and makes the images that `tags` name, all alike.
    pub fn start(tags: &[&str]) -> Self {
        let dir = scratch("podman");
        let at = |name: &str| dir.join(name).display().to_string();
        // No init system and no registry; rlimits as they are, since raising them needs a capability.
        let containers = format!(
            "[containers]\ndefault_ulimits = [\"nofile=4096:4096\", \"nproc=32768:32768\"]\n\
             [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
             tmp_dir = \"{}\"\n[network]\nnetwork_config_dir = \"{}\"\n",
            at("tmp"),
            at("networks")
        );
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
            at("root"),
            at("run")
        );
        std::fs::write(dir.join("containers.conf"), containers).expect("containers.conf");
        std::fs::write(dir.join("storage.conf"), storage).expect("storage.conf");
        let mut podman = Podman {
            dir,
            sockets: tempfile::tempdir().expect("directory of the socket"),
            service: None,
        };
        podman.image(tags);
        podman.serve();
        podman
    }

    /// The socket of the service.
    pub fn socket(&self) -> PathBuf {
        self.sockets.path().join("podman.sock")
    }

    /// A command in whose environment `podman` is this one.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .env("CONTAINERS_CONF", self.dir.join("containers.conf"))
            .env("CONTAINERS_STORAGE_CONF", self.dir.join("storage.conf"))
            .env("ENGINE", "podman");
        command
    }

    /// Runs podman and gives its output.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, arguments: &[&str]) -> String {
        let out = self.command("podman").args(arguments).output();
        text_of(&format!("podman {arguments:?}"), &out.expect("run podman"))
    }

    /// Starts a container in the machine's network that answers with its name at `address`.
    pub fn replica(&self, name: &str, address: &str, labels: &[&str]) {
        let mut arguments = vec!["run", "-d", "--name", name, "--network", "host"];
        let (says, at) = (format!("SAYS={name}"), format!("ADDRESS={address}"));
        let place = format!("toron.address={address}");
        arguments.extend(["-e", &says, "-e", &at, "--label", &place]);
        for label in ["toron.enable=true", "toron.port=8080"]
            .iter()
            .chain(labels)
        {
            arguments.extend(["--label", label]);
        }
        arguments.push("replica:latest");
        self.run(&arguments);
    }

    /// Starts the service.
    pub fn serve(&mut self) {
        let mut command = self.command("podman");
        let socket = format!("unix://{}", self.socket().display());
        command.args(["system", "service", "--time=0", &socket]);
        self.service = Some(Process::spawn(command, "podman", OnDrop::Terminate));
        crate::rig::await_that("the socket of podman", || {
            std::os::unix::net::UnixStream::connect(self.socket()).map_err(|e| e.to_string())
        });
    }

    /// Stops the service; containers go on.
    pub fn stop_serving(&mut self) {
        self.service = None;
    }

    /// An image with toron, what it is linked with, and a shell.
    fn image(&self, tags: &[&str]) {
        let root = self.dir.join("image");
        let mkdir = |path: &str| std::fs::create_dir_all(root.join(path)).expect("mkdir");
        mkdir("bin");
        mkdir("tmp");
        let program = root.join("toron");
        std::fs::copy(env!("CARGO_BIN_EXE_toron"), &program).expect("copy toron");
        let strip = Command::new("strip").arg(&program).output();
        text_of("strip toron", &strip.expect("run strip (binutils)"));
        let linked = Command::new("ldd").arg(&program).output();
        let linked = text_of("ldd", &linked.expect("run ldd"));
        for library in linked
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            let to = root.join(library.trim_start_matches('/'));
            std::fs::create_dir_all(to.parent().expect("parent")).expect("mkdir");
            std::fs::copy(library, to).expect("copy a library");
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"];
        let busybox = busybox.iter().find(|path| Path::new(path).exists());
        let busybox = busybox.expect("busybox (Debian: busybox-static)");
        for applet in ["sh", "cat"] {
            std::fs::copy(busybox, root.join("bin").join(applet)).expect("copy busybox");
        }
        std::fs::write(root.join("serve.sh"), SERVE).expect("write serve.sh");
        let archive = self.dir.join("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
        text_of("tar", &tar.output().expect("run tar"));
        let archive = archive.display().to_string();
        let first = format!("localhost/{}", tags[0]);
        let command = "CMD [\"/bin/sh\",\"/serve.sh\"]";
        self.run(&["import", "--change", command, &archive, &first]);
        for tag in &tags[1..] {
            self.run(&["tag", &first, &format!("localhost/{tag}")]);
        }
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // Mounts and processes end with the namespaces; this ends the containers' cgroups.
        let removed = self
            .command("podman")
            .args(["rm", "-f", "-a", "-t", "0"])
            .output();
        if !removed.is_ok_and(|out| out.status.success()) {
            eprintln!("some containers could not be removed in order");
        }
        let unmounted = Command::new("umount")
            .arg("-R")
            .arg(self.dir.join("root/overlay"))
            .output();
        drop(unmounted);
    }
}

fn text_of(what: &str, out: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        out.status.success(),
        "{what}: {}{}",
        text(&out.stdout),
        text(&out.stderr)
    );
    text(&out.stdout)
}
