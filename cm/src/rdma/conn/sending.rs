//! Sending MADs: by QP1, or in another partition than its own by a QP for that.

use bareverbs_core::Platform;

use crate::engine::Address;
use crate::mad::MAD_LEN;
use crate::rdma::manager::RdmaCm;
#[cfg(feature = "infiniband")]
use crate::rdma::port::partitions::{PartitionQp, PartitionQps, To};
use crate::rdma::types::error::RdmaError;

impl<P: Platform, R> RdmaCm<'_, '_, P, R> {
    /// Returns `true` if there is a send buffer, whatever the partition. If not, an event comes, or a look is due, when there
    /// is one.
    #[inline]
    pub(crate) fn can_send(&mut self) -> Result<bool, RdmaError> {
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &mut self.partitions {
            partitions.poll()?;
            if !partitions.state.has_buffers {
                return Ok(false);
            }
        }
        self.gsi.can_send()
    }

    /// Sends a MAD in the partition of its path.
    #[inline]
    pub(crate) fn send_mad(
        &mut self,
        to: &Address,
        qpn: u32,
        qkey: u32,
        mad: &[u8; MAD_LEN],
    ) -> Result<(), RdmaError> {
        let path = self.router.ah_attr(to);
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &mut self.partitions
            && !partitions.is_first(to.pkey)
        {
            let path = &path;
            return partitions.send(to.pkey, &To { path, qpn, qkey }, mad);
        }
        self.gsi.send_to(&path, qpn, qkey, mad)
    }

    /// Returns `true` if all that was sent has left.
    pub(crate) fn all_sent(&self) -> bool {
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &self.partitions
            && !partitions.state.is_idle
        {
            return false;
        }
        self.gsi.is_idle()
    }

    /// Takes back the buffers of what was sent.
    pub(crate) fn reap_sent(&mut self) -> Result<(), RdmaError> {
        self.poll_partitions()?;
        self.gsi.reap()
    }

    /// Moves on the QPs of other partitions.
    #[inline]
    pub(crate) fn poll_partitions(&mut self) -> Result<(), RdmaError> {
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &mut self.partitions {
            partitions.poll()?;
        }
        Ok(())
    }

    /// Returns `true` if an answer of the firmware to one of them is to be looked for.
    #[inline]
    pub(crate) fn partitions_wait(&self) -> bool {
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &self.partitions {
            return partitions.state.waits;
        }
        false
    }

    /// The port's table of P_Keys may have changed.
    #[inline]
    pub(crate) fn partitions_changed(&mut self) {
        #[cfg(feature = "infiniband")]
        if let Some(partitions) = &mut self.partitions
            && let Err(error) = partitions.table_changed()
        {
            log::warn!("partitions: {error}");
        }
    }
}

#[cfg(feature = "infiniband")]
impl<'s, 'd, P: Platform, R> RdmaCm<'s, 'd, P, R> {
    /// Lets messages of the CM go out in the partitions of their paths, as Linux's do, with as many QPs as there are slots,
    /// which are created here. Without it they all go in the partition at index 0 of the port's table, of which Linux says
    /// `got different BTH P_Key`.
    ///
    /// A QP serves one partition at a time. With more partitions than QPs, the one that was not needed for longest makes way;
    /// while all have messages on their way, those of another partition are lost, as they could be on the wire, and repeated.
    ///
    /// The device's events have to be passed on ([`handle_async_event`](Self::handle_async_event)): they say that the table
    /// has changed.
    ///
    /// # Errors
    /// [`RdmaError::Unsupported`] if the port is no InfiniBand port, or if the device always sends a QP's own number
    /// (`set_deth_sqpn`); or if it fails.
    #[inline(never)]
    pub fn set_partition_qps(
        &mut self,
        slots: &'s mut [PartitionQp<'d, P>],
    ) -> Result<(), RdmaError> {
        self.partitions = Some(PartitionQps::new(self.hca.device, slots)?);
        Ok(())
    }
}
