//! A card with unusual but legal behaviour: each quirk by itself, the same for the same seed.

use std::time::Duration;

use crate::common::{Failure, Node};
use bareverbs_firmware_cmds::hca::QueryIssiIn;
use connectx_model::{Config, Quirks};
use zerocopy::IntoBytes;

const MS: Duration = Duration::from_millis(1);
const PORT_CHANGE: u8 = 0x09;
const PAGE_REQUEST: u8 = 0x0b;

fn card(quirks: Quirks) -> Config {
    let mut config = Config::new(1);
    config.quirks = quirks;
    config
}

/// In which order eight commands are answered that were rung together, and after how many milliseconds.
fn answers(quirks: Quirks) -> Vec<(u32, u32)> {
    let mut node = Node::new(card(quirks));
    for slot in 0..8 {
        node.post(slot, QueryIssiIn::new().as_bytes(), 16);
    }
    node.ring(0xff);
    let mut order = Vec::new();
    for time in 0..=10 {
        node.advance();
        for slot in 0..8 {
            let known = order.iter().any(|&(other, _)| other == slot);
            if !known && node.answer(slot, 16) != Err(Failure::Silence) {
                order.push((slot, time));
            }
        }
        node.sleep(MS);
    }
    order
}

#[test]
fn commands_complete_out_of_order_and_late() {
    let late = |seed| Quirks {
        seed,
        command_delay: 10 * MS,
        ..Quirks::default()
    };
    let order = answers(late(7));
    assert_eq!(order.len(), 8, "{order:?}");
    assert!(!order.is_sorted(), "{order:?}");
    assert!(order.iter().any(|&(_, time)| time > 0), "{order:?}");
    assert_eq!(order, answers(late(7)));
    assert_ne!(order, answers(late(8)));
    let plain = answers(Quirks::default());
    assert!(plain.iter().all(|&(_, time)| time == 0), "{plain:?}");
}

#[test]
fn the_firmware_initializes_again_when_it_learns_of_the_queue() {
    let mut node = Node::new(card(Quirks {
        initialize_again: 5 * MS,
        ..Quirks::default()
    }));
    assert_eq!(node.read32(0x1fc) >> 31, 1);
    assert_eq!(node.model.next_deadline(), Some(node.now + 5 * MS));
    node.sleep(5 * MS);
    assert_eq!(node.read32(0x1fc) >> 31, 0);
}

#[test]
fn pages_are_asked_for_and_offered_at_any_moment() {
    let mut config = card(Quirks {
        seed: 3,
        page_period: MS,
        page_most: 5,
        ..Quirks::default()
    });
    config.page_chunk = 5;
    let mut node = Node::new(config);
    node.initialize();
    let eq = node.create_eq(7, 1 << PAGE_REQUEST, 0);
    let (mut asked, mut offered) = (0, 0);
    for _ in 0..200 {
        // The next object may have to wait for pages, and none is made here.
        node.model.set_page_appetite(0);
        node.sleep(MS);
        let Some((kind, _, data)) = node.next_event(eq) else {
            continue;
        };
        assert_eq!(kind, PAGE_REQUEST);
        assert_eq!(node.next_event(eq), None, "one at a time");
        let pages = i32::from_be_bytes(data[4..8].try_into().unwrap());
        match pages {
            1..=5 => {
                asked += 1;
                node.give(pages as u32);
            }
            -5..=-1 => {
                offered += 1;
                node.take_pages(pages.unsigned_abs());
            }
            _ => panic!("{pages} pages"),
        }
    }
    assert!(asked > 10 && offered > 10, "{asked} and {offered}");
}

#[test]
fn pages_come_back_in_small_numbers_or_not_at_all() {
    let mut node = Node::new(card(Quirks {
        seed: 1,
        keeps_pages: true,
        ..Quirks::default()
    }));
    node.enable();
    let mut numbers = Vec::new();
    while !node.given.is_empty() {
        numbers.push(node.take_pages(8));
        assert!(numbers.len() < 200, "{numbers:?}");
    }
    assert!(numbers.contains(&0), "{numbers:?}");
    assert!(numbers.iter().any(|number| (1..8).contains(number)));
    assert_eq!(node.model.pages_held(), 0);
}

#[test]
fn events_are_late_in_order_and_interrupts_are_repeated() {
    let mut node = Node::new(card(Quirks {
        seed: 5,
        event_delay: 10 * MS,
        interrupt_delay: 3 * MS,
        repeated_interrupts: 1000,
        ..Quirks::default()
    }));
    node.initialize();
    let eq = node.create_eq(7, 1 << PORT_CHANGE, 2);
    for up in [false, true, false, true, false, true] {
        node.model.set_link(&mut node.host, up);
    }
    let mut kinds = Vec::new();
    let mut at_once = true;
    for _ in 0..20 {
        while let Some((kind, sub, _)) = node.next_event(eq) {
            kinds.push((kind, sub));
        }
        at_once &= kinds.len() == 6;
        node.sleep(MS);
    }
    let (down, active) = ((PORT_CHANGE, 1), (PORT_CHANGE, 4));
    assert_eq!(kinds, [down, active, down, active, down, active]);
    assert!(!at_once);
    // It was armed once.
    assert_eq!(node.host.interrupts, [2, 2]);
}
