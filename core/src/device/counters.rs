//! The device's counters: of its port, of this function's part of it, and of its queue pairs.
//!
//! Counters have the names of the vendor's structures, and are read by name or all in turn, so that a tool shows all
//! without naming each. They are read, never cleared: others may watch them too.

use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use bareverbs_firmware_cmds::counter::{
    AllocQCounterIn, DeallocQCounterIn, QueryQCounterIn, QueryQCounterOut,
};
use bareverbs_firmware_cmds::layout::{Descriptor, Field, Kind, Layout, get};
use bareverbs_firmware_cmds::register::{PortCounterGroup, PpcntReg};
use bareverbs_firmware_cmds::values::RegisterId;
use bareverbs_firmware_cmds::vport::{QueryVportCounterIn, QueryVportCounterOut};
use zerocopy::IntoBytes;

use crate::device::Device;
use crate::platform::Platform;
use crate::types::error::CommandError;
use crate::types::port::PORT;

/// Room for the longest answer.
const LONGEST: usize = size_of::<QueryVportCounterOut>();

/// Counters as they were at one time.
#[derive(Clone, Copy)]
pub struct Counters {
    of: &'static Descriptor,
    bytes: [u8; LONGEST],
}

/// Of [`Counters::iter`]: a counter's name, and in parts of a counter which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// The name is that of the vendor's structure, without `_high` and `_low`.
    pub name: &'static str,
    /// `packets` or `octets`, where both are counted under this name.
    pub unit: Option<&'static str>,
    /// The count. Of 64 bits, in the queue counters 32, after which they start again with 0.
    pub value: u64,
}

impl Counters {
    pub(super) fn new(of: &'static Descriptor, from: &[u8]) -> Self {
        let mut bytes = [0; LONGEST];
        for (to, from) in bytes.iter_mut().zip(from) {
            *to = *from;
        }
        Self { of, bytes }
    }

    /// All of them, in the order of the structure.
    pub fn iter(&self) -> impl Iterator<Item = Counter> + '_ {
        let fields = self.of.fields.iter();
        fields.flat_map(|field| self.counters_of(field).into_iter().flatten())
    }

    /// The counter of this name; packets, where octets are counted too. `None` if it is not of this group.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let mut all = self.iter();
        all.find(|counter| counter.name == name)
            .map(|counter| counter.value)
    }

    /// The counters in a field: the low half of a counter goes with its high half.
    fn counters_of(&self, field: &'static Field) -> [Option<Counter>; 2] {
        let one = |name, value| {
            let counter = Counter {
                name,
                unit: None,
                value,
            };
            [Some(counter), None]
        };
        match field.kind {
            // The head of a command's answer.
            Kind::Bits if matches!(field.name, "status" | "syndrome") => [None, None],
            Kind::Struct(part) => {
                let mut units = part.fields.iter().map(|unit| Counter {
                    name: field.name,
                    unit: Some(unit.name),
                    value: get(&self.bytes, field.offset + unit.offset, unit.width),
                });
                [units.next(), units.next()]
            }
            Kind::Bits => {
                if field.name.ends_with("_low") {
                    return [None, None];
                }
                match field.name.strip_suffix("_high") {
                    Some(name) => one(name, get(&self.bytes, field.offset, 64)),
                    None => one(field.name, get(&self.bytes, field.offset, field.width)),
                }
            }
            Kind::Bytes | Kind::Tail => [None, None],
        }
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_map();
        for Counter { name, unit, value } in self.iter() {
            match unit {
                Some(unit) => all.entry(&format_args!("{name}.{unit}"), &value),
                None => all.entry(&format_args!("{name}"), &value),
            };
        }
        all.finish()
    }
}

impl<P: Platform> Device<'_, P> {
    /// Counters of the port, which all its functions share (PPCNT). `None` if the device does not have them, or not for
    /// this function.
    ///
    /// `priority`, from 0 to 7, is for [`PortCounterGroup::Priority`] only.
    pub fn query_port_counters(
        &self,
        group: PortCounterGroup,
        priority: u8,
    ) -> Result<Option<Counters>, CommandError> {
        let mut query = PpcntReg::ZERO;
        query
            .set_local_port(PORT)
            .set_grp(group.number())
            .set_prio_tc(priority & 7);
        let answer = self.read_register(RegisterId::Ppcnt, query, PpcntReg::as_mut_bytes)?;
        Ok(answer.map(|register| Counters::new(group.descriptor(), register.counter_set())))
    }

    /// Packets and octets of this function's virtual port (QUERY_VPORT_COUNTER): RDMA's under `ib`, others' under `eth`.
    /// `None` if the device does not count them.
    pub fn query_vport_counters(&self) -> Result<Option<Counters>, CommandError> {
        if !self.capabilities().hca.vport_counters() {
            return Ok(None);
        }
        let answer = self.execute(&QueryVportCounterIn::new())?;
        let of = QueryVportCounterOut::DESCRIPTOR;
        Ok(Some(Counters::new(of, answer.as_bytes())))
    }
}

/// A set of counters for queue pairs and Ethernet receive queues: receives without a buffer, packets out of sequence,
/// retransmissions, errors by their kind. Deallocated when dropped, which the firmware refuses while queues count in it.
pub struct QueueCounters<'d, P: Platform> {
    device: &'d Device<'d, P>,
    set: u8,
}

impl<'d, P: Platform> Device<'d, P> {
    /// Makes a set of counters. Queue pairs that go from RESET to INIT from now on count in it, and so do receive queues for
    /// frames that are made from now on, until there is a newer set or this one is dropped. `None` if the device has no such
    /// counters.
    pub fn count_queues(&'d self) -> Result<Option<QueueCounters<'d, P>>, CommandError> {
        if self.capabilities().hca.max_qp_cnt() == 0 {
            return Ok(None);
        }
        let set = self.execute(&AllocQCounterIn::new())?.counter_set_id();
        self.counter_set.store(set, Relaxed);
        Ok(Some(QueueCounters { device: self, set }))
    }
}

impl<P: Platform> Device<'_, P> {
    /// The set that new queues count in; 0 if there is none.
    pub(crate) fn queue_counter_set(&self) -> u8 {
        self.counter_set.load(Relaxed)
    }
}

impl<P: Platform> QueueCounters<'_, P> {
    /// Their values (QUERY_Q_COUNTER).
    pub fn query(&self) -> Result<Counters, CommandError> {
        let mut query = QueryQCounterIn::new();
        query.set_counter_set_id(self.set);
        let answer = self.device.execute(&query)?;
        let of = QueryQCounterOut::DESCRIPTOR;
        Ok(Counters::new(of, answer.as_bytes()))
    }

    /// Messages and frames that have found no receive, modulo 2³²: `out_of_buffer`, which Linux shows as
    /// `rx_out_of_buffer`.
    pub fn out_of_buffer(&self) -> Result<u32, CommandError> {
        let mut query = QueryQCounterIn::new();
        query.set_counter_set_id(self.set);
        Ok(self.device.execute(&query)?.out_of_buffer())
    }
}

impl<P: Platform> Drop for QueueCounters<'_, P> {
    fn drop(&mut self) {
        // A newer set stays in force.
        let _ = self
            .device
            .counter_set
            .compare_exchange(self.set, 0, Relaxed, Relaxed);
        let mut command = DeallocQCounterIn::new();
        command.set_counter_set_id(self.set);
        if let Err(error) = self.device.execute_no_output(&command) {
            log::warn!("counter set {} stays allocated: {error}", self.set);
        }
    }
}

impl<P: Platform> fmt::Debug for QueueCounters<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueCounters")
            .field("set", &self.set)
            .finish_non_exhaustive()
    }
}
