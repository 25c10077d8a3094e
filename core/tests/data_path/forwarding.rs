//! Completions of a broken device at either side of a lane that forwards: nothing goes out but frames that came into buffers
//! that were the device's, each once, and the lane goes on or says why not.

use std::sync::{Arc, Mutex};

use bareverbs_core::{EthernetDomain, ForwardError, ForwardInit, Forwarder, Pd};
use bareverbs_firmware_cmds::caps::{EthernetOffloadCaps, FlowTableNicCap};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::rq::CreateRqIn;
use bareverbs_firmware_cmds::sq::CreateSqIn;
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode};
use bareverbs_firmware_cmds::vport::NicVportContext;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::rig::{self, Memory, Rig, cqe};
use crate::support::Fake;
use crate::support::firmware::{Action, Posted};

pub(crate) const FRAMES: u32 = 64;
pub(crate) const BURST: u32 = bareverbs_core::ethernet::BURST as u32;

/// CQ and user index of the receive queue; CQ, user index, number and ring of the send queue.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Queues {
    pub(crate) receive: (u32, u32),
    pub(crate) send: (u32, u32),
    pub(crate) sqn: u32,
    pub(crate) ring: u64,
}

fn of_port(posted: &Posted) -> Option<Action> {
    let mut output = vec![0; posted.output_len.max(16)];
    let mut put = |image: &[u8]| output[16..][..image.len()].copy_from_slice(image);
    let is_of = |group: CapabilityGroup| {
        posted.is(Opcode::QueryHcaCap) && posted.op_mod == group.query(CapabilityMode::Current)
    };
    if posted.is(Opcode::QueryNicVportContext) {
        let mut context = NicVportContext::new_zeroed();
        context.set_permanent_address(0x0200_0000_0007);
        put(context.as_bytes());
    } else if is_of(CapabilityGroup::EthernetOffloads) {
        let mut caps = EthernetOffloadCaps::new_zeroed();
        caps.set_wqe_inline_mode(2);
        put(caps.as_bytes());
    } else if is_of(CapabilityGroup::FlowTable) {
        let mut caps = FlowTableNicCap::new_zeroed();
        caps.flow_table_properties_nic_receive_mut()
            .set_ft_support(true);
        put(caps.as_bytes());
    } else {
        return None;
    }
    Some(Action::Answer(output))
}

fn lane(test: impl FnOnce(&mut Forwarder<'_, &Fake>, &mut Ports<'_>)) {
    domain(|domain, pd, ports| {
        let init = ForwardInit {
            frames: FRAMES,
            addresses: Some([[2; 6], [4; 6]]),
            ..ForwardInit::default()
        };
        let mut forwarder = domain.create_forwarder(pd, (domain, pd), &init).unwrap();
        ports.look();
        test(&mut forwarder, ports);
    });
}

/// Opens a domain that can have lanes, on a device that the test plays.
pub(crate) fn domain(
    test: impl for<'d, 'f> FnOnce(&EthernetDomain<'d, &'f Fake>, &Pd<'d, &'f Fake>, &mut Ports<'_>),
) {
    let fake = rig::fake(0b11);
    {
        let mut inner = fake.lock();
        let inner = &mut *inner;
        for caps in [&mut inner.hca, &mut inner.hca_max] {
            caps.set_eth_net_offloads(true)
                .set_nic_flow_table(true)
                .set_log_max_wq_sz(15);
        }
    }
    let rig = Rig::new(&fake);
    let queues = Arc::new(Mutex::new(Queues::default()));
    let (seen, firmware) = (queues.clone(), rig.clone());
    fake.script(move |posted| {
        let mut queues = seen.lock().unwrap();
        if posted.is(Opcode::CreateRq) {
            let (create, _) = CreateRqIn::read_from_prefix(&posted.input).unwrap();
            queues.receive = (create.ctx().cqn(), create.ctx().user_index());
        } else if posted.is(Opcode::CreateSq) {
            let (create, pages) = CreateSqIn::read_from_prefix(&posted.input).unwrap();
            let wq = create.ctx().wq();
            let page = u64::from_be_bytes(*pages.first_chunk().unwrap());
            queues.ring = page + (u64::from(wq.page_offset()) << 6 << wq.log_wq_pg_sz());
            queues.send = (create.ctx().cqn(), create.ctx().user_index());
            queues.sqn = 0x77;
            let mut output = vec![0; 16];
            output[11] = 0x77;
            return Action::Answer(output);
        }
        of_port(posted).unwrap_or_else(|| firmware.command(posted))
    });
    let mut memory = Memory::new();
    {
        let device = rig::open(&fake, &mut memory, bareverbs_core::Config::DEFAULT);
        {
            let pd = device.alloc_pd().unwrap();
            let domain = device.alloc_ethernet_domain().unwrap();
            let mut ports = Ports {
                fake: &fake,
                rig: &rig,
                seen: &queues,
                queues: Queues::default(),
            };
            test(&domain, &pd, &mut ports);
        }
        device.close().unwrap();
    }
    fake.assert_clean();
}

/// The devices' side.
pub(crate) struct Ports<'a> {
    pub(crate) fake: &'a Fake,
    pub(crate) rig: &'a Rig,
    seen: &'a Mutex<Queues>,
    pub(crate) queues: Queues,
}

impl Ports<'_> {
    /// Notes the queues that were created last.
    pub(crate) fn look(&mut self) {
        self.queues = *self.seen.lock().unwrap();
    }

    /// A frame of this length came into the next buffer, as far as the counter says so; `last` is the completion's last byte
    /// but for the owner bit.
    fn came(&self, counter: u32, length: u32, last: u8) {
        let (cqn, user) = self.queues.receive;
        let mut bytes = cqe(user, 0, 2, counter as u16, 0);
        bytes[0x2c..0x30].copy_from_slice(&length.to_be_bytes());
        bytes[0x3f] = last;
        self.rig.cqe(self.fake, cqn, bytes);
    }

    /// All requests up to this one went out.
    pub(crate) fn went(&self, counter: u32, opcode: u8) {
        let (cqn, user) = self.queues.send;
        self.rig.cqe(
            self.fake,
            cqn,
            cqe(user, self.queues.sqn, opcode, counter as u16, 0),
        );
    }
}

const FRAME: u8 = 0x20;

/// Bursts of drawn lengths, round all rings many times, with frames between that are too short, or too long to be true.
#[test]
fn frames_that_cannot_go_out_are_dropped_where_they_are() {
    lane(|forwarder, ports| {
        let (mut came, mut sent, mut dropped) = (0_u32, 0_u32, 0_u32);
        for round in 0..400_u32 {
            let burst = 1 + round * 7 % BURST;
            let mut good = 0;
            for nth in 0..burst {
                let bad = (round + nth).is_multiple_of(11);
                let length = match nth % 3 {
                    _ if !bad => 64 + nth,
                    // Nothing would be left behind the header.
                    0 => 14,
                    1 => 0,
                    _ => 1523,
                };
                ports.came(came, length, FRAME | (nth as u8 & 1) << 1);
                came += 1;
                good += u32::from(!bad);
            }
            assert_eq!(forwarder.forward(), Ok(good), "{round}");
            sent += good;
            dropped += burst - good;
            let counters = forwarder.counters();
            assert_eq!(counters.sent, u64::from(sent));
            assert_eq!(counters.dropped, u64::from(dropped));
            if good > 0 {
                ports.went(sent - 1, 0);
            }
        }
        assert_eq!(forwarder.counters().garbage_completions, 0);
    });
}

#[test]
fn completions_of_no_buffer_are_counted_and_cost_nothing() {
    lane(|forwarder, ports| {
        // A buffer that is not the next, another opcode, data in the completion, another queue's.
        ports.came(1, 64, FRAME);
        ports.came(0, 64, 0x10);
        ports.came(0, 64, FRAME);
        assert_eq!(forwarder.forward(), Ok(1));
        assert_eq!(forwarder.counters().garbage_completions, 2);
        ports.queues.receive.1 += 1;
        ports.came(1, 64, FRAME);
        ports.queues.receive.1 -= 1;
        assert_eq!(forwarder.forward(), Ok(0));
        assert_eq!(forwarder.counters().garbage_completions, 3);
        // All other buffers, and then one that is not the device's: it waits to be sent.
        for counter in 1..FRAMES {
            ports.came(counter, 64, FRAME);
        }
        ports.came(FRAMES, 64, FRAME);
        assert_eq!(forwarder.forward(), Ok(BURST));
        assert_eq!(forwarder.forward(), Ok(FRAMES - 1 - BURST));
        assert_eq!(forwarder.forward(), Ok(0));
        assert_eq!(forwarder.counters().garbage_completions, 4);
        assert_eq!(forwarder.outstanding(), FRAMES);
        // What went out names a request that is not there; then the last one.
        ports.went(FRAMES, 0);
        assert_eq!(forwarder.forward(), Ok(0));
        assert_eq!(forwarder.counters().garbage_completions, 5);
        ports.went(FRAMES - 1, 0);
        ports.came(FRAMES, 64, FRAME);
        assert_eq!(forwarder.forward(), Ok(1));
        assert_eq!(forwarder.outstanding(), 1);
    });
}

#[test]
fn a_queue_that_has_stopped_is_an_error_from_then_on() {
    lane(|forwarder, ports| {
        ports.came(0, 64, FRAME);
        assert_eq!(forwarder.forward(), Ok(1));
        ports.went(0, 0xd);
        for _ in 0..2 {
            assert!(matches!(forwarder.forward(), Err(ForwardError::Send(_))));
        }
    });
    lane(|forwarder, ports| {
        ports.came(0, 64, 0xe0);
        assert_eq!(forwarder.forward(), Ok(0));
        assert!(matches!(forwarder.forward(), Err(ForwardError::Receive(_))));
    });
}
