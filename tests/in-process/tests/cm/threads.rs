//! Two drivers on two threads, in a world that has a lock for each function.

use std::sync::Barrier;

use crate::pair::*;
use bareverbs_cm::rdma::*;
use bareverbs_core::{Mtu, WcStatus};
use bareverbs_in_process::Builder;
use connectx_model::Config as Card;

const ROUNDS: u32 = 2_000;

/// One end: sends a number and waits for the other's, or the other way round.
fn end(cm: &mut Cm, id: CmId, first: bool) {
    let buffer = cm.reg_msgs(id, 4).unwrap();
    let receive = |cm: &mut Cm, round: u32| {
        assert_eq!(cm.get_recv_comp(id).unwrap().status, WcStatus::Success);
        let mut bytes = [0; 4];
        buffer.copy_out(0, &mut bytes).unwrap();
        assert_eq!(u32::from_be_bytes(bytes), round);
        if round + 1 < ROUNDS {
            cm.post_recv(id, 1, buffer.slice(..4).unwrap()).unwrap();
        }
    };
    let send = |cm: &mut Cm, round: u32| {
        cm.post_send_inline(id, 2, &round.to_be_bytes(), SendFlags::SIGNALED)
            .unwrap();
        assert_eq!(cm.get_send_comp(id).unwrap().status, WcStatus::Success);
    };
    cm.post_recv(id, 1, buffer.slice(..4).unwrap()).unwrap();
    if first {
        cm.connect(id, None).unwrap();
    } else {
        cm.accept(id, None).unwrap();
    }
    for round in 0..ROUNDS {
        if first {
            send(cm, round);
            receive(cm, round);
        } else {
            receive(cm, round);
            send(cm, round);
        }
    }
}

/// With interrupts each waits asleep, and no wake-up is lost; without, each polls until it sleeps for a frame.
#[test]
fn each_wakes_the_other() {
    for vectors in [4, 0] {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .interrupts(vectors)
            .threaded();
        let devices = [device(&world, 0), device(&world, 1)];
        let listening = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut cm = manager(&devices, 1, Mtu::B4096);
                let hints = AddrInfo::hints(true);
                let info = getaddrinfo(None, Some("7471"), Some(&hints)).unwrap();
                let listener = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
                cm.listen(listener, 0).unwrap();
                listening.wait();
                let id = cm.get_request(listener).unwrap();
                end(&mut cm, id, false);
                cm.destroy_ep(id).unwrap();
                cm.destroy_ep(listener).unwrap();
            });
            let mut cm = manager(&devices, 0, Mtu::B4096);
            listening.wait();
            let info = getaddrinfo(Some("10.0.0.2"), Some("7471"), None).unwrap();
            let id = cm.create_ep(&info, None, Some(&mut qp())).unwrap();
            end(&mut cm, id, true);
            cm.destroy_ep(id).unwrap();
        });
        eprintln!("T {vectors} {:?}", world.now());
        assert_eq!(world.late_wakes(), 0);
    }
}
