//! The frames that come to the queue: a flow table at the root of what the function receives.
//!
//! The table has three groups, in the order in which they are looked at: destination addresses (the port's own, broadcast,
//! multicast addresses that were joined), all multicast addresses, everything. The latter two have one entry each, which is
//! there only while it is wanted. What no entry takes is dropped.
//!
//! The table stands on the second level if the device has one, so that a [`FlowTable`](super::FlowTable) can be put in front of
//! it.
//!
//! The addresses are written to the port's context as well: for a virtual function the embedded switch decides by it
//! which frames get as far as the table.

use core::alloc::Layout;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Release};

use bareverbs_firmware_cmds::flow::{
    CreateFlowGroupIn, CreateFlowTableIn, DeleteFteIn, DestFormat, DestroyFlowGroupIn,
    DestroyFlowTableIn, FteMatchParam, SetFlowTableRootIn, SetFteIn,
};
use bareverbs_firmware_cmds::values::{AllowedList, FlowDestination, FlowTableType};

use crate::device::dma_buffer::DmaBuffer;
use crate::device::{Device, TailIn};
use crate::ethernet::error::EthernetError;
use crate::ethernet::limits::Limits;
use crate::ethernet::vport;
use crate::platform::{DmaError, Platform};
use crate::types::error::CommandError;
use crate::types::gid::Mac;

/// `table_type`: what the function receives.
pub(super) const NIC_RX: u8 = FlowTableType::NicReceive.number();
/// `match_criteria_enable`: the outer headers of layers 2 to 4.
pub(super) const OUTER_HEADERS: u8 = 1;
/// `action` of an entry: on to its destinations.
pub(super) const FORWARD: u16 = 1 << 2;

const BROADCAST: Mac = [0xff; 6];
/// The bit of an address that distinguishes multicast from unicast.
const MULTICAST_BIT: Mac = [1, 0, 0, 0, 0, 0];
/// Entries for addresses that are not joined: own and broadcast.
const FIXED: u32 = 2;
/// Entries behind those for addresses.
const BEHIND: u32 = 2;

/// The root of receive steering, which one queue or table has at a time, or the place in front of a queue's table; given
/// back when dropped.
pub(super) struct Root<'d, P: Platform> {
    pub(super) device: &'d Device<'d, P>,
    taken: &'d AtomicBool,
}

impl<'d, P: Platform> Root<'d, P> {
    pub(super) fn take(device: &'d Device<'d, P>) -> Result<Self, EthernetError> {
        Self::take_one(device, &device.steering.root)
    }

    /// Takes the place in front of a queue's table.
    pub(super) fn take_front(device: &'d Device<'d, P>) -> Result<Self, EthernetError> {
        Self::take_one(device, &device.steering.front)
    }

    fn take_one(device: &'d Device<'d, P>, taken: &'d AtomicBool) -> Result<Self, EthernetError> {
        if taken.swap(true, Acquire) {
            return Err(EthernetError::Busy);
        }
        Ok(Self { device, taken })
    }
}

impl<P: Platform> Drop for Root<'_, P> {
    fn drop(&mut self) {
        self.taken.store(false, Release);
    }
}

/// Makes a table the root.
pub(super) fn set_root<P: Platform>(
    device: &Device<'_, P>,
    table: u32,
) -> Result<(), CommandError> {
    let mut command = SetFlowTableRootIn::new();
    command.set_table_type(NIC_RX).set_table_id(table);
    device.execute_no_output(&command)
}

/// The table with what is in it. Must go before the TIR.
pub(super) struct Steering<'d, P: Platform> {
    device: &'d Device<'d, P>,
    /// Until the firmware has destroyed it.
    table: Option<u32>,
    /// Those of them that there are, in the order of the module's documentation.
    groups: [Option<u32>; 3],
    tirn: u32,
    /// Multicast addresses that were joined: 16 bits of how often, 48 of the address.
    joined: DmaBuffer<'d, P>,
    limit: u32,
    /// Entries that are set beside those for multicast addresses: own, broadcast, all multicast, everything.
    own: bool,
    broadcast: bool,
    all_multicast: bool,
    promiscuous: bool,
    mac: Mac,
    /// `true` if the port's context was modified.
    context_modified: bool,
    _root: Root<'d, P>,
}

/// An entry's place in the list of joined addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place(u32);

impl<'d, P: Platform> Steering<'d, P> {
    /// Makes the table, with entries for the port's own address and broadcast.
    pub(super) fn create(
        root: Root<'d, P>,
        limits: &Limits,
        tirn: u32,
        mac: Mac,
        max_groups: u32,
    ) -> Result<Self, EthernetError> {
        let device = root.device;
        let available = (1_u32 << limits.log_table).saturating_sub(FIXED + BEHIND);
        let most = available.min(limits.groups);
        if max_groups > most {
            return Err(EthernetError::Size {
                field: "max_groups",
                asked: max_groups.into(),
                limit: most.into(),
            });
        }
        let layout = Layout::from_size_align((max_groups.max(1) as usize) * 8, 64)
            .map_err(|_| EthernetError::Memory(DmaError::OutOfMemory))?;
        let joined = device.alloc_dma(layout).map_err(EthernetError::Memory)?;
        let entries = FIXED + max_groups + BEHIND;
        let mut command = CreateFlowTableIn::new();
        command
            .set_table_type(NIC_RX)
            .flow_table_context_mut()
            .set_level(limits.queue_level)
            .set_log_size(entries.next_power_of_two().ilog2() as u8);
        let table = device.execute(&command)?.table_id();
        // From here on, dropping undoes it.
        let mut steering = Self {
            device,
            table: Some(table),
            groups: [None; 3],
            tirn,
            joined,
            limit: max_groups,
            own: false,
            broadcast: false,
            all_multicast: false,
            promiscuous: false,
            mac,
            context_modified: false,
            _root: root,
        };
        let last = steering.all_multicast_index() - 1;
        steering.groups[0] = Some(steering.create_group(0, last, BROADCAST)?);
        let index = steering.all_multicast_index();
        steering.groups[1] = Some(steering.create_group(index, index, MULTICAST_BIT)?);
        let index = steering.promiscuous_index();
        steering.groups[2] = Some(steering.create_group(index, index, [0; 6])?);
        steering.set_entry(0, 0, mac)?;
        steering.own = true;
        steering.set_entry(1, 0, BROADCAST)?;
        steering.broadcast = true;
        if limits.modify_root {
            set_root(device, table)?;
        }
        steering.write_addresses(AllowedList::CurrentUc, 1)?;
        if limits.queue_level != 0 {
            device.steering.queue.store(table + 1, Release);
        }
        Ok(steering)
    }

    fn all_multicast_index(&self) -> u32 {
        FIXED + self.limit
    }

    fn promiscuous_index(&self) -> u32 {
        FIXED + self.limit + 1
    }

    fn table(&self) -> u32 {
        self.table.unwrap_or(0)
    }

    fn create_group(&self, first: u32, last: u32, mask: Mac) -> Result<u32, CommandError> {
        let mut command = CreateFlowGroupIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_start_flow_index(first)
            .set_end_flow_index(last);
        if mask != [0; 6] {
            command.set_match_criteria_enable(OUTER_HEADERS);
            put_destination(command.match_criteria_mut(), mask);
        }
        Ok(self.device.execute(&command)?.group_id())
    }

    /// Sends frames to `mac` (as far as the group's mask looks at it) to the queue.
    fn set_entry(&self, index: u32, group: usize, mac: Mac) -> Result<(), CommandError> {
        let mut command = SetFteIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_flow_index(index);
        let context = command.flow_context_mut();
        context
            .set_group_id(self.groups[group].unwrap_or(0))
            .set_action(FORWARD)
            .set_destination_list_size(1);
        put_destination(context.match_value_mut(), mac);
        let mut to = DestFormat::ZERO;
        to.set_destination_type(FlowDestination::Tir.number())
            .set_destination_id(self.tirn);
        self.device
            .execute_with(&command, TailIn::Bytes(&to.0), &mut [])
            .map(drop)
    }

    fn delete_entry(&self, index: u32) -> Result<(), CommandError> {
        let mut command = DeleteFteIn::new();
        command
            .set_table_type(NIC_RX)
            .set_table_id(self.table())
            .set_flow_index(index);
        self.device.execute_no_output(&command)
    }

    /// The number of times that the address at a place was joined, and the address.
    fn at(&self, place: Place) -> (u16, Mac) {
        let at = place.0 as usize * 8;
        let [high, low] = [0, 4].map(|half| self.joined.read_be32(at + half).to_be_bytes());
        let users = u16::from_be_bytes([high[0], high[1]]);
        (users, [high[2], high[3], low[0], low[1], low[2], low[3]])
    }

    fn put(&self, place: Place, users: u16, mac: Mac) {
        let [a, b, c, d, e, f] = mac;
        let [u, v] = users.to_be_bytes();
        let entry = u64::from_be_bytes([u, v, a, b, c, d, e, f]);
        self.joined.write_be64(place.0 as usize * 8, entry);
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.limit).map(Place)
    }

    fn find(&self, mac: Mac) -> Option<(Place, u16)> {
        self.places().find_map(|place| match self.at(place) {
            (users, here) if users != 0 && here == mac => Some((place, users)),
            _ => None,
        })
    }

    /// Lets frames to a multicast address in. What is joined twice has to be left twice.
    pub(super) fn join(&mut self, mac: Mac) -> Result<(), EthernetError> {
        if mac[0] & 1 == 0 {
            return Err(EthernetError::NotMulticast { mac });
        }
        // It is there already, and for good.
        if mac == BROADCAST {
            return Ok(());
        }
        let full = EthernetError::GroupsFull { limit: self.limit };
        if let Some((place, users)) = self.find(mac) {
            self.put(place, users.checked_add(1).ok_or(full)?, mac);
            return Ok(());
        }
        let place = self.places().find(|&place| self.at(place).0 == 0);
        let place = place.ok_or(full)?;
        self.set_entry(FIXED + place.0, 0, mac)?;
        self.put(place, 1, mac);
        if let Err(error) = self.write_groups() {
            if self.delete_entry(FIXED + place.0).is_ok() {
                self.put(place, 0, mac);
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// Undoes one [`join`](Self::join).
    pub(super) fn leave(&mut self, mac: Mac) -> Result<(), EthernetError> {
        if mac == BROADCAST {
            return Ok(());
        }
        let (place, users) = self.find(mac).ok_or(EthernetError::NotJoined { mac })?;
        if users == 1 {
            self.delete_entry(FIXED + place.0)?;
        }
        self.put(place, users - 1, mac);
        if users == 1 {
            self.write_groups()?;
        }
        Ok(())
    }

    /// Lets all multicast frames in, or only those that were joined.
    pub(super) fn set_all_multicast(&mut self, wanted: bool) -> Result<(), EthernetError> {
        if wanted == self.all_multicast {
            return Ok(());
        }
        let index = self.all_multicast_index();
        if wanted {
            self.set_entry(index, 1, MULTICAST_BIT)?;
        } else {
            self.delete_entry(index)?;
        }
        self.all_multicast = wanted;
        self.write_promiscuity().map_err(EthernetError::Command)
    }

    /// Lets everything in that comes to the port.
    pub(super) fn set_promiscuous(&mut self, wanted: bool) -> Result<(), EthernetError> {
        if wanted == self.promiscuous {
            return Ok(());
        }
        let index = self.promiscuous_index();
        if wanted {
            self.set_entry(index, 2, [0; 6])?;
        } else {
            self.delete_entry(index)?;
        }
        self.promiscuous = wanted;
        self.write_promiscuity().map_err(EthernetError::Command)
    }

    /// Writes the accepted multicast addresses to the port's context.
    fn write_groups(&mut self) -> Result<(), CommandError> {
        let count = self.places().filter(|&place| self.at(place).0 != 0).count();
        self.write_addresses(AllowedList::CurrentMc, count)
    }

    fn write_addresses(&mut self, kind: AllowedList, count: usize) -> Result<(), CommandError> {
        self.context_modified = true;
        let mut address = |index: usize| match kind {
            AllowedList::CurrentMc => {
                let mut joined = self.places().map(|place| self.at(place));
                let wanted = joined.by_ref().filter(|&(users, _)| users != 0).nth(index);
                wanted.map_or(0, |(_, mac)| vport::number(mac))
            }
            _ => vport::number(self.mac),
        };
        vport::write_addresses(self.device, kind, count, &mut address)
    }

    fn write_promiscuity(&mut self) -> Result<(), CommandError> {
        self.context_modified = true;
        vport::write_promiscuity(self.device, self.all_multicast, self.promiscuous)
    }

    /// Takes everything away, in order; goes on after a refusal, and returns the first one.
    pub(super) fn destroy(&mut self) -> Result<(), CommandError> {
        let Some(table) = self.table else {
            return Ok(());
        };
        self.device.steering.queue.store(0, Release);
        let mut first = Ok(());
        let mut keep_first = |result: Result<(), CommandError>| {
            if first.is_ok() {
                first = result;
            }
        };
        for (set, index) in [
            (self.own, 0),
            (self.broadcast, 1),
            (self.all_multicast, self.all_multicast_index()),
            (self.promiscuous, self.promiscuous_index()),
        ] {
            if set {
                keep_first(self.delete_entry(index));
            }
        }
        for place in self.places() {
            if self.at(place).0 != 0 {
                keep_first(self.delete_entry(FIXED + place.0));
            }
        }
        for group in self.groups.into_iter().flatten() {
            let mut command = DestroyFlowGroupIn::new();
            command
                .set_table_type(NIC_RX)
                .set_table_id(table)
                .set_group_id(group);
            keep_first(self.device.execute_no_output(&command));
        }
        let mut command = DestroyFlowTableIn::new();
        command.set_table_type(NIC_RX).set_table_id(table);
        keep_first(self.device.execute_no_output(&command));
        self.table = None;
        if self.context_modified {
            if self.all_multicast || self.promiscuous {
                self.all_multicast = false;
                self.promiscuous = false;
                keep_first(self.write_promiscuity());
            }
            keep_first(self.write_addresses(AllowedList::CurrentMc, 0));
            // An address that was set for the device is not this queue's to take away.
            if *self.device.chosen_mac.lock() != Some(self.mac) {
                keep_first(self.write_addresses(AllowedList::CurrentUc, 0));
            }
        }
        first
    }
}

impl<P: Platform> Drop for Steering<'_, P> {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            log::warn!("receive steering stays with the device: {error}");
        }
    }
}

/// Sets the destination address of a mask or a value.
fn put_destination(set: &mut FteMatchParam, mac: Mac) {
    let [a, b, c, d, e, f] = mac;
    set.outer_headers_mut()
        .set_dmac_47_16(u32::from_be_bytes([a, b, c, d]))
        .set_dmac_15_0(u16::from_be_bytes([e, f]));
}
