//! The end of a manager: the peers are notified before QP1 is destroyed.

use core::time::Duration;

use bareverbs_core::Platform;

use crate::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use crate::rdma::manager::RdmaCm;

/// Time for the last messages to be sent. They need microseconds, unless the device has stopped.
const LIMIT: Duration = Duration::from_millis(50);

impl<P: Platform, R> RdmaCm<'_, '_, P, R> {
    /// Ends the connections of all ids, with REJ or DREQ as their states ask for, each once, and waits until QP1 has
    /// sent all messages, also those of calls just before the end.
    pub(crate) fn disconnect_all(&mut self) {
        let start = self.hca.device.platform().now();
        for slot in self.ids.iter_mut() {
            if let Some(connection) = slot.conn.id.take() {
                let _ = self.engine.release(start, connection);
            }
        }
        let mut mad = [0; MAD_LEN];
        loop {
            let now = self.hca.device.platform().now();
            // A failed device sends nothing any more.
            if self.hca.device.poll().is_err() || self.reap_sent().is_err() {
                return;
            }
            while self.gsi.has_buffer() {
                // Timers do not advance: nothing is repeated.
                let Some(transmit) = self.engine.poll_transmit(start, &mut mad) else {
                    break;
                };
                let sent = self.send_mad(&transmit.address, GSI_QPN, GSI_QKEY, &mad);
                if sent.is_err() {
                    return;
                }
            }
            if self.all_sent() || self.gsi.has_failed() || now >= start.saturating_add(LIMIT) {
                return;
            }
            self.hca.device.platform().relax();
        }
    }
}
