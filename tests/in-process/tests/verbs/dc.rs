//! Dynamic connections: initiators whose work requests each name a target, and targets of many initiators.

use bareverbs_core::firmware_cmds::values::DctState;
use bareverbs_core::{
    Access, AddressHandle, AsyncEvent, Buffer, Cq, CqInit, CreateQpError, DcTarget, Dci, Dct,
    DctError, DctInitAttr, Inline, Mtu, PostError, Qpn, Remote, SendData, SendFlags, SendOp,
    SendWr, Srq, SrqAttr, Wc, WcOpcode, WcStatus,
};
use connectx_model::{Card, Config};

use crate::lab::{ALL, CAP, End, Lab, MS, SIGNALED, bad_cable, got, lab, lab_with, ok, pattern};
use crate::seam::{self, Seam};

const KEY: u64 = 0x0123_4567_89ab_cdef;
const SLOTS: usize = 15;
/// Bytes of a receive, and of each initiator's part of the target's memory.
const PART: usize = 4096;

/// The receive side of the targets on node 1.
pub(crate) struct Receiver<'d> {
    srq: Srq<'d, Seam>,
    pub(crate) cq: Cq<'d, Seam>,
    buffer: Buffer<'d, Seam>,
}

pub(crate) fn receiver<'d>(lab: &Lab<'d>) -> Receiver<'d> {
    receiver_with(lab, CqInit::new(127))
}

/// One with a CQ of this kind.
pub(crate) fn receiver_with<'d>(lab: &Lab<'d>, cq: CqInit) -> Receiver<'d> {
    let side = &lab.sides[1];
    let cq = side.device.create_cq(cq).unwrap();
    let mut sizes = SrqAttr {
        max_wr: SLOTS as u32,
        max_sge: 1,
        srq_limit: 0,
    };
    let srq = side.pd.create_srq(&mut sizes).unwrap();
    let buffer = side.pd.alloc_buffer(1 << 17, lab.access(1)).unwrap();
    Receiver { srq, cq, buffer }
}

pub(crate) fn dct_attr<'a, 'd>(to: &'a Receiver<'d>, access: Access) -> DctInitAttr<'a, 'd, Seam> {
    DctInitAttr {
        cq: &to.cq,
        srq: &to.srq,
        access_key: KEY,
        access,
        path_mtu: Mtu::B1024,
        sgid_index: 0,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        sl: 0,
        min_rnr_timer: 1,
        pkey_index: 0,
    }
}

pub(crate) fn target<'d>(lab: &Lab<'d>, to: &Receiver<'d>) -> Dct<'d, Seam> {
    let mut access = ALL;
    let atomics = lab.sides[1].device.capabilities().has_dc_atomics();
    access.set(Access::REMOTE_ATOMIC, atomics);
    let dct = lab.sides[1].pd.create_dct(&dct_attr(to, access)).unwrap();
    assert_eq!(dct.access_key(), KEY);
    dct
}

pub(crate) fn initiator<'d>(lab: &Lab<'d>) -> End<'d, Dci> {
    let mut end = lab.end::<Dci>(0, CAP);
    // It receives nothing.
    assert_eq!(end.qp.cap().max_recv_wr, 0);
    let attr = lab.attr(0, Qpn::from_low_bits(0));
    end.qp.activate(&attr).unwrap();
    end
}

pub(crate) fn handle(lab: &Lab<'_>) -> AddressHandle {
    let attr = lab.attr(0, Qpn::from_low_bits(0)).ah_attr;
    lab.sides[0].device.create_ah(&attr).unwrap()
}

pub(crate) fn to<'a>(ah: &'a AddressHandle, dct: &Dct<'_, Seam>) -> DcTarget<'a> {
    DcTarget {
        ah,
        dctn: dct.dctn(),
        access_key: KEY,
    }
}

impl Receiver<'_> {
    pub(crate) fn receive(&mut self, slot: u64) {
        let sge = self.buffer.sge(slot as usize * PART, PART).unwrap();
        self.srq.post(slot, &[sge]).unwrap();
    }

    pub(crate) fn remote(&self, at: usize) -> Remote {
        Remote {
            addr: self.buffer.addr() + at as u64,
            rkey: self.buffer.rkey(),
        }
    }

    pub(crate) fn clear(&self, at: usize, len: usize) {
        self.buffer.copy_in(at, &vec![0; len]).unwrap();
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.buffer.copy_out(at, &mut data).unwrap();
        data
    }
}

/// A generator of Marsaglia's.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }
}

/// Drawn operations of two initiators on three targets, against byte arrays.
fn traffic(lab: &Lab<'_>, seed: u64, rounds: usize) {
    let mut all = receiver(lab);
    let targets = [target(lab, &all), target(lab, &all), target(lab, &all)];
    let mut ends = [initiator(lab), initiator(lab)];
    let ah = handle(lab);
    let memory = SLOTS * PART;
    // What the target's memory holds behind the receives, by initiator.
    let mut expected = [vec![0; PART], vec![0; PART]];
    let mut draw = Draw(seed);
    for round in 0..rounds as u64 {
        let (who, which) = (draw.below(2), draw.below(3));
        let (at, len) = (draw.below(PART / 2), 1 + draw.below(PART / 2));
        let end = &mut ends[who];
        let dct = to(&ah, &targets[which]);
        let address = dct.prepare();
        let own = round as usize % 8 * PART;
        let data = pattern(len, round);
        end.buffer.copy_in(own, &data).unwrap();
        let sge = end.sge(own, len);
        let base = memory + who * PART;
        let slot = round % SLOTS as u64;
        let mut batch = end.qp.send_queue().batch();
        match draw.below(4) {
            0 => {
                all.receive(slot);
                batch
                    .send_imm(round, SIGNALED, dct, round as u32, sge)
                    .unwrap();
                drop(batch);
                ok(lab.wait(&mut end.cq), round, WcOpcode::Send);
                let wc = got(lab.wait(&mut all.cq), slot, WcOpcode::Recv);
                assert_eq!(wc.qp_num, dct.dctn);
                assert_eq!((wc.byte_len as usize, wc.imm_data), (len, round as u32));
                assert!(all.bytes(slot as usize * PART, len) == data);
            }
            1 => {
                let remote = all.remote(base + at);
                batch.write(round, SIGNALED, dct, remote, sge).unwrap();
                drop(batch);
                ok(lab.wait(&mut end.cq), round, WcOpcode::RdmaWrite);
                expected[who][at..at + len].copy_from_slice(&data);
            }
            2 => {
                let remote = all.remote(base + at);
                batch
                    .read(round, SIGNALED, &address, remote, &[sge])
                    .unwrap();
                drop(batch);
                ok(lab.wait(&mut end.cq), round, WcOpcode::RdmaRead);
                let mut read = vec![0; len];
                end.buffer.copy_out(own, &mut read).unwrap();
                assert!(read == expected[who][at..at + len]);
            }
            _ => {
                let short = len.min(100);
                all.receive(slot);
                batch
                    .send(round, SIGNALED, &address, Inline(&data[..short]))
                    .unwrap();
                drop(batch);
                ok(lab.wait(&mut end.cq), round, WcOpcode::Send);
                let wc = got(lab.wait(&mut all.cq), slot, WcOpcode::Recv);
                assert_eq!(wc.byte_len as usize, short);
                assert!(all.bytes(slot as usize * PART, short) == data[..short]);
            }
        }
    }
    for (who, expected) in expected.iter().enumerate() {
        assert!(all.bytes(memory + who * PART, PART) == *expected, "{who}");
    }
}

#[test]
fn drawn_traffic() {
    lab(|lab| traffic(lab, 0x1234_5678, 400));
}

#[test]
fn drawn_traffic_over_a_bad_cable() {
    bad_cable(7, |lab| traffic(lab, 0x8765_4321, 150));
}

/// Every work request in one doorbell, for changing targets: the order of completions is that of posting.
#[test]
fn a_batch_for_several_targets() {
    lab(|lab| {
        let mut all = receiver(lab);
        let targets = [target(lab, &all), target(lab, &all)];
        let mut end = initiator(lab);
        let ah = handle(lab);
        for slot in 0..12 {
            all.receive(slot);
        }
        let mut batch = end.qp.send_queue().batch();
        for id in 0..12u64 {
            let dct = to(&ah, &targets[id as usize % 2]);
            batch
                .send(id, SIGNALED, dct, Inline(&[id as u8; 40]))
                .unwrap();
        }
        drop(batch);
        for id in 0..12 {
            ok(lab.wait(&mut end.cq), id, WcOpcode::Send);
            let wc = got(lab.wait(&mut all.cq), id, WcOpcode::Recv);
            assert_eq!(wc.qp_num, targets[id as usize % 2].dctn());
            assert_eq!(all.bytes(id as usize * PART, 40), [id as u8; 40]);
        }
    });
}

#[track_caller]
fn failed(wc: Wc, wr_id: u64, status: WcStatus) {
    assert_eq!((wc.wr_id, wc.status), (wr_id, status), "{wc:?}");
}

#[test]
fn a_wrong_key_ends_the_initiator() {
    lab(|lab| {
        let mut all = receiver(lab);
        let dct = target(lab, &all);
        let ah = handle(lab);
        all.receive(3);
        let mut end = initiator(lab);
        let wrong = DcTarget {
            access_key: KEY + 1,
            ..to(&ah, &dct)
        };
        let data = Inline(&[1; 20]);
        let mut batch = end.qp.send_queue().batch();
        batch.send(1, SIGNALED, wrong, data).unwrap();
        batch
            .send(2, SendFlags::empty(), to(&ah, &dct), data)
            .unwrap();
        drop(batch);
        failed(lab.wait(&mut end.cq), 1, WcStatus::RemAccessErr);
        failed(lab.wait(&mut end.cq), 2, WcStatus::WrFlushErr);
        assert_eq!(end.qp.state(), bareverbs_core::QpState::Err);
        assert_eq!(dct.query().unwrap().1, 1);
        // Others go on.
        let mut other = initiator(lab);
        let mut batch = other.qp.send_queue().batch();
        batch.send(4, SIGNALED, to(&ah, &dct), data).unwrap();
        drop(batch);
        ok(lab.wait(&mut other.cq), 4, WcOpcode::Send);
        ok(lab.wait(&mut all.cq), 3, WcOpcode::Recv);
    });
}

/// The next wrong key after a target was armed is an event, and the one after that is not.
#[test]
fn wrong_keys_are_reported_when_asked_for() {
    lab(|lab| {
        let all = receiver(lab);
        let dct = target(lab, &all);
        let other = target(lab, &all);
        let ah = handle(lab);
        let events = |lab: &Lab<'_>| {
            lab.sides[1].device.poll().unwrap();
            let next = || lab.sides[1].device.next_async_event();
            Vec::from_iter(std::iter::from_fn(next))
        };
        let knock = |lab: &Lab<'_>, dct: &Dct<'_, Seam>| {
            let mut end = initiator(lab);
            let wrong = DcTarget {
                access_key: !KEY,
                ..to(&ah, dct)
            };
            let mut batch = end.qp.send_queue().batch();
            batch.send(1, SIGNALED, wrong, Inline(&[1; 20])).unwrap();
            drop(batch);
            failed(lab.wait(&mut end.cq), 1, WcStatus::RemAccessErr);
        };
        events(lab);
        knock(lab, &dct);
        assert_eq!(events(lab), []);
        dct.arm_key_violation().unwrap();
        knock(lab, &other);
        assert_eq!(events(lab), []);
        let dctn = dct.dctn();
        knock(lab, &dct);
        assert_eq!(events(lab), [AsyncEvent::DctKeyViolation { dctn }]);
        knock(lab, &dct);
        assert_eq!(events(lab), []);
        assert_eq!(dct.query().unwrap().1, 3);
        assert_eq!(other.query().unwrap().1, 1);
    });
}

/// Drawn atomics of two initiators on counters of two targets, against numbers.
#[test]
fn atomics() {
    lab(|lab| {
        assert!(lab.sides[1].device.capabilities().has_dc_atomics());
        let all = receiver(lab);
        let targets = [target(lab, &all), target(lab, &all)];
        let mut ends = [initiator(lab), initiator(lab)];
        let ah = handle(lab);
        let mut counters = [0u64; 4];
        all.buffer.copy_in(0, &[0; 32]).unwrap();
        let mut draw = Draw(0x5eed);
        for round in 0..200u64 {
            let (who, which) = (draw.below(2), draw.below(4));
            let dct = to(&ah, &targets[draw.below(2)]);
            let remote = all.remote(which * 8);
            let value = draw.below(usize::MAX) as u64;
            let old = counters[which];
            let op = match draw.below(3) {
                0 => {
                    counters[which] = old.wrapping_add(value);
                    SendOp::FetchAdd { remote, add: value }
                }
                1 => {
                    counters[which] = value;
                    SendOp::CompareSwap {
                        remote,
                        compare: old,
                        swap: value,
                    }
                }
                _ => SendOp::CompareSwap {
                    remote,
                    compare: !old,
                    swap: value,
                },
            };
            let opcode = match op {
                SendOp::FetchAdd { .. } => WcOpcode::FetchAdd,
                _ => WcOpcode::CompSwap,
            };
            let end = &mut ends[who];
            let sge = end.sge(64, 8);
            let wr = SendWr {
                wr_id: round,
                op,
                flags: SIGNALED,
                data: SendData::Sges(&[sge]),
            };
            end.qp.send_queue().post_dc(dct, &wr).unwrap();
            ok(lab.wait(&mut end.cq), round, opcode);
            let mut found = [0; 8];
            end.buffer.copy_out(64, &mut found).unwrap();
            assert_eq!(u64::from_ne_bytes(found), old, "round {round}");
        }
        let bytes = all.bytes(0, 32);
        for (at, expected) in counters.iter().enumerate() {
            let found = bytes[at * 8..][..8].try_into().unwrap();
            assert_eq!(u64::from_ne_bytes(found), *expected);
        }
        // A target that does not grant them.
        let attr = dct_attr(&all, Access::REMOTE_WRITE);
        let closed = lab.sides[1].pd.create_dct(&attr).unwrap();
        let sge = ends[0].sge(64, 8);
        let wr = SendWr {
            wr_id: 1,
            op: SendOp::FetchAdd {
                remote: all.remote(0),
                add: 1,
            },
            flags: SIGNALED,
            data: SendData::Sges(&[sge]),
        };
        let target = to(&ah, &closed);
        ends[0].qp.send_queue().post_dc(target, &wr).unwrap();
        let wc = lab.wait(&mut ends[0].cq);
        assert!(
            matches!(wc.status, WcStatus::RemInvReqErr | WcStatus::RemAccessErr),
            "{wc:?}"
        );
        assert!(all.bytes(0, 8) == counters[0].to_ne_bytes());
    });
}

#[test]
fn an_empty_srq_makes_initiators_wait() {
    lab(|lab| {
        let mut all = receiver(lab);
        let dct = target(lab, &all);
        let ah = handle(lab);
        let mut end = initiator(lab);
        let mut batch = end.qp.send_queue().batch();
        batch
            .send(1, SIGNALED, to(&ah, &dct), Inline(&[1; 20]))
            .unwrap();
        drop(batch);
        assert_eq!(lab.try_wait(&mut end.cq, 5 * MS), None);
        all.receive(0);
        ok(lab.wait(&mut end.cq), 1, WcOpcode::Send);
        ok(lab.wait(&mut all.cq), 0, WcOpcode::Recv);
    });
}

/// Drivers wait for the event that says that a target has drained (`mlx5_core_destroy_dct`), whatever its state seems to be.
#[test]
fn a_target_has_drained_when_the_event_says_so() {
    let card = |mut card: Config| {
        card.quirks.targets_look_active = true;
        card
    };
    lab_with(card, |lab| {
        let all = receiver(lab);
        let dct = target(lab, &all);
        assert_eq!(dct.query().unwrap().0, Some(DctState::Active));
        dct.destroy().map_err(|(_, error)| error).unwrap();
        drop(target(lab, &all));
    });
}

#[test]
fn a_target_is_destroyed_under_traffic() {
    lab(|lab| {
        let mut all = receiver(lab);
        let dct = target(lab, &all);
        let ah = handle(lab);
        let mut end = initiator(lab);
        for slot in 0..8 {
            all.receive(slot);
        }
        let dctn = dct.dctn();
        let sge = end.sge(0, PART);
        let mut batch = end.qp.send_queue().batch();
        for id in 0..8 {
            batch.send(id, SIGNALED, to(&ah, &dct), sge).unwrap();
        }
        drop(batch);
        dct.destroy().map_err(|(_, error)| error).unwrap();
        // Those that had arrived succeed, and the first one behind them runs into the retry limit.
        let mut status = WcStatus::Success;
        for id in 0..8 {
            let wc = lab.wait(&mut end.cq);
            assert_eq!(wc.wr_id, id);
            match (status, wc.status) {
                (WcStatus::Success, WcStatus::Success | WcStatus::RetryExcErr)
                | (_, WcStatus::WrFlushErr) => {}
                other => panic!("{other:?}"),
            }
            status = wc.status;
        }
        assert_ne!(status, WcStatus::Success);
        // What the CQ still holds of it has no owner.
        assert!(
            lab.try_wait(&mut all.cq, MS)
                .is_none_or(|wc| wc.qp_num == dctn)
        );
    });
}

#[test]
fn what_has_no_target_is_not_posted() {
    lab(|lab| {
        let mut end = initiator(lab);
        let wr = SendWr {
            wr_id: 1,
            op: SendOp::Send,
            data: SendData::Sges(&[]),
            flags: SIGNALED,
        };
        assert_eq!(end.qp.send_queue().post(&wr), Err(PostError::Unsupported));
    });
}

/// A target is reached by its entry of the GID table, which no other address gets while the target is there.
#[test]
fn a_target_reserves_the_index_of_its_gid() {
    lab(|lab| {
        let all = receiver(lab);
        let dct = target(lab, &all);
        let device = lab.sides[1].device;
        let entry = device.port_gid(0).unwrap();
        device.del_gid(0).unwrap();
        assert_eq!(device.free_gid_index(), Some(1));
        drop(dct);
        assert_eq!(device.free_gid_index(), Some(0));
        device.set_gid(0, entry).unwrap();
    });
}

#[test]
fn refusals() {
    lab(|lab| {
        let all = receiver(lab);
        let pd = &lab.sides[1].pd;
        let mut attr = dct_attr(&all, ALL);
        attr.min_rnr_timer = 32;
        assert_eq!(pd.create_dct(&attr).err(), Some(DctError::RnrTimer(32)));
        let mut attr = dct_attr(&all, Access::REMOTE_WRITE);
        attr.sgid_index = 200;
        assert!(matches!(
            pd.create_dct(&attr).err(),
            Some(DctError::Path(_))
        ));
        let other = &lab.sides[0].pd;
        let attr = dct_attr(&all, Access::REMOTE_WRITE);
        let error = DctError::Create(CreateQpError::OtherDevice);
        assert_eq!(other.create_dct(&attr).err(), Some(error));
    });
}

/// A card with them has both ends, a card without refuses both, by name.
#[test]
fn cards() {
    let check = |lab: &Lab<'_>| {
        let offered = lab.sides[0].device.capabilities().has_dc();
        if offered {
            traffic(lab, 99, 20);
            return;
        }
        let all = receiver(lab);
        let attr = dct_attr(&all, Access::REMOTE_WRITE);
        let error = DctError::Create(CreateQpError::NoDc);
        assert_eq!(lab.sides[1].pd.create_dct(&attr).err(), Some(error));
        let mut init = bareverbs_core::QpInitAttr::new(&all.cq, 4);
        let made = lab.sides[1].pd.create_qp::<Dci>(&mut init);
        assert_eq!(made.err(), Some(CreateQpError::NoDc));
    };
    let offer = std::cell::Cell::new(0);
    for &card in Card::ALL {
        let unit = std::cell::Cell::new(0);
        lab_with(
            |_| {
                unit.set(unit.get() + 1);
                let config = seam::card(Config::card(card, unit.get()));
                offer.set(offer.get() + usize::from(config.general_max.dct()));
                config
            },
            check,
        );
    }
    assert!(offer.get() > 0);
    lab_with(
        |mut card| {
            card.general_max.set_dct(false);
            card
        },
        check,
    );
}
