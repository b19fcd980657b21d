//! Lists objects in pages.

use super::client::Client;
use super::error::ClientError;
use super::kind::Kind;
use super::query::{ObjectList, Query};
use super::shared::SharedObject;
use crate::base::cancel::CancellationToken;
use crate::run::error::Chain;

/// Lists all objects that a query selects, in pages if it has a limit. Returns `None` if `stop` is cancelled meanwhile.
///
/// If a page is gone, it lists all objects at once without a limit, as client-go's `ListPager` does: pages could be too slow
/// again. Log lines name the `source`.
pub(super) fn list_all(
    client: &dyn Client,
    kind: &Kind,
    query: &Query,
    source: &str,
    stop: &CancellationToken,
) -> Result<Option<ObjectList<SharedObject>>, ClientError> {
    let mut query = Query { continue_token: None, ..query.clone() };
    let mut items = Vec::new();
    while !stop.is_cancelled() {
        let page = match client.list(kind, &query) {
            Err(error) if error.is_gone() && query.continue_token.is_some() && query.limit.is_some() => {
                let shown = Chain(&error);
                log::info!(source, error:% = shown; "{source}: listing the objects again, without pages: {shown}");
                items.clear();
                query = Query { continue_token: None, limit: None, ..query };
                continue;
            }
            page => page?,
        };
        items.extend(page.items);
        let Some(token) = page.continue_token else { return Ok(Some(ObjectList { items, ..page })) };
        query = query.continue_from(token);
    }
    Ok(None)
}
