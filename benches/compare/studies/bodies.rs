//! Rows about bodies.

use super::{
    origin, proxies, start_all, EPOLL, HAPROXY, NGINX, RELAY_EPOLL, RELAY_SPLICE, RELAY_URING,
    URING,
};
use crate::load::{transfer, Transfer};
use crate::peers::{Core, Form, Kind};
use crate::table::{Column, Table};
use crate::Options;

const MIB: u64 = 1024 * 1024;

const fn seconds(key: &'static str, title: &'static str) -> Column {
    Column {
        key,
        title,
        digits: 3,
    }
}

pub(super) fn bulk(options: &Options) -> Result<Table, String> {
    let columns = [
        seconds("up", "1 GiB up, CPU s"),
        seconds("down", "1 GiB down, CPU s"),
        seconds("parallel", "100 × 20 MiB up, CPU s"),
    ];
    let title = "Bodies, proxy on one core, client and origin on the other".to_owned();
    let mut table = Table::new("bulk", title, &columns);
    let origin = origin(Core::Proxy)?;
    let mut kinds = proxies();
    kinds.push((RELAY_SPLICE, Kind::Relay("epoll", "splice")));
    let peers = start_all(&kinds, Core::Proxy, origin.addr)?;
    for _ in 0..options.rounds {
        for (key, how, bytes, parallel) in [
            ("up", Transfer::Up, 1024 * MIB, 1),
            ("down", Transfer::Down, 1024 * MIB, 1),
            ("parallel", Transfer::Up, 20 * MIB, 100),
        ] {
            for peer in &peers {
                let cost = transfer(peer, Core::Load, how, bytes, parallel)?;
                table.add(peer.name, key, cost);
            }
        }
    }
    for column in &columns {
        for name in [URING, EPOLL] {
            let text = format!("{name}: {} against the splicing relay", column.title);
            table.goal(
                &text,
                (name, column.key),
                &[(RELAY_SPLICE, column.key)],
                1.08,
            );
        }
    }
    table.goal(
        "1 GiB up, io_uring, against HAProxy",
        (URING, "up"),
        &[(HAPROXY, "up")],
        1.0,
    );
    Ok(table)
}

pub(super) fn chunked(options: &Options) -> Result<Table, String> {
    let columns = [seconds("cpu", "256 MiB in chunks of 16 KiB, CPU s")];
    let title = "Chunked upload (nginx with proxy_request_buffering off)".to_owned();
    let mut table = Table::new("chunked", title, &columns);
    let origin = origin(Core::Proxy)?;
    let names = [
        ("io_uring", "normalize", "toron, io_uring, normalize"),
        ("io_uring", "passthrough", "toron, io_uring, passthrough"),
        ("epoll", "normalize", "toron, epoll, normalize"),
        ("epoll", "passthrough", "toron, epoll, passthrough"),
    ];
    let mut kinds: Vec<(&'static str, Kind)> = names
        .iter()
        .map(|(engine, chunked, name)| {
            (
                *name,
                Kind::Toron(
                    engine,
                    Form {
                        chunked,
                        ..Form::default()
                    },
                ),
            )
        })
        .collect();
    kinds.push((NGINX, Kind::Nginx));
    kinds.push((HAPROXY, Kind::Haproxy));
    // The floor of what is copied: they do not look for chunks.
    kinds.push((RELAY_URING, Kind::Relay("io_uring", "copy")));
    kinds.push((RELAY_EPOLL, Kind::Relay("epoll", "copy")));
    let peers = start_all(&kinds, Core::Proxy, origin.addr)?;
    for _ in 0..options.rounds {
        for peer in &peers {
            let cost = transfer(peer, Core::Load, Transfer::Chunked, 256 * MIB, 1)?;
            table.add(peer.name, "cpu", cost);
        }
    }
    for (_, _, name) in names {
        table.goal(
            &format!("{name} against nginx"),
            (name, "cpu"),
            &[(NGINX, "cpu")],
            0.6,
        );
    }
    Ok(table)
}
