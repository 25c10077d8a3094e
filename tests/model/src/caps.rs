//! Capabilities: what is, what could be, and what the driver asked for.

use crate::config::Config;
use crate::syndrome::Syndrome;
use bareverbs_firmware_cmds::caps::{
    AtomicCaps, DeviceMemCap, EthernetOffloadCaps, FlowTableNicCap, HcaCap, HcaCap2, RoceCap,
};
use bareverbs_firmware_cmds::layout::{self, Descriptor, Kind, Layout};
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode};

/// The capability images.
#[derive(Debug, Clone)]
pub(crate) struct Caps {
    pub(crate) general: HcaCap,
    general_max: HcaCap,
    pub(crate) general_2: HcaCap2,
    pub(crate) roce: RoceCap,
    roce_max: RoceCap,
    pub(crate) atomic: AtomicCaps,
    pub(crate) ethernet: EthernetOffloadCaps,
    pub(crate) flow_table: FlowTableNicCap,
    pub(crate) device_memory: DeviceMemCap,
}

impl Caps {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            general: config.general,
            general_max: config.general_max,
            general_2: config.general_2,
            roce: config.roce,
            roce_max: config.roce_max,
            atomic: config.atomic,
            ethernet: config.ethernet,
            flow_table: config.flow_table,
            device_memory: config.device_memory,
        }
    }

    /// The image of a group; `None` if the device has no such group.
    pub(crate) fn image(&self, group: CapabilityGroup, mode: CapabilityMode) -> Option<&[u8]> {
        Some(match (group, mode) {
            (CapabilityGroup::General, CapabilityMode::Current) => &self.general.0,
            (CapabilityGroup::General, CapabilityMode::Max) => &self.general_max.0,
            (CapabilityGroup::General2, _) if self.general.hca_cap_2() => &self.general_2.0,
            (CapabilityGroup::EthernetOffloads, _) if self.general.eth_net_offloads() => {
                &self.ethernet.0
            }
            (CapabilityGroup::Atomic, _) if self.general.atomic() => &self.atomic.0,
            (CapabilityGroup::Roce, CapabilityMode::Current) if self.general.roce() => &self.roce.0,
            (CapabilityGroup::Roce, CapabilityMode::Max) if self.general.roce() => &self.roce_max.0,
            (CapabilityGroup::DeviceMemory, _) if self.general.device_memory() => {
                &self.device_memory.0
            }
            // Nothing of it: the device paces no packets.
            (CapabilityGroup::Qos, _) if self.general.qos() => &[0; 0x100],
            (CapabilityGroup::FlowTable, _) if self.general.nic_flow_table() => &self.flow_table.0,
            _ => return None,
        })
    }

    /// Takes over what the driver asks for.
    pub(crate) fn set(&mut self, group: CapabilityGroup, wanted: &[u8]) -> Result<(), Syndrome> {
        match group {
            CapabilityGroup::General => {
                let mut cap = self.general;
                merge(HcaCap::DESCRIPTOR, &mut cap.0, &self.general_max.0, wanted)?;
                self.general = cap;
            }
            CapabilityGroup::Roce if self.general.roce() => {
                let mut cap = self.roce;
                merge(RoceCap::DESCRIPTOR, &mut cap.0, &self.roce_max.0, wanted)?;
                self.roce = cap;
            }
            CapabilityGroup::Atomic if self.general.atomic() => {
                // Drivers send this group with nothing in it but the one field that can be set.
                let mut asked = AtomicCaps::ZERO;
                let len = asked.0.len().min(wanted.len());
                asked.0[..len].copy_from_slice(&wanted[..len]);
                let mode = asked.atomic_req_8B_endianness_mode();
                if mode > u8::from(self.atomic.supported_atomic_req_8B_endianness_mode_1()) {
                    return Err(Syndrome::CapBeyondMax);
                }
                self.atomic.set_atomic_req_8B_endianness_mode(mode);
            }
            _ => return Err(Syndrome::CapReadOnly),
        }
        Ok(())
    }
}

/// Sets every field to what is wanted, if that is what it is already or not beyond the maximum.
fn merge(
    of: &Descriptor,
    current: &mut [u8; 0x100],
    max: &[u8; 0x100],
    wanted: &[u8],
) -> Result<(), Syndrome> {
    let wanted = wanted.get(..0x100).ok_or(Syndrome::CapInputShort)?;
    for field in of.fields {
        if !matches!(field.kind, Kind::Bits) {
            continue;
        }
        let asked = layout::get(wanted, field.offset, field.width);
        if asked == layout::get(current, field.offset, field.width) {
            continue;
        }
        if asked > layout::get(max, field.offset, field.width) {
            log::warn!(
                "SET_HCA_CAP: {}.{} = {asked:#x} is beyond the maximum",
                of.name,
                field.name
            );
            return Err(Syndrome::CapBeyondMax);
        }
        layout::set(current, field.offset, field.width, asked);
    }
    Ok(())
}
