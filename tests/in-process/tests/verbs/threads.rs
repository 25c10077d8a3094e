//! Handles on threads of their own, over the threaded device.

use bareverbs_core::{CqInit, Inline, QpAttr, QpAttrMask, QpInitAttr, QpState, Rc, WcStatus};

use crate::lab::{self, CAP, End, SIGNALED, SILENT};
use crate::seam;

/// The two halves of a QP and its CQ on three threads, over the threaded device.
#[test]
fn halves_on_threads() {
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;
    let world = Builder::new()
        .function(seam::card(Card::new(1)))
        .function(seam::card(Card::new(2)))
        .threaded();
    lab::run(&world, |lab| {
        const COUNT: u64 = 2000;
        // The thread that posts may be the only one that runs for a while, and its doorbells move its card's clock, not
        // the other's: without a timeout no acknowledgement is late.
        let [mut a, mut b] = lab.pair_with::<Rc>(CAP, &|attr| attr.timeout = 0);
        let (device, remote) = (lab.sides[0].device, b.remote(0));
        let sge = a.sge(0, 64);
        let End { qp, cq, .. } = &mut a;
        std::thread::scope(|scope| {
            let sends = qp.send_queue();
            let poller = scope.spawn(move || {
                let mut next = 0;
                while next < COUNT {
                    let mut batch = cq.batch().expect("the CQ works");
                    while let Some(completion) = batch.next() {
                        assert_eq!(
                            (completion.wr_id(), completion.status()),
                            (next, WcStatus::Success)
                        );
                        next += 1;
                    }
                    drop(batch);
                    bareverbs_core::Platform::relax(device.platform());
                }
            });
            scope.spawn(move || {
                let mut posted = 0;
                while posted < COUNT {
                    match sends.batch().write(posted, SIGNALED, remote, sge) {
                        Ok(()) => posted += 1,
                        Err(bareverbs_core::PostError::QueueFull { .. }) => {
                            assert!(!poller.is_finished(), "not all was posted");
                            std::thread::yield_now();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        });
        b.receive(0, 0, 64);
    });
}

/// QPs are destroyed on one thread while another polls their CQ: what is delivered is theirs, nothing is garbage, and
/// every slot and block comes back.
#[test]
fn destroying_while_another_thread_polls() {
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = Builder::new()
        .function(seam::card(Card::new(1)))
        .function(seam::card(Card::new(2)))
        .threaded();
    lab::run(&world, |lab| {
        let side = &lab.sides[0];
        let mut cq = side.device.create_cq(CqInit::new(1023)).unwrap();
        for _ in 0..10 {
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: None,
                cap: CAP,
                sq_sig_all: true,
            };
            let mut qps: Vec<_> = (0..16)
                .map(|_| side.pd.create_qp::<Rc>(&mut init).expect("QP"))
                .collect();
            let numbers: Vec<_> = qps.iter().map(|qp| qp.qpn()).collect();
            for qp in &mut qps {
                let row = bareverbs_core::qp::transition(
                    bareverbs_core::QpKind::Rc,
                    QpState::Reset,
                    QpState::Init,
                );
                let attr = QpAttr {
                    qp_state: QpState::Init,
                    ..QpAttr::DEFAULT
                };
                qp.modify(&attr, row.unwrap().required | QpAttrMask::STATE)
                    .unwrap();
                let error = QpAttr {
                    qp_state: QpState::Err,
                    ..QpAttr::DEFAULT
                };
                qp.modify(&error, QpAttrMask::STATE).unwrap();
            }
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let (done, cq, numbers) = (&done, &mut cq, &numbers);
                scope.spawn(move || {
                    loop {
                        // The last poll takes what is left: a CQ that is not polled overflows.
                        let last = done.load(Ordering::Acquire);
                        while let Some(completion) = cq.poll().expect("the CQ works") {
                            assert_eq!(completion.status(), WcStatus::WrFlushErr);
                            assert_eq!(numbers[completion.wr_id() as usize], completion.qp_num());
                        }
                        if last {
                            break;
                        }
                    }
                });
                for (id, mut qp) in qps.into_iter().enumerate() {
                    for _ in 0..8 {
                        qp.recv_queue().post(id as u64, &[]).unwrap();
                        qp.send_queue()
                            .batch()
                            .send(id as u64, SILENT, Inline(b"x"))
                            .unwrap();
                    }
                    if id % 2 == 0 {
                        std::thread::yield_now();
                    }
                    drop(qp);
                }
                done.store(true, Ordering::Release);
            });
            assert_eq!(cq.garbage_completions(), 0);
        }
    });
}
