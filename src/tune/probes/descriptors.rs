//! Descriptors: of this process, of any process, of all together.

use super::{told, Context};
use crate::tune::row::{Effect, Means, Row};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let soft = cx.machine.limit("Max open files").map(|limit| limit.soft);
    let limit = cx.need("limit nofile", Means::Unit).map(|row| {
        row.evidence(format!(
            "Read for {} (hard limit; the soft one is {}){}",
            match cx.machine.process() {
                Some(pid) => format!("process {pid}"),
                None => "this shell".to_owned(),
            },
            told(soft),
            match cx.machine.process() {
                Some(_) => ".",
                None => "; a service has that of its unit (--pid PID looks at one that runs).",
            }
        ))
        .risk("None: descriptors that are not open cost nothing.")
    });
    let most = cx.need("fs.nr_open", Means::Sysctl).map(|row| {
        row.effect(Effect::Start).risk(
            "None for toron; programs that close all possible descriptors at start take longer.",
        )
    });
    let all = cx.need("fs.file-max", Means::Sysctl).map(|row| {
        row.risk("An open socket takes some KiB of kernel memory; the limit guards against leaks.")
    });
    [limit, most, all].into_iter().flatten().collect()
}
