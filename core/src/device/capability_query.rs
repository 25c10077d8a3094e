//! Queries of the device's capabilities.

use bareverbs_firmware_cmds::hca::QueryAdapterIn;
use bareverbs_firmware_cmds::mkey::{QuerySpecialContextsIn, QuerySpecialContextsOut};

use crate::device::Device;
use crate::device::capabilities::Adapter;
use crate::platform::Platform;
use crate::types::error::CommandError;

impl<P: Platform> Device<'_, P> {
    /// Asks which board this is. Nothing in the driver depends on it, so bring-up does not ask.
    pub fn query_adapter(&self) -> Result<Adapter, CommandError> {
        let answer = self.execute(&QueryAdapterIn::new())?;
        let adapter = answer.query_adapter_struct();
        Ok(Adapter {
            ieee_vendor_id: adapter.ieee_vendor_id(),
            board_id: *adapter.vsd_contd_psid(),
        })
    }

    /// Asks for the keys with a special meaning: the reserved lkey (memory by device address, in privileged QPs), the
    /// null key, the key for dumping and filling.
    pub fn query_special_contexts(&self) -> Result<QuerySpecialContextsOut, CommandError> {
        self.execute(&QuerySpecialContextsIn::new())
    }
}
