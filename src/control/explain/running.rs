//! `--running`: the explanation of a toron that runs, by its admin API.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde_json::json;

use super::{Asked, Explanation};
use crate::args::ExplainArgs;
use crate::policy::settings::Settings;

/// How long a toron that runs may take for each step.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest answer that is read.
const ANSWER_MOST: u64 = 16 << 20;

/// Asks. What the command line leaves out comes from `settings`, those of the files.
pub fn ask(
    args: &ExplainArgs,
    asked: &Asked,
    settings: Option<&Settings>,
) -> Result<Explanation, String> {
    let address = match &args.admin {
        Some(url) => resolve(url)?,
        None => address_in(settings)?,
    };
    let key = args
        .key
        .clone()
        .or_else(|| std::env::var("TORON_ADMIN_KEY").ok());
    let key = key.or_else(|| settings.and_then(|settings| settings.admin.key.clone()));
    let Some(key) = key else {
        return Err("the admin API needs a key (--key, TORON_ADMIN_KEY or admin.key)".to_owned());
    };
    let question = json!({
        "method": asked.method,
        "url": asked.url,
        "header": asked.fields(),
        "from": asked.from.to_string(),
    });
    let answer = exchange(address, &key, &question.to_string())
        .map_err(|error| format!("no answer from the admin API at {address}: {error}"))?;
    read(address, &answer)
}

/// Host and port of a URL such as `http://127.0.0.1:9901`.
fn resolve(url: &str) -> Result<SocketAddr, String> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let authority = rest.trim_end_matches('/');
    let has_port = authority
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let authority = match has_port {
        true => authority.to_owned(),
        false => format!("{authority}:80"),
    };
    let found = authority.to_socket_addrs().map(|mut all| all.next());
    match found {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(format!("--admin: \"{url}\" has no address")),
        Err(error) => Err(format!(
            "--admin: \"{url}\": {error} (allowed: http://127.0.0.1:9901)"
        )),
    }
}

/// Where the toron of these files listens for its operators.
fn address_in(settings: Option<&Settings>) -> Result<SocketAddr, String> {
    let ways = "name it with --admin http://127.0.0.1:8080";
    let Some(settings) = settings else {
        return Err(format!("the files do not say where toron listens: {ways}"));
    };
    let listens = settings.admin.listen.or(settings.listen.first().copied());
    let mut address = listens
        .filter(|address| address.port() != 0)
        .ok_or_else(|| format!("the files leave the port of toron open: {ways}"))?;
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(address)
}

fn exchange(address: SocketAddr, key: &str, question: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST /internal/api/explain HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        question.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(question.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MOST).read_to_end(&mut answer)?;
    Ok(answer)
}

/// The explanation in an answer that ends with its connection.
fn read(address: SocketAddr, answer: &[u8]) -> Result<Explanation, String> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).unwrap_or_default();
    match (status, serde_json::from_str(body)) {
        ("200", Ok(explanation)) => Ok(explanation),
        ("200", Err(error)) => Err(format!("{address} answers something else: {error}")),
        ("401", _) => Err(format!("{address} does not know this admin key")),
        ("403", _) if body.contains("is blocked") => Err(format!(
            "{address} has blocked the address of this command, its admin API included (wait for the \
             end of the block, or ask from another; admin.listen and firewall.allow keep operators out \
             of it)"
        )),
        ("404", _) => Err(format!(
            "{address} has no admin API (no admin.key, or admin.listen is another address)"
        )),
        _ => {
            let first = head.lines().next().unwrap_or_default();
            Err(format!("{address} answers {first:?}: {body}"))
        }
    }
}
