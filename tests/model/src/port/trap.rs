//! Notices that an InfiniBand port sends to its subnet manager by itself (traps; IBTA vol. 1, 14.2.5.1).
//!
//! Each is sent once: repeating one until it is confirmed is left out.

use crate::bus::io::Io;
use crate::device::Device;
use crate::port::lid::LocalDestination;
use crate::port::vport::Vport;
use crate::roce::transport::SMI_QPN;
use crate::subnet::datagram::{
    ATTRIBUTE, CLASS, CLASS_VERSION, DATA, Datagram, Fields, M_KEY, METHOD, MODIFIER, attribute,
    class, method,
};
use crate::subnet::port::DEFAULT_PKEY;
use bareverbs_firmware_cmds::values::PortState;

/// Traps by number.
const LOCAL_CHANGES: u16 = 144;
const BAD_M_KEY: u16 = 256;
/// Types of generic notices.
const GENERIC: u8 = 0x80;
const SECURITY: u8 = 2;
const INFORMATIONAL: u8 = 4;
/// Producer type of the notices: a channel adapter.
const CHANNEL_ADAPTER: [u8; 3] = [0, 0, 1];
const NODE_DESCRIPTION_CHANGED: u16 = 1;
/// Where a notice's details begin.
const DETAILS: usize = 10;

impl Device {
    /// The node has another name, or the port other capabilities.
    pub(crate) fn trap_of_changes(&mut self, io: &mut Io<'_>, name: bool) {
        let flags = if name { NODE_DESCRIPTION_CHANGED } else { 0 };
        let details = |vport: &Vport, fields: &mut Fields<'_>| {
            fields
                .put(2, &vport.subnet.lid.to_be_bytes())
                .put(6, &vport.cap_mask1.to_be_bytes())
                .put(10, &flags.to_be_bytes());
        };
        self.trap(io, LOCAL_CHANGES, INFORMATIONAL, details);
    }

    /// A request had the wrong M_Key; it came from this identifier.
    pub(crate) fn trap_of_key(&mut self, io: &mut Io<'_>, asked: &Datagram, from: u16) {
        let details = |_: &Vport, fields: &mut Fields<'_>| {
            fields
                .put(2, &from.to_be_bytes())
                .byte(6, asked[METHOD])
                .put(8, &asked[ATTRIBUTE..ATTRIBUTE + 2])
                .put(10, &asked[MODIFIER..MODIFIER + 4])
                .put(14, &asked[M_KEY..M_KEY + 8]);
        };
        self.trap(io, BAD_M_KEY, SECURITY, details);
    }

    fn trap(
        &mut self,
        io: &mut Io<'_>,
        number: u16,
        kind: u8,
        details: impl FnOnce(&Vport, &mut Fields<'_>),
    ) {
        let vport = &mut self.vport;
        let active = vport.port_state() == PortState::Active;
        if !vport.managed || !active || vport.subnet.sm_lid == 0 {
            return;
        }
        vport.traps += 1;
        let mut datagram: Datagram = [0; 256];
        datagram[0] = 1;
        datagram[CLASS] = class::SUBNET_LID_ROUTED;
        datagram[CLASS_VERSION] = 1;
        datagram[METHOD] = method::TRAP;
        datagram[8..16].copy_from_slice(&vport.traps.to_be_bytes());
        datagram[ATTRIBUTE..ATTRIBUTE + 2].copy_from_slice(&attribute::NOTICE.to_be_bytes());
        let (notice, rest) = datagram[DATA..].split_at_mut(DETAILS);
        Fields(notice)
            .byte(0, GENERIC | kind)
            .put(1, &CHANNEL_ADAPTER)
            .put(4, &number.to_be_bytes())
            .put(6, &vport.subnet.lid.to_be_bytes());
        details(vport, &mut Fields(rest));
        let to = LocalDestination {
            lid: vport.subnet.sm_lid,
            path_bits: 0,
            service_level: vport.subnet.sm_level,
            gid: None,
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 0,
        };
        let path = self.local_path(&to);
        let keys = (DEFAULT_PKEY, 0);
        self.send_datagram(io, path, (SMI_QPN, SMI_QPN), keys, &datagram);
    }
}
