//! Refusals of the device or its firmware, and recovery from them.

use bareverbs_core::error::Status as CommandStatus;
use bareverbs_core::firmware_cmds::cqe::Syndrome;
use bareverbs_core::firmware_cmds::rq::ModifyRqIn;
use bareverbs_core::{
    Config, Cqs, EthernetError, EthernetReceiveError, EthernetSendError, EthernetSendFlags, LKey,
    PageChunks, Qps, Resources, Sge, Srqs,
};
use bareverbs_in_process::Builder;
use connectx_model::{CommandFault, CommandRule, Config as Card, Objects, Status};

use crate::lab::{MS, lab, lab_with};
use crate::support::{INIT, NONE, Queue, send, take};

#[test]
fn a_frame_that_cannot_be_read_stops_sending() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        for round in 0..3 {
            let header = lab.frame(0, 60, 1);
            let bad = Sge::new(0x1000, 64, LKey(0xdead_be00));
            a.send_half().send_gather(&header, &[bad], NONE).unwrap();
            let Err(EthernetSendError::Failed(failure)) = a.send_half().send(&header, NONE) else {
                panic!("the queue goes on, round {round}");
            };
            assert_eq!(failure.syndrome, Syndrome::LocalProtection);
            assert_eq!(a.send_half().failure(), Some(failure));
            lab.nothing(&mut b);
            // Receiving goes on meanwhile.
            send(&mut b, &lab.frame(1, 60, 2));
            assert_eq!(lab.receive(&mut a), lab.frame(1, 60, 2));

            a.recover().unwrap();
            assert_eq!(a.send_half().failure(), None);
            assert_eq!(a.send_half().outstanding(), 0);
            for seed in 0..20 {
                send(&mut a, &lab.frame(0, 60, seed));
                assert_eq!(lab.receive(&mut b), lab.frame(0, 60, seed));
            }
        }
        // A queue that has not failed may be recovered, too.
        a.send_half().recover().unwrap();
        send(&mut a, &lab.frame(0, 60, 7));
        assert_eq!(lab.receive(&mut b), lab.frame(0, 60, 7));
    });
}

/// The receive queue's number, which only its own commands use.
fn rqn(queue: &mut Queue<'_>) -> u32 {
    let shown = format!("{:?}", queue.receive_half());
    let digits = shown.split("rqn: 0x").nth(1).expect("a number");
    let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap();
    u32::from_str_radix(&digits[..end], 16).unwrap()
}

#[test]
fn receiving_stops_and_goes_on() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        for round in 0..3 {
            for seed in 0..5 {
                send(&mut a, &lab.frame(0, 60, seed));
                assert_eq!(lab.receive(&mut b), lab.frame(0, 60, seed));
            }
            send(&mut a, &lab.frame(0, 60, 77));
            lab.pause(MS);
            let mut stop = ModifyRqIn::new();
            stop.set_rqn(rqn(&mut b)).set_rq_state(1);
            stop.ctx_mut().set_state(3).set_vsd(true);
            lab.sides[1].device.execute(&stop).unwrap();
            // What came before is not lost.
            assert_eq!(take(&mut b), Some(lab.frame(0, 60, 77)), "round {round}");
            let mut result = b.receive_half().receive().map(|frame| frame.is_some());
            while result == Ok(false) {
                result = b.receive_half().receive().map(|frame| frame.is_some());
            }
            let Err(EthernetReceiveError::Failed(failure)) = result else {
                panic!("{result:?}");
            };
            assert_eq!(failure.syndrome, Syndrome::WrFlush);
            b.recover().unwrap();
            lab.nothing(&mut b);
        }
        b.receive_half().recover().unwrap();
        send(&mut a, &lab.frame(0, 60, 8));
        assert_eq!(lab.receive(&mut b), lab.frame(0, 60, 8));
        assert_eq!(b.receive_half().counters().garbage_completions, 0);
    });
}

#[test]
fn too_long_frames_are_counted() {
    lab(|lab| {
        let mut long = INIT;
        long.frame_len = None;
        let mut a = lab.queue(0, long);
        let mut b = lab.queue(1, INIT);
        // The port's MTU is 4200.
        assert_eq!(a.frame_len(), 4218);
        for count in 1..20 {
            send(&mut a, &lab.frame(0, 1519, 1));
            send(&mut a, &lab.frame(0, 1518, count));
            assert_eq!(lab.receive(&mut b), lab.frame(0, 1518, count));
            assert_eq!(b.receive_half().counters().too_long, count);
        }
        for length in [13, 4219] {
            assert_eq!(
                a.send_half().send(&vec![0; length], NONE),
                Err(EthernetSendError::Length {
                    length,
                    limit: 4218
                })
            );
        }
        let sge = Sge::new(0, 4218 - 13, LKey(1));
        let header = [0; 14];
        assert_eq!(
            a.send_half().send_gather(&header, &[sge], NONE),
            Err(EthernetSendError::Length {
                length: 4219,
                limit: 4218
            })
        );
        let sge = Sge::new(0, 1, LKey(1));
        assert_eq!(
            a.send_half().send_gather(&header, &[sge; 4], NONE),
            Err(EthernetSendError::TooManySges { given: 4, limit: 3 })
        );
        // None of that reached the device.
        send(&mut a, &lab.frame(0, 60, 1));
        assert_eq!(lab.receive(&mut b), lab.frame(0, 60, 1));
    });
}

/// Every command of creation is refused once; the lab sees whether anything is left.
#[test]
fn creation_fails_at_each_step_and_leaves_nothing() {
    lab(|lab| {
        let side = &lab.sides[0];
        let refusal = CommandFault::Fail {
            status: Status::NoResources,
            syndrome: 0x1234,
        };
        let before = (
            lab.world.accounting(0),
            lab.world.with_model(0, |m| m.objects()),
        );
        let mut refused = 0;
        for nth in 0.. {
            lab.world.with_model(0, |model| {
                model.faults_mut().commands = vec![CommandRule::nth(nth, refusal)];
            });
            let result = side.pd.create_ethernet_queue(&INIT);
            let struck = lab.world.with_model(0, |model| {
                let rules = std::mem::take(&mut model.faults_mut().commands);
                rules.iter().all(|rule| rule.times == 0)
            });
            match result {
                Ok(queue) => {
                    assert!(!struck, "command {nth} was refused without an error");
                    queue.destroy().unwrap();
                    break;
                }
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(text.contains("0x1234"), "command {nth}: {text}");
                }
            }
            let after = (
                lab.world.accounting(0),
                lab.world.with_model(0, |m| m.objects()),
            );
            assert_eq!(after, before, "after command {nth}");
        }
        assert!(refused > 20, "{refused}");
    });
}

/// Every command of destruction is refused once: what stays with the device keeps its memory until the end.
#[test]
fn destruction_fails_at_each_step_and_frees_nothing_in_use() {
    let mut reported = 0;
    for nth in 0.. {
        let world = Builder::new()
            .function(Card::new(1))
            .function(Card::new(2))
            .stepped();
        let mut resources = Box::new(Resources::<Qps<1>, Cqs<4>, Srqs<1>, PageChunks<256>>::new());
        let before = world.accounting(0);
        let device = world.open(0, Config::DEFAULT, resources.storage(), &[]);
        let pd = device.alloc_pd().unwrap();
        let mut queue = pd.create_ethernet_queue(&INIT).unwrap();
        queue.join([0x33, 0x33, 0, 0, 0, 1]).unwrap();
        queue.set_all_multicast(true).unwrap();
        queue.set_promiscuous(true).unwrap();
        world.with_model(0, |model| {
            let fault = CommandFault::Fail {
                status: Status::ResourceBusy,
                syndrome: 0x1234,
            };
            model.faults_mut().commands = vec![CommandRule::nth(nth, fault)];
        });
        let result = queue.destroy();
        let struck = world.with_model(0, |model| {
            let rules = std::mem::take(&mut model.faults_mut().commands);
            rules.iter().all(|rule| rule.times == 0)
        });
        if let Err(error) = result {
            reported += 1;
            assert!(error.is_status(CommandStatus::ResourceBusy), "{error}");
        }
        drop(pd);
        // An event queue does not go before its CQs; the rest of teardown does not mind.
        if let Err(error) = device.close() {
            assert!(struck, "command {nth}: {error}");
            assert_eq!((error.bytes_quarantined, error.pages_lost), (0, 0));
        }
        assert_eq!(world.take_faults(0), [], "command {nth}");
        assert_eq!(world.accounting(0), before, "command {nth}");
        world.with_model(0, |model| assert_eq!(model.objects(), Objects::default()));
        if !struck {
            break;
        }
    }
    assert!(reported > 15, "{reported}");
}

/// Where joining half succeeds it is undone, and what was joined before stays.
#[test]
fn joining_is_refused_without_a_trace() {
    lab(|lab| {
        let [mut a, mut b] = lab.queues();
        let groups = [[0x33, 0x33, 0, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 2]];
        b.join(groups[0]).unwrap();
        for nth in 0..2 {
            lab.world.with_model(1, |model| {
                let fault = CommandFault::Fail {
                    status: Status::NoResources,
                    syndrome: 1,
                };
                model.faults_mut().commands = vec![CommandRule::nth(nth, fault)];
            });
            assert!(matches!(b.join(groups[1]), Err(EthernetError::Command(_))));
            for (group, wanted) in groups.into_iter().zip([true, false]) {
                let sent = crate::support::frame(group, lab.sides[0].mac, 60, 1);
                send(&mut a, &sent);
                lab.pause(MS);
                assert_eq!(take(&mut b).is_some(), wanted, "command {nth}");
            }
            lab.world
                .with_model(1, |model| model.faults_mut().commands.clear());
        }
        b.join(groups[1]).unwrap();
    });
}

#[test]
fn a_card_without_checksums_is_not_asked_for_them() {
    let card = |mut card: Card| {
        card.ethernet.set_csum_cap(false);
        card
    };
    lab_with(card, |lab| {
        let [mut a, _b] = lab.queues();
        assert!(!a.send_half().has_checksums());
        assert_eq!(
            a.send_half()
                .send(&lab.frame(0, 60, 1), EthernetSendFlags::L3_CHECKSUM),
            Err(EthernetSendError::NoChecksums)
        );
    });
}
