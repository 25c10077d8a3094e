//! RDMA beside Ethernet, on the same port and at the same time.

use bareverbs_core::{Rc, WcOpcode};

use crate::lab::{SIGNALED, lab, ok};
use crate::support::{send, take};

#[test]
fn roce_goes_where_it_belongs() {
    lab(|lab| {
        let mut queues = lab.queues();
        for queue in &mut queues {
            // Not even a queue that takes everything gets what is for RDMA.
            queue.set_promiscuous(true).unwrap();
        }
        let [mut a, mut b] = lab.pair::<Rc>();
        for id in 0..50_u64 {
            let len = 1 + id as usize * 97;
            a.fill(0, len, id);
            b.receive(id, 0, 1 << 15);
            let frames = [0, 1].map(|node| lab.frame(node, 60 + id as usize, id));
            send(&mut queues[0], &frames[0]);
            let sge = a.sge(0, len);
            a.qp.send_queue()
                .batch()
                .send(100 + id, SIGNALED, sge)
                .unwrap();
            send(&mut queues[1], &frames[1]);
            ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            ok(lab.wait(&mut a.cq), 100 + id, WcOpcode::Send);
            b.assert_pattern(0, len, id);
            for node in [0, 1] {
                assert_eq!(take(&mut queues[1 - node]).as_ref(), Some(&frames[node]));
                assert_eq!(take(&mut queues[1 - node]), None, "RDMA came to Ethernet");
            }
        }
    });
}

/// The queues and their cards' other objects are independent: each may go while the other is busy.
#[test]
fn queues_come_and_go_under_traffic() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        for id in 0..10 {
            let mut queues = lab.queues();
            a.fill(0, 500, id);
            b.receive(id, 0, 1 << 15);
            let sge = a.sge(0, 500);
            a.qp.send_queue().batch().send(id, SIGNALED, sge).unwrap();
            send(&mut queues[0], &lab.frame(0, 60, id));
            let [first, second] = queues;
            if id % 2 == 0 {
                first.destroy().unwrap();
                drop(second);
            } else {
                drop(first);
                second.destroy().unwrap();
            }
            ok(lab.wait(&mut b.cq), id, WcOpcode::Recv);
            ok(lab.wait(&mut a.cq), id, WcOpcode::Send);
        }
    });
}
