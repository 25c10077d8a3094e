//! Shared receive queues: how they are created, shared, limited and refilled.

use bareverbs_core::{CqInit, PostError, QpInitAttr, Rc, RecvWr, SrqAttr, SrqError, WcStatus};
use bareverbs_firmware_cmds::event::{Event, EventType, Queue};

use crate::rig::{cap, cqe, to_rts};
use crate::{SGE, poll};

#[test]
fn shared_receives() {
    for issi in [0b01, 0b11] {
        with_device!(issi, |fake, rig, device| {
            let pd = device.alloc_pd().unwrap();
            let mut attr = SrqAttr {
                max_wr: 5,
                max_sge: 2,
                srq_limit: 0,
            };
            let mut srq = pd.create_srq(&mut attr).unwrap();
            assert_eq!((attr.max_wr, attr.max_sge), (7, 3));
            let object = rig.lock().srqs[&srq.srqn().number()];
            assert_eq!(object.stride, 64);
            let cq = device.create_cq(CqInit::new(31)).unwrap();
            let mut init = QpInitAttr {
                send_cq: &cq,
                recv_cq: &cq,
                srq: Some(&srq),
                cap: cap(4, 4, 1, 0),
                sq_sig_all: true,
            };
            let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
            assert_eq!((qp.cap().max_recv_wr, qp.cap().max_recv_sge), (0, 0));
            let qpc = *rig.lock().qps[&0x100].create.qpc();
            assert_eq!(
                (qpc.rq_type(), qpc.srqn_rmpn_xrqn()),
                (1, srq.srqn().number())
            );
            to_rts(&mut qp);
            let mut cq = cq;
            let cqn = cq.cqn().number();
            assert_eq!(qp.recv_queue().post(0, &[SGE]), Err(PostError::WrongState));
            // The device follows the links; it takes them in the order of posting, completes them in another.
            let mut next_wr = 0u64;
            let mut position = 0u64;
            let mut held: Vec<(u16, u64)> = Vec::new();
            let link = |index: u64| {
                let bytes = fake.lock().dma_read(object.ring + index * 64, 4);
                u64::from(u16::from_be_bytes([bytes[2], bytes[3]]))
            };
            for round in 0..200u64 {
                while srq.post(next_wr, &[SGE]).is_ok() {
                    held.push((position as u16, next_wr));
                    position = link(position);
                    next_wr += 1;
                }
                assert_eq!(held.len(), 7, "the whole queue");
                assert_eq!(srq.post(0, &[SGE]), Err(PostError::QueueFull { limit: 7 }));
                let record = fake.lock().dma_read(object.record, 4);
                assert_eq!(record, ((next_wr & 0xffff) as u32).to_be_bytes());
                for step in 0..=(round % 7) {
                    let at = ((round * 5 + step * 3) % held.len() as u64) as usize;
                    let (index, id) = held.remove(at);
                    rig.complete(&fake, cqn, 0x100, 2, index, 0);
                    assert_eq!(poll(&mut cq).map(|wc| wc.wr_id), Some(id));
                    // A second completion of the same WQE is ignored.
                    rig.complete(&fake, cqn, 0x100, 2, index, 0);
                    assert_eq!(poll(&mut cq), None);
                }
            }
            let garbage = cq.garbage_completions();
            rig.complete(&fake, cqn, 0x100, 2, 8, 0);
            assert_eq!(
                (poll(&mut cq), cq.garbage_completions()),
                (None, garbage + 1)
            );

            // The limit.
            srq.arm_limit(3).unwrap();
            assert_eq!(
                srq.arm_limit(8),
                Err(SrqError::Limit {
                    asked: 8,
                    max_wr: 7
                })
            );
            assert!(!srq.take_limit_event());
            fake.event(Event::Queue {
                what: EventType::SrqLimit,
                queue: Queue::Srq(srq.srqn()),
            });
            device.poll().unwrap();
            assert!(srq.take_limit_event());
            assert!(!srq.take_limit_event());

            // A flushed receive, and one that the destroyed QP leaves behind: both come back.
            let (index, id) = held.remove(0);
            let mut flush = cqe(rig.lock().qps[&0x100].user_index, 0x100, 14, index, 0);
            flush[0x37] = 5;
            rig.cqe(&fake, cqn, flush);
            assert_eq!(
                poll(&mut cq).map(|wc| (wc.wr_id, wc.status)),
                Some((id, WcStatus::WrFlushErr))
            );
            let (index, _) = held.remove(0);
            rig.complete(&fake, cqn, 0x100, 2, index, 0);
            let (busy, error) = srq.destroy().unwrap_err();
            srq = busy;
            assert_eq!(error, SrqError::Busy { users: 1 });
            drop(qp);
            assert_eq!(poll(&mut cq), None);
            let mut free = 0;
            while srq
                .post_list(&[RecvWr {
                    wr_id: 0,
                    sges: &[SGE],
                }])
                .is_ok()
            {
                free += 1;
            }
            assert_eq!(free + held.len(), 7, "nothing is lost");
            srq.destroy().map_err(|(_, error)| error).unwrap();
        });
    }
}
