//! `GET /internal/api/discovery`: containers with their route or the reason why they have none
//! (D11), and how it stands with the engine.

use super::{json, Fault, Office};
use crate::control::discovery::report::show;
use crate::server::admin::desk::{Question, Reply};

pub(super) fn answer(office: &Office, _: &Question) -> Result<Reply, Fault> {
    Ok(json(&show(office.shared.discovery.load().as_deref())))
}
