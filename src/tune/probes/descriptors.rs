//! Descriptors: of this process, of any process, of all together.

use super::{told, Context};
use crate::tune::row::{Means, Row};

pub(super) fn rows(cx: &Context<'_>) -> Vec<Row> {
    let soft = cx.machine.limit("Max open files").map(|limit| limit.soft);
    let limit = cx.need("limit nofile", Means::Unit).map(|row| {
        row.evidence(format!(
            "Read for this shell (hard limit; the soft one is {}); a service has that of its unit.",
            told(soft)
        ))
        .risk("None: descriptors that are not open cost nothing.")
    });
    let most = cx.need("fs.nr_open", Means::Sysctl).map(|row| {
        row.risk(
            "None for toron; programs that close all possible descriptors at start take longer.",
        )
    });
    let all = cx.need("fs.file-max", Means::Sysctl).map(|row| {
        row.risk("An open socket takes some KiB of kernel memory; the limit guards against leaks.")
    });
    [limit, most, all].into_iter().flatten().collect()
}
