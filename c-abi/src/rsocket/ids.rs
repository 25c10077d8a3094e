//! Ids of rsockets at the connection manager.

use bareverbs_node::cm::rdma::CmId;

use crate::process::hca::Hca;

/// Destroys ids.
pub(super) fn destroy(ids: &[(&'static Hca, CmId)]) {
    for (hca, id) in ids {
        hca.registry
            .with(|objects| objects.cm_ids.retain(|_, other| other != id));
        // At the end of the process there is no manager.
        if let Ok(mut manager) = hca.manager()
            && let Err(error) = manager.destroy_id(*id)
        {
            log::debug!("rsocket: {error}");
        }
    }
}
