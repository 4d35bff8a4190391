//! The route of a request.

use crate::http::RequestHead;
use crate::policy::router::Lookup;
use crate::policy::snapshot::Snapshot;

/// Looks a request up by its authority, normalised path, method and fields.
pub(crate) fn lookup<'s>(
    snapshot: &'s Snapshot,
    request: &RequestHead<'_, '_>,
    path: &[u8],
) -> Lookup<'s> {
    let host = request.host.map_or(&b""[..], |host| host.as_bytes());
    snapshot
        .table
        .lookup(host, path, request.method, |name| request.field(name))
}
