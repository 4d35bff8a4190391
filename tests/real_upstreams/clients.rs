//! Clients that people use: curl, and Python's http.client.

use std::path::Path;
use std::process::Command;

use crate::origins::{script, Origin};
use crate::support::toron::Toron;
use crate::support::TempDir;

/// Runs curl and gives what it wrote.
fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20"]).args(arguments);
    let out = command.output().expect("run curl");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "curl {arguments:?}: {said}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A large download and upload, by length and in chunks, with 100-continue as curl asks for it.
pub fn transfers_of_curl(toron: &Toron, origin: &Origin) {
    let dir = TempDir::new("curl");
    let big = origin.big();
    let base = format!("http://{}/app", toron.addr);
    let to = dir.join("big");
    curl(&["--fail", "-o", text(&to), &format!("{base}/files/big")]);
    assert!(std::fs::read(&to).expect("a download") == big, "it differs");
    let file = origin.files.join("big");
    let url = format!("{base}/store/");
    for (name, more) in [
        ("whole", &["-H", "X-None: 1"][..]),
        ("chunked", &["-H", "Transfer-Encoding: chunked"]),
        ("expected", &["-H", "Expect: 100-continue"]),
        ("unexpected", &["-H", "Expect:"]),
    ] {
        let mut arguments = vec!["--fail", "-T", text(&file)];
        arguments.extend(more);
        let url = format!("{url}{name}");
        arguments.push(&url);
        curl(&arguments);
        let stored = std::fs::read(origin.files.join(name)).expect("what was stored");
        assert!(stored == big, "{name} differs");
    }
}

/// What curl makes of answers without a body, of HTTP/1.0, and of a connection that is kept.
pub fn small_things_of_curl(toron: &Toron) {
    let url = |path: &str| format!("http://{}/app{path}", toron.addr);
    let (hello, pieces, empty) = (url("/hello"), url("/pieces"), url("/empty"));
    let head = curl(&["-I", &hello]);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(
        head.to_ascii_lowercase().contains("content-length: 5"),
        "{head}"
    );
    let whole: String = (0..5).map(|i| format!("piece {i}\n")).collect();
    assert_eq!(curl(&[&pieces]), whole);
    let old = curl(&["--http1.0", "-i", &pieces]);
    assert!(old.ends_with(&format!("\r\n\r\n{whole}")), "{old}");
    assert!(
        !old.to_ascii_lowercase().contains("transfer-encoding"),
        "{old}"
    );
    let format = "%{http_code} %{num_connects},";
    let kept = curl(&["-w", format, &empty, &hello, &empty, &pieces, &hello]);
    let counts: Vec<_> = kept.split(',').map(|part| part.ends_with(" 0")).collect();
    assert_eq!(counts, [false, true, true, true, true, false], "{kept}");
}

/// A login behind a stripped prefix: curl follows the redirect and sends the cookie where its path
/// says, and nowhere else.
pub fn login_of_curl(toron: &Toron) {
    let dir = TempDir::new("cookies");
    let jar = dir.join("jar");
    let url = |path: &str| format!("http://{}{path}", toron.addr);
    let (login, home, other) = (url("/app/login"), url("/app/home"), url("/home"));
    let both = ["-c", text(&jar), "-b", text(&jar)];
    let with = |more: &[&str]| curl(&[&both[..], more].concat());
    let landed = with(&["-L", "-w", " at %{url_effective}", &login]);
    assert_eq!(landed, format!("welcome at {home}"));
    let code = ["-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(with(&[&code[..], &[&home]].concat()), "200");
    // The same page, without the prefix: another application, as far as a browser knows.
    assert_eq!(with(&[&code[..], &[&other]].concat()), "403");
    let kept = std::fs::read_to_string(&jar).expect("the cookies");
    assert!(kept.contains("\t/app\t"), "{kept}");
}

/// All of it by Python's http.client, on one connection.
pub fn http_client(toron: &Toron, origin: &Origin) {
    let port = toron.addr.port().to_string();
    let out = Command::new("/usr/bin/python3")
        .arg(script("client.py"))
        .args([&port, "/app"])
        .arg(origin.files.join("big"))
        .output()
        .expect("run python3");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "http.client: {said}");
    for name in ["by-client", "by-client-whole"] {
        let stored = std::fs::read(origin.files.join(name)).expect("what was stored");
        assert!(stored == origin.big(), "{name} differs");
    }
}
