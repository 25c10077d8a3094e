//! The self test on models that are well, and on models that are not: it has to detect the error, and to say where.

use bareverbs::verbs::{Cqs, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::syndrome::Status;
use connectx_model::{CommandFault, CommandRule, Config as Card, Faults, Objects};

use super::pair::{GUARD, PATTERN, UNTOUCHED};
use super::*;
use crate::attributes;

fn world(card: Card, vectors: u16) -> World {
    Builder::new().function(card).interrupts(vectors).stepped()
}

/// A card without a peer.
fn unplugged() -> Card {
    let mut card = Card::new(1);
    card.link_up = false;
    card
}

#[test]
fn a_card_without_a_cable_passes_and_keeps_nothing() {
    let cards = [
        (unplugged(), 1),
        (unplugged().infiniband(), 1),
        // With a cable, and polled.
        (Card::new(1), 0),
    ];
    for (card, vectors) in cards {
        let world = world(card, vectors);
        let before = world.accounting(0);
        run(&|_| {}, || Ok(world.platform(0))).expect("passed");
        assert_eq!(world.accounting(0), before);
        assert_eq!(world.take_faults(0), []);
        world.with_model(0, |model| {
            assert_eq!(model.objects(), Objects::default());
            assert!(model.leaks().is_empty(), "{:?}", model.leaks());
            assert_eq!(model.stats().frames_sent, 0);
        });
    }
}

/// A ConnectX-4 Lx for 2^17 queue pairs requires 12,868 pages, and another card may require more than any tool begins
/// with.
#[test]
fn a_card_gets_as_many_pages_as_it_requires() {
    for init_pages in [12_868, 70_000] {
        let mut card = unplugged();
        card.init_pages = init_pages;
        let world = world(card, 1);
        let before = world.accounting(0);
        run(&|_| {}, || Ok(world.platform(0))).expect("passed");
        attributes::report(world.platform(0), "model0", 0).expect("a report");
        assert_eq!(world.accounting(0), before);
        world.with_model(0, |model| assert!(model.leaks().is_empty()));
    }
    // More than any machine has.
    let mut card = unplugged();
    card.init_pages = 1 << 30;
    let world = world(card, 1);
    let error = attributes::report(world.platform(0), "model0", 0)
        .err()
        .expect("refused");
    assert!(
        error
            .to_string()
            .contains("page chunks would have sufficed"),
        "{error}"
    );
}

#[test]
fn a_device_without_atomics_passes() {
    let mut card = unplugged();
    for caps in [&mut card.general, &mut card.general_max] {
        caps.set_atomic(false);
    }
    let world = world(card, 1);
    run(&|_| {}, || Ok(world.platform(0))).expect("passed");
}

/// Where the self test fails on this card with these faults.
fn fails_at(card: Card, fault: impl FnOnce(&mut Faults)) -> String {
    let world = world(card, 1);
    world.with_model(0, |model| fault(model.faults_mut()));
    let error = run(&|_| {}, || Ok(world.platform(0))).expect_err("it does not work");
    let text = error.to_string();
    text.split('"').nth(1).expect("the step's name").to_owned()
}

#[test]
fn what_does_not_work_is_named() {
    let refuse = |opcode: u16, skip: u32| {
        move |faults: &mut Faults| {
            let status = Status::NoResources;
            let syndrome = 0x1234;
            faults.commands.push(CommandRule {
                skip,
                ..CommandRule::next(opcode, CommandFault::Fail { status, syndrome })
            });
        }
    };
    assert_eq!(fails_at(unplugged(), |f| f.never_boots = true), "open");
    // CREATE_MKEY, RTR2RTS_QP, the first 2RST_QP (new queue pairs need none), DISABLE_HCA.
    assert_eq!(fails_at(unplugged(), refuse(0x200, 1)), "memory");
    assert_eq!(fails_at(unplugged(), refuse(0x504, 1)), "connect");
    assert_eq!(fails_at(unplugged(), refuse(0x50a, 0)), "recovery");
    assert_eq!(fails_at(unplugged(), refuse(0x105, 0)), "close");
    assert_eq!(
        fails_at(unplugged(), |f| f.lose_interrupts = true),
        "interrupt"
    );
}

/// A card with neither of the bits for force loopback, as a ConnectX-4 Lx with firmware 14.12.1220 answers.
fn without_force_loopback(mut card: Card) -> Card {
    for general in [&mut card.general, &mut card.general_max] {
        general.set_fl_rc_qp_when_roce_disabled(false);
    }
    for roce in [&mut card.roce, &mut card.roce_max] {
        roce.set_fl_rc_qp_when_roce_enabled(false)
            .set_fl_rc_qp_when_roce_disabled(false);
    }
    card
}

#[test]
fn a_card_without_force_loopback_is_tested_through_its_own_address() {
    let world = world(without_force_loopback(Card::new(1)), 1);
    let before = world.accounting(0);
    let skipped = run(&|_| {}, || Ok(world.platform(0))).expect("passed");
    assert_eq!(skipped, []);
    assert_eq!(world.accounting(0), before);
    world.with_model(0, |model| {
        assert_eq!(model.objects(), Objects::default());
        assert!(model.leaks().is_empty(), "{:?}", model.leaks());
        // Nothing of it has reached the cable.
        assert_eq!(model.stats().frames_sent, 0);
        assert_eq!(model.stats().frames_dropped, 0);
    });
}

/// Linux lowers the port of a card that it is done with.
#[test]
fn a_port_that_is_down_by_administration_is_raised() {
    let mut card = without_force_loopback(Card::new(1));
    card.admin_up = false;
    let world = world(card, 1);
    let skipped = run(&|_| {}, || Ok(world.platform(0))).expect("passed");
    assert_eq!(skipped, []);
}

#[test]
fn a_card_with_neither_force_loopback_nor_a_link_is_skipped_with_the_reason() {
    let mut nameless = Card::new(1);
    nameless.mac = [0; 6];
    let mut lowered = Card::new(1).virtual_function();
    lowered.admin_up = false;
    for (card, reason) in [
        (unplugged(), "which is down without a carrier"),
        (lowered, "which is down by administration of the host"),
        (nameless, "needs a MAC address"),
    ] {
        let world = world(without_force_loopback(card), 1);
        let skipped = run(&|_| {}, || Ok(world.platform(0))).expect("nothing failed");
        let [first, rest @ ..] = &skipped[..] else {
            panic!("nothing was skipped");
        };
        assert_eq!(first.step, "connect");
        assert!(first.reason.contains("no force loopback"), "{first:?}");
        assert!(first.reason.contains(reason), "{first:?}");
        assert_eq!(rest.len(), 7, "{rest:?}");
        world.with_model(0, |model| assert_eq!(model.objects(), Objects::default()));
    }
}

/// A buffer in which something is not as it should be.
#[test]
fn every_byte_counts() {
    let world = world(unplugged(), 0);
    let mut resources = Resources::<Qps<2>, Cqs<2>, Srqs<1>, PageChunks<64>>::new();
    let platform: ModelPlatform = world.platform(0);
    let device = Device::open(platform, Config::DEFAULT, resources.storage()).expect("open");
    {
        let pd = device.alloc_pd().expect("PD");
        let end = End::new(&device, &pd).expect("an end");
        let size = 5000;
        let good = [&PATTERN[..size], &[UNTOUCHED; GUARD]].concat();
        end.buffer.copy_in(0, &good).expect("inside");
        end.check(size).expect("as it should be");
        for at in [0, 1, 4095, 4096, size - 1, size, size + GUARD - 1] {
            end.buffer.copy_in(at, &[!good[at]]).expect("inside");
            let error = end.check(size).expect_err("a byte is wrong");
            assert!(error.to_string().contains(&format!("byte {at} is")));
            end.buffer.copy_in(at, &good[at..=at]).expect("inside");
        }
    }
    device.close().expect("closed");
}
