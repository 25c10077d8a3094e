//! A cable that damages frames, and a card that is gone.

use bareverbs_core::{CqInit, QpAttr, QpAttrMask, QpInitAttr, QpState, Rc, SrqAttr, WcOpcode};
use connectx_model::link::fault::Rates;

use crate::lab::{self, ALL, CAP, MS, SIGNALED, got, ok};

/// Ten per cent of every kind of damage: RC delivers each message once, in order and whole.
#[test]
fn rc_over_a_bad_cable() {
    for seed in 0..40 {
        lab::bad_cable(seed, |lab| {
            let [mut a, mut b] = lab.pair_with::<Rc>(CAP, &|attr| attr.timeout = 6);
            lab.world
                .with_wire(|wire| wire.set_rates(Rates::all(100, MS / 5)));
            let mut state = seed * 2 + 1;
            for id in 0..20u64 {
                state = u64::wrapping_mul(state, 6_364_136_223_846_793_005).wrapping_add(1);
                let len = (state >> 33) as usize % 5000;
                a.fill(0, len, id);
                let (sge, back, remote) = (a.sge(0, len), a.sge(8192, len), b.remote(16_384));
                match state >> 62 {
                    0 | 1 => {
                        b.receive(id, 0, 8192);
                        a.qp.send_queue().batch().send(id, SIGNALED, sge).unwrap();
                        assert_eq!(
                            got(lab.wait(&mut b.cq), id, WcOpcode::Recv).byte_len as usize,
                            len,
                            "seed {seed}"
                        );
                        b.assert_pattern(0, len, id);
                        ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
                    }
                    2 => {
                        a.qp.send_queue()
                            .batch()
                            .write(id, SIGNALED, remote, sge)
                            .unwrap();
                        ok(lab.wait(&mut a.cq), id, WcOpcode::RdmaWrite);
                        b.assert_pattern(16_384, len, id);
                    }
                    _ => {
                        b.fill(16_384, len, id + 1000);
                        a.qp.send_queue()
                            .batch()
                            .read(id, SIGNALED, remote, &[back])
                            .unwrap();
                        ok(lab.wait(&mut a.cq), id, WcOpcode::RdmaRead);
                        a.assert_pattern(8192, len, id + 1000);
                    }
                }
            }
            lab.world.with_wire(|wire| wire.set_rates(Rates::default()));
        });
    }
}

/// The card leaves the bus under traffic: posting and polling can go on, every handle can be dropped, and the
/// device reaches no memory that it should not.
#[test]
fn the_card_vanishes_under_traffic() {
    use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs};
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;
    let world = Builder::new().function(Card::new(1)).stepped();
    let mut resources = Box::new(Resources::<Qps<4>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
    let device =
        Device::open(world.platform(0), Config::DEFAULT, resources.storage()).expect("bring-up");
    {
        let pd = device.alloc_pd().unwrap();
        let mut cq = device.create_cq(CqInit::new(16)).unwrap();
        let mut init = QpInitAttr {
            send_cq: &cq,
            recv_cq: &cq,
            srq: None,
            cap: CAP,
            sq_sig_all: true,
        };
        let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
        let srq = pd
            .create_srq(&mut SrqAttr {
                max_wr: 3,
                max_sge: 1,
                srq_limit: 0,
            })
            .unwrap();
        let buffer = pd.alloc_buffer(64, ALL).unwrap();
        let attr = QpAttr {
            qp_state: QpState::Init,
            port_num: 1,
            ..QpAttr::DEFAULT
        };
        let row = bareverbs_core::qp::transition(
            bareverbs_core::QpKind::Rc,
            QpState::Reset,
            QpState::Init,
        )
        .unwrap();
        qp.modify(&attr, row.required | QpAttrMask::STATE).unwrap();
        world.with_model(0, |model| model.vanish());
        qp.recv_queue()
            .post(1, &[buffer.sge(0, 64).unwrap()])
            .unwrap();
        assert!(cq.poll().unwrap().is_none());
        cq.arm(false);
        let error = QpAttr {
            qp_state: QpState::Err,
            ..QpAttr::DEFAULT
        };
        assert!(qp.modify(&error, QpAttrMask::STATE).is_err());
        assert!(device.alloc_pd().is_err());
        let before = world.now();
        let (qp, _) = qp.destroy().unwrap_err();
        drop((qp, srq, buffer, cq, pd));
        assert!(
            world.now() - before < 10 * MS,
            "nothing waits for a device that is gone"
        );
    }
    assert!(device.close().is_err());
    assert_eq!(world.take_faults(0), []);
}
