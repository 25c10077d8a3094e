//! The queues of a connection, which both ends create alike.

use bareverbs::cm::rdma::QpInit;
use bareverbs::verbs::Platform;
use bareverbs::verbs::cq::{Cq, CqInit};
use bareverbs_examples::Result;
use bareverbs_node::Cm;

/// A queue pair for one request each way; as in rdma-core's `cmtime`, all have one completion queue, which is not
/// polled.
pub(crate) fn queues<'a, 'd, P: Platform>(cq: &'a Cq<'d, P>) -> QpInit<'a, 'd, P> {
    QpInit {
        send_cq: Some(cq),
        recv_cq: Some(cq),
        ..QpInit::default()
    }
}

/// That completion queue.
pub(crate) fn completions<'d, P: Platform>(cm: &Cm<'_, 'd, P>) -> Result<Cq<'d, P>> {
    Ok(cm.device().create_cq(CqInit::new(1))?)
}
