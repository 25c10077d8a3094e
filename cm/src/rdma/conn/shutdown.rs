//! The end of a manager: the peers are notified before QP1 is destroyed.

use core::time::Duration;

#[cfg(feature = "last-messages")]
use bareverbs_core::Gid;
use bareverbs_core::Platform;

use crate::engine::Address;
#[cfg(feature = "last-messages")]
use crate::engine::LastMessage;
use crate::mad::{GSI_QKEY, GSI_QPN, MAD_LEN};
use crate::rdma::manager::RdmaCm;
#[cfg(feature = "last-messages")]
use crate::rdma::{port::gsi::SENDS, resolver::Resolver};

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
        // Timers do not advance: nothing is repeated.
        self.send_all(start, |manager, mad| {
            let transmit = manager.engine.poll_transmit(start, mad)?;
            Some(transmit.address)
        });
    }

    /// Sends the messages that `next` writes, until it has none, and waits until they have left.
    fn send_all(
        &mut self,
        start: Duration,
        mut next: impl FnMut(&mut Self, &mut [u8; MAD_LEN]) -> Option<Address>,
    ) {
        let mut mad = [0; MAD_LEN];
        loop {
            let now = self.hca.device.platform().now();
            // A failed device sends nothing any more.
            if self.hca.device.poll().is_err() || self.reap_sent().is_err() {
                return;
            }
            while self.gsi.has_buffer() {
                let Some(address) = next(self, &mut mad) else {
                    break;
                };
                let sent = self.send_mad(&address, GSI_QPN, GSI_QKEY, &mad);
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

#[cfg(feature = "last-messages")]
impl<'s, P: Platform, R: Resolver> RdmaCm<'s, '_, P, R> {
    /// Writes down from now on how each connection would end, for a process that sends it when this one is gone: one entry for
    /// each slot of [`Storage::connections`](crate::rdma::Storage). Connections that have none are left out.
    pub fn set_last_messages(&mut self, messages: &'s mut [LastMessage]) {
        self.engine.set_last_messages(messages);
    }

    /// Sends what the manager of a process that is gone wrote down, each message once. The port has the addresses that it had
    /// there: messages from others are left out.
    pub fn send_last_messages(&mut self, messages: &[LastMessage]) {
        let mut left = messages.iter();
        // The time limit is that of a full ring.
        while !left.as_slice().is_empty() {
            let mut some = left.by_ref().take(SENDS);
            let start = self.now();
            self.send_all(start, |manager, mad| {
                some.find_map(|message| manager.at_own_gid(message.write(mad)?))
            });
        }
    }

    /// The address with the index that its GID has at this port.
    fn at_own_gid(&self, address: Address) -> Option<Address> {
        if self.router.is_infiniband() {
            return Some(address);
        }
        let own = Gid(address.local_gid).to_ipv6().to_canonical();
        let link = self.router.gid_index(own, None)?.into();
        Some(Address { link, ..address })
    }
}
