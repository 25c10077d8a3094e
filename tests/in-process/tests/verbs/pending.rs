//! Objects that are being created, modified and destroyed without waiting: several at once, answered late and in drawn
//! orders, refused, dropped in flight, awaited, and on a card that leaves meanwhile.

use std::time::Duration;

use bareverbs_core::cq::CreatingCq;
use bareverbs_core::error::CommandFailure;
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::qp::{CreatingQp, transition};
use bareverbs_core::{
    CqError, CqInit, CreateQpError, DestroyingQp, DeviceError, ModifyError, Qp, QpAttr, QpAttrMask,
    QpInitAttr, QpState, Rc,
};
use connectx_model::fault::{CommandFault, CommandRule};
use connectx_model::syndrome::Status;
use tokio_test::{assert_pending, assert_ready, task};

use crate::lab::{Lab, MS, lab, lab_with};
use crate::seam::Seam;

const US: Duration = Duration::from_micros(1);
const COMMAND: Duration = Duration::from_micros(100);

fn slow(card: connectx_model::Config) -> connectx_model::Config {
    connectx_model::Config {
        command_time: COMMAND,
        ..card
    }
}

/// Random numbers of a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit
    }
}

/// The next `count` commands of node 0 are answered late, each after a time of its own, and some fail.
fn disturb(lab: &Lab<'_>, random: &mut Random, count: u32, failures: bool) {
    lab.world.with_model(0, |model| {
        let rules = &mut model.faults_mut().commands;
        for nth in 0..count {
            let opcode = REFUSED[random.below(REFUSED.len() as u64) as usize];
            let refused = |fault| CommandRule {
                skip: nth / 4,
                ..CommandRule::next(opcode.number(), fault)
            };
            rules.push(match random.below(8) {
                0 => continue,
                1 if failures => refused(CommandFault::Fail {
                    status: Status::InternalError,
                    syndrome: 0xabc,
                }),
                2 if failures => refused(CommandFault::Delivery(6)),
                _ => {
                    let time = US * random.below(1000) as u32;
                    CommandRule::nth(nth, CommandFault::Delay(time))
                }
            });
        }
    });
}

/// Commands that are refused now and then. (An object whose destruction is refused when it is dropped stays with the card.)
const REFUSED: [Opcode; 4] = [
    Opcode::CreateQp,
    Opcode::CreateCq,
    Opcode::Rst2initQp,
    Opcode::Init2rtrQp,
];

fn calm(lab: &Lab<'_>) {
    lab.world
        .with_model(0, |model| model.faults_mut().commands.clear());
}

/// Looks until something is there, while the device is driven.
fn until<T>(lab: &Lab<'_>, mut look: impl FnMut() -> Option<T>) -> T {
    let end = lab.world.now() + 100 * Duration::from_secs(1);
    loop {
        let _ = lab.sides[0].device.poll();
        if let Some(found) = look() {
            return found;
        }
        assert!(lab.world.now() < end, "it hangs");
        lab.world.advance(10 * US);
    }
}

/// The attributes of the transition from `from` to `to` of an RC QP, to itself if need be.
fn attributes(lab: &Lab<'_>, qp: &Qp<'_, Seam, Rc>, to: QpState) -> Option<(QpAttr, QpAttrMask)> {
    let row = transition(bareverbs_core::QpKind::Rc, qp.state(), to)?;
    let attr = QpAttr {
        qp_state: to,
        ..lab.attr(0, qp.qpn())
    };
    Some((attr, row.required | QpAttrMask::STATE))
}

const UP: [QpState; 3] = [QpState::Init, QpState::Rtr, QpState::Rts];

/// Eight CQs and eight QPs to RTS and away again: each step of all of them takes one command's time, or two.
#[test]
fn commands_of_many_objects_overlap() {
    lab_with(slow, |lab| {
        let side = &lab.sides[0];
        let start = lab.world.now();
        let mut creating: Vec<_> = (0..8)
            .map(|_| side.device.start_create_cq(CqInit::new(63)).unwrap())
            .collect();
        assert_eq!(lab.world.now(), start, "starting waits for nothing");
        let cqs: Vec<_> = creating
            .iter_mut()
            .map(|cq| until(lab, || cq.try_finish()).unwrap())
            .collect();
        let mut creating: Vec<_> = cqs
            .iter()
            .map(|cq| {
                let mut init = QpInitAttr::new(cq, 16);
                let creating = side.pd.start_create_qp::<Rc>(&mut init).unwrap();
                assert!(init.cap.max_send_wr >= 16);
                creating
            })
            .collect();
        let mut qps: Vec<_> = creating
            .iter_mut()
            .map(|qp| until(lab, || qp.try_finish()).unwrap())
            .collect();
        for state in UP {
            for qp in &mut qps {
                let (attr, mask) = attributes(lab, qp, state).unwrap();
                qp.start_modify(&attr, mask).unwrap();
                assert_eq!(qp.start_modify(&attr, mask), Err(ModifyError::UnderWay));
                assert_ne!(qp.state(), state);
            }
            for qp in &mut qps {
                until(lab, || qp.try_finish_modify()).unwrap();
                assert_eq!(qp.state(), state);
            }
        }
        let mut destroying: Vec<_> = qps
            .into_iter()
            .map(|qp| qp.start_destroy().map_err(|(_, error)| error).unwrap())
            .collect();
        until(lab, || {
            destroying.retain_mut(|qp| match qp.try_finish() {
                Some(gone) => gone.map_err(|(_, error)| panic!("{error}")).is_err(),
                None => true,
            });
            destroying.is_empty().then_some(())
        });
        let mut destroying: Vec<_> = cqs
            .into_iter()
            .map(|cq| cq.start_destroy().map_err(|(_, error)| error).unwrap())
            .collect();
        for cq in &mut destroying {
            until(lab, || cq.try_finish())
                .map_err(|(_, error)| error)
                .unwrap();
        }
        // CQ, QP, three transitions, RESET, QP, CQ: eight steps.
        let took = lab.world.now() - start;
        assert!(took >= 8 * COMMAND && took < 10 * COMMAND, "{took:?}");
    });
}

/// Objects of a drawn walk.
#[derive(Default)]
struct Things<'d> {
    creating_cqs: Vec<CreatingCq<'d, Seam>>,
    creating: Vec<CreatingQp<'d, Seam, Rc>>,
    qps: Vec<Qp<'d, Seam, Rc>>,
    destroying: Vec<DestroyingQp<'d, Seam, Rc>>,
}

fn is_injected(failure: CommandFailure) -> bool {
    match failure {
        CommandFailure::Status { syndrome, .. } => syndrome == 0xabc,
        CommandFailure::Delivery(status) => status.number() == 6,
        failure => failure.is_queue_full(),
    }
}

/// One step of a drawn walk.
fn walk<'d>(
    lab: &Lab<'d>,
    random: &mut Random,
    cq: &bareverbs_core::Cq<'d, Seam>,
    things: &mut Things<'d>,
) {
    let side = &lab.sides[0];
    let alive = things.creating.len() + things.qps.len() + things.destroying.len();
    match random.below(12) {
        0 | 1 if alive < 8 => {
            match side.pd.start_create_qp::<Rc>(&mut QpInitAttr::new(cq, 4)) {
                Ok(creating) => things.creating.push(creating),
                Err(CreateQpError::Command(error)) => assert!(is_injected(error.failure)),
                // Slots of QPs that were destroyed in between.
                Err(CreateQpError::NoSlot { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        2 if things.creating_cqs.len() < 4 => match side.device.start_create_cq(CqInit::new(3)) {
            Ok(creating) => things.creating_cqs.push(creating),
            Err(CqError::Command(error)) => assert!(is_injected(error.failure)),
            Err(error) => panic!("{error}"),
        },
        3 if !things.qps.is_empty() => {
            let index = random.below(things.qps.len() as u64) as usize;
            match things.qps.swap_remove(index).start_destroy() {
                Ok(destroying) => things.destroying.push(destroying),
                Err((qp, _)) => things.qps.push(qp),
            }
        }
        // Dropped in flight.
        4 if random.below(4) == 0 => drop(things.creating.pop()),
        5 if random.below(4) == 0 => drop(things.destroying.pop()),
        6 if random.below(4) == 0 => drop(things.qps.pop()),
        7 if random.below(4) == 0 => drop(things.creating_cqs.pop()),
        8 | 9 if !things.qps.is_empty() => {
            let index = random.below(things.qps.len() as u64) as usize;
            let qp = &mut things.qps[index];
            let to = [
                QpState::Reset,
                QpState::Init,
                QpState::Rtr,
                QpState::Rts,
                QpState::Err,
            ][random.below(5) as usize];
            let Some((attr, mask)) = attributes(lab, qp, to) else {
                return;
            };
            match random.below(8) {
                0 => drop(qp.modify(&attr, mask)),
                _ => drop(qp.start_modify(&attr, mask)),
            }
        }
        _ => lab.world.advance(US * random.below(300) as u32),
    }
}

/// Takes the results of all that is over.
fn collect<'d>(things: &mut Things<'d>) {
    things
        .creating_cqs
        .retain_mut(|creating| match creating.try_finish() {
            None => true,
            Some(Err(CqError::Command(error))) => {
                assert!(is_injected(error.failure), "{error}");
                false
            }
            Some(made) => {
                drop(made.unwrap());
                false
            }
        });
    let qps = &mut things.qps;
    things
        .creating
        .retain_mut(|creating| match creating.try_finish() {
            None => true,
            Some(Err(CreateQpError::Command(error))) => {
                assert!(is_injected(error.failure), "{error}");
                false
            }
            Some(made) => {
                qps.push(made.unwrap());
                false
            }
        });
    things
        .destroying
        .retain_mut(|destroying| match destroying.try_finish() {
            None => true,
            Some(Ok(())) => false,
            Some(Err((qp, _))) => {
                qps.push(qp);
                false
            }
        });
    for qp in qps {
        let _ = qp.try_finish_modify();
    }
}

/// Creating, modifying, destroying and dropping in drawn orders, with answers late, out of order, refused, and without
/// their events: nothing hangs, nothing is left with the card (the laboratory looks), and the states are the card's.
#[test]
fn any_order_of_answers() {
    for seed in 0..60 {
        println!("seed {seed}");
        let mut random = Random(seed);
        let slots = 2 + (seed % 4) as u8;
        let card = |card| connectx_model::Config {
            // From three slots beside that for pages to all.
            log_cmdq_size: slots,
            ..slow(card)
        };
        lab_with(card, |lab| {
            let cq = lab.sides[0].device.create_cq(CqInit::new(255)).unwrap();
            let mut things = Things::default();
            for round in 0..12 {
                disturb(lab, &mut random, 24, round % 2 == 0);
                for _ in 0..24 {
                    walk(lab, &mut random, &cq, &mut things);
                    lab.sides[0].device.poll().unwrap();
                    collect(&mut things);
                }
                calm(lab);
                for qp in &mut things.qps {
                    let finished = until(lab, || qp.try_finish_modify());
                    if finished.is_ok() {
                        let recorded = qp.state();
                        qp.query().unwrap();
                        assert_eq!(qp.state(), recorded);
                    }
                }
            }
            calm(lab);
            drop(things);
        });
    }
}

/// Each of the commands fails once; what was begun is given back, or is none, and can be begun again.
#[test]
fn refusals_give_the_object_back() {
    lab_with(slow, |lab| {
        let side = &lab.sides[0];
        let fail = || {
            let fault = CommandFault::Fail {
                status: Status::BadResourceState,
                syndrome: 0xabc,
            };
            lab.world.with_model(0, |model| {
                let rules = &mut model.faults_mut().commands;
                rules.push(CommandRule::nth(0, fault));
            });
        };
        fail();
        let mut creating = side.device.start_create_cq(CqInit::new(7)).unwrap();
        let failed = until(lab, || creating.try_finish());
        assert!(matches!(failed, Err(CqError::Command(_))));
        assert!(creating.try_finish().is_none(), "it is over");
        let cq = side.device.create_cq(CqInit::new(7)).unwrap();
        fail();
        let mut init = QpInitAttr::new(&cq, 4);
        let mut creating = side.pd.start_create_qp::<Rc>(&mut init).unwrap();
        let failed = until(lab, || creating.try_finish());
        assert!(matches!(failed, Err(CreateQpError::Command(_))));
        assert!(creating.try_finish().is_none(), "it is over");
        let mut qp = side.pd.create_qp::<Rc>(&mut init).unwrap();
        let (attr, mask) = attributes(lab, &qp, QpState::Init).unwrap();
        fail();
        qp.start_modify(&attr, mask).unwrap();
        let failed = until(lab, || qp.try_finish_modify());
        assert!(matches!(failed, Err(ModifyError::Command(_))));
        assert_eq!(qp.state(), QpState::Reset);
        assert_eq!(qp.try_finish_modify(), Some(Ok(())), "nothing is under way");
        fail();
        let mut destroying = qp.start_destroy().map_err(|(_, error)| error).unwrap();
        let (qp, _) = until(lab, || destroying.try_finish()).unwrap_err();
        assert_eq!(destroying.try_finish().map(|over| over.is_ok()), Some(true));
        let (cq, error) = cq.start_destroy().map(drop).unwrap_err();
        assert!(matches!(error, CqError::Busy { .. }));
        qp.destroy().map_err(|(_, error)| error).unwrap();
        fail();
        let mut destroying = cq.start_destroy().map_err(|(_, error)| error).unwrap();
        let (cq, _) = until(lab, || destroying.try_finish()).unwrap_err();
        cq.destroy().map_err(|(_, error)| error).unwrap();
    });
}

/// Tasks are woken where the device is polled after the answer.
#[test]
fn awaited() {
    lab_with(slow, |lab| {
        let side = &lab.sides[0];
        let mut creating = task::spawn(side.device.start_create_cq(CqInit::new(7)).unwrap());
        assert_pending!(creating.poll());
        side.device.poll().unwrap();
        assert!(!creating.is_woken(), "nothing has happened");
        lab.pause(COMMAND);
        assert!(creating.is_woken());
        let cq = assert_ready!(creating.poll()).unwrap();

        let mut init = QpInitAttr::new(&cq, 4);
        let mut creating = task::spawn(side.pd.start_create_qp::<Rc>(&mut init).unwrap());
        assert_pending!(creating.poll());
        lab.pause(COMMAND);
        assert!(creating.is_woken());
        let mut qp = assert_ready!(creating.poll()).unwrap();

        let (attr, mask) = attributes(lab, &qp, QpState::Init).unwrap();
        drop(task::spawn(qp.modifying(&attr, mask)));
        assert_eq!(
            qp.try_finish_modify(),
            Some(Ok(())),
            "never polled: nothing began"
        );
        let mut modifying = task::spawn(qp.modifying(&attr, mask));
        assert_pending!(modifying.poll());
        lab.pause(COMMAND);
        assert!(modifying.is_woken());
        assert_ready!(modifying.poll()).unwrap();
        drop(modifying);
        assert_eq!(qp.state(), QpState::Init);

        // What a dropped future began goes on.
        let (attr, mask) = attributes(lab, &qp, QpState::Rtr).unwrap();
        let mut modifying = task::spawn(qp.modifying(&attr, mask));
        assert_pending!(modifying.poll());
        drop(modifying);
        until(lab, || qp.try_finish_modify()).unwrap();
        assert_eq!(qp.state(), QpState::Rtr);

        let mut destroying = task::spawn(qp.start_destroy().map_err(|(_, error)| error).unwrap());
        assert_pending!(destroying.poll());
        lab.pause(COMMAND);
        assert!(destroying.is_woken(), "RESET is done");
        assert_pending!(destroying.poll());
        lab.pause(COMMAND);
        assert!(destroying.is_woken());
        assert!(assert_ready!(destroying.poll()).is_ok());

        let mut destroying = task::spawn(cq.start_destroy().map_err(|(_, error)| error).unwrap());
        assert_pending!(destroying.poll());
        lab.pause(COMMAND);
        assert!(destroying.is_woken());
        assert!(assert_ready!(destroying.poll()).is_ok());
    });
}

/// The queue is full: what cannot be posted waits for its turn, and a transition says so.
#[test]
fn a_full_queue_is_waited_for() {
    let card = |card| connectx_model::Config {
        log_cmdq_size: 2,
        ..slow(card)
    };
    lab_with(card, |lab| {
        let side = &lab.sides[0];
        let cq = side.device.create_cq(CqInit::new(63)).unwrap();
        let mut init = QpInitAttr::new(&cq, 4);
        let mut qp = side.pd.create_qp::<Rc>(&mut init).unwrap();
        let mut creating: Vec<_> = (0..5)
            .map(|_| side.pd.start_create_qp::<Rc>(&mut init).unwrap())
            .collect();
        let posted = creating.iter().filter(|qp| qp.is_posted()).count();
        assert_eq!(posted, 2);
        let (attr, mask) = attributes(lab, &qp, QpState::Init).unwrap();
        match qp.start_modify(&attr, mask) {
            Err(ModifyError::Command(error)) => assert!(error.failure.is_queue_full()),
            other => panic!("{other:?}"),
        }
        assert_eq!(qp.try_finish_modify(), Some(Ok(())), "nothing began");
        // A task is woken at once, to ask again.
        let mut awaited = task::spawn(creating.pop().unwrap());
        assert_pending!(awaited.poll());
        assert!(awaited.is_woken());
        drop(awaited);
        // So it is for a transition, for as long as a command may take.
        let mut modifying = task::spawn(qp.modifying(&attr, mask));
        assert_pending!(modifying.poll());
        assert!(modifying.is_woken());
        lab.world.advance(side.device.config().command_timeout);
        match assert_ready!(modifying.poll()) {
            Err(ModifyError::Command(error)) => assert!(error.failure.is_queue_full()),
            other => panic!("{other:?}"),
        }
        drop(modifying);
        // The blocking calls wait for their turn, too.
        qp.modify(&attr, mask).unwrap();
        assert_eq!(qp.state(), QpState::Init);
        for qp in &mut creating {
            drop(until(lab, || qp.try_finish()).unwrap());
        }
    });
}

/// A command waits for its turn no longer than it may take, also where the count of milliseconds, which has 32 bits in what is
/// kept of it, begins anew: after 49 days.
#[test]
fn a_full_queue_while_the_milliseconds_begin_anew() {
    let card = |card| connectx_model::Config {
        log_cmdq_size: 2,
        ..card
    };
    lab_with(card, |lab| {
        let side = &lab.sides[0];
        let cq = side.device.create_cq(CqInit::new(63)).unwrap();
        let limit = side.device.config().command_timeout;
        let anew = Duration::from_millis(1 << 32);
        lab.pause(anew - limit / 2 - lab.world.now());
        lab.world.with_model(0, |model| {
            let rules = &mut model.faults_mut().commands;
            rules.push(CommandRule {
                times: 2,
                ..CommandRule::nth(0, CommandFault::Drop)
            });
        });
        let mut init = QpInitAttr::new(&cq, 4);
        let mut creating: Vec<_> = (0..3)
            .map(|_| side.pd.start_create_qp::<Rc>(&mut init).unwrap())
            .collect();
        let mut late = creating.pop().unwrap();
        assert!(!late.is_posted());
        lab.pause(limit - MS);
        assert!(lab.world.now() > anew);
        assert!(late.try_finish().is_none());
        lab.pause(2 * MS);
        match late.try_finish() {
            Some(Err(CreateQpError::Command(error))) => {
                assert!(error.failure.is_queue_full(), "{error}");
            }
            other => panic!("{}", other.is_some()),
        }
    });
}

/// The card leaves with commands under way: everything pending fails at once, and dropping it waits for nothing.
#[test]
fn the_card_leaves() {
    for destroy in [false, true] {
        let world = bareverbs_in_process::Builder::new()
            .function(slow(crate::seam::card(connectx_model::Config::new(1))))
            .stepped();
        let mut memory = Box::new(bareverbs_core::Resources::<
            bareverbs_core::Qps<8>,
            bareverbs_core::Cqs<8>,
            bareverbs_core::Srqs<1>,
            bareverbs_core::PageChunks<64>,
        >::new());
        {
            let device = world.open(0, bareverbs_core::Config::DEFAULT, memory.storage(), &[]);
            let pd = device.alloc_pd().unwrap();
            let cq = device.create_cq(CqInit::new(63)).unwrap();
            let mut init = QpInitAttr::new(&cq, 4);
            let mut qp = pd.create_qp::<Rc>(&mut init).unwrap();
            let attr = QpAttr {
                qp_state: QpState::Init,
                port_num: 1,
                ..QpAttr::DEFAULT
            };
            let mask = QpAttrMask::STATE
                | QpAttrMask::PKEY_INDEX
                | QpAttrMask::PORT
                | QpAttrMask::ACCESS_FLAGS;
            let mut creating = pd.start_create_qp::<Rc>(&mut init).unwrap();
            let mut creating_cq = device.start_create_cq(CqInit::new(7)).unwrap();
            let mut awaited = task::spawn(pd.start_create_qp::<Rc>(&mut init).unwrap());
            assert_pending!(awaited.poll());
            qp.start_modify(&attr, mask).unwrap();
            world.with_model(0, connectx_model::Model::vanish);
            world.advance(2 * Duration::from_secs(1));
            assert_eq!(device.poll(), Err(DeviceError::Gone));
            let gone = CommandFailure::Device(DeviceError::Gone);
            let failure = |error: &dyn std::error::Error| error.to_string();
            match creating.try_finish() {
                Some(Err(CreateQpError::Command(error))) => assert_eq!(error.failure, gone),
                other => panic!("{:?}", other.map(|made| made.map_err(|e| failure(&e)))),
            }
            match creating_cq.try_finish() {
                Some(Err(CqError::Command(error))) => assert_eq!(error.failure, gone),
                other => panic!("{:?}", other.map(|made| made.map_err(|e| failure(&e)))),
            }
            assert!(awaited.is_woken());
            assert!(assert_ready!(awaited.poll()).is_err());
            match qp.try_finish_modify() {
                Some(Err(ModifyError::Command(error))) => assert_eq!(error.failure, gone),
                other => panic!("{other:?}"),
            }
            let then = world.now();
            if destroy {
                let (qp, _) = qp.start_destroy().map(drop).unwrap_err();
                drop(qp);
            } else {
                drop(qp);
            }
            assert!(world.now() - then < MS, "nothing is waited for");
        }
        assert_eq!(world.take_faults(0), []);
    }
}

/// A card that never answers: what was begun ends with the time that a command may take, and its memory is kept until the
/// function was reset.
#[test]
fn no_answer() {
    lab(|lab| {
        let side = &lab.sides[0];
        let cq = side.device.create_cq(CqInit::new(63)).unwrap();
        let lose = |times| {
            lab.world.with_model(0, |model| {
                let rules = &mut model.faults_mut().commands;
                rules.push(CommandRule {
                    times,
                    ..CommandRule::nth(0, CommandFault::Drop)
                });
            });
        };
        lose(1);
        let mut init = QpInitAttr::new(&cq, 4);
        let mut creating = side.pd.start_create_qp::<Rc>(&mut init).unwrap();
        let limit = side.device.config().command_timeout;
        lab.pause(limit - MS);
        assert!(creating.try_finish().is_none());
        lab.pause(MS);
        match creating.try_finish() {
            Some(Err(CreateQpError::Command(error))) => {
                assert!(matches!(error.failure, CommandFailure::Timeout { .. }));
            }
            other => panic!("{}", other.is_some()),
        }
        assert!(side.device.bytes_quarantined() > 0);
        // Awaited: the task is woken when the device's health is looked at, and finds it late.
        lose(1);
        let mut creating = task::spawn(side.device.start_create_cq(CqInit::new(7)).unwrap());
        assert_pending!(creating.poll());
        lab.pause(MS);
        assert!(!creating.is_woken());
        lab.pause(limit + side.device.config().health_interval);
        assert!(creating.is_woken());
        assert!(assert_ready!(creating.poll()).is_err());
        // Dropped: the same, and it is waited for.
        lose(1);
        let start = lab.world.now();
        drop(side.device.start_create_cq(CqInit::new(7)).unwrap());
        assert!(lab.world.now() - start >= limit);
    });
}
