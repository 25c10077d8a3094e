//! Expected warnings, each with its reason.

use super::description::Scenario;
use connectx_model::Card;

/// Warnings of the guest's kernel.
const DRIVER: &[(&str, &str)] = &[
    (
        "Failed to get valid vendor specific ID",
        "the model has no vendor-specific capability: it serves crash dumps and nothing else",
    ),
    (
        "firmware level support is missing",
        "Linux 6.1 mentions that flow entries cannot lead to lower levels, which only tc's offloaded actions would do",
    ),
    (
        "Write combining is not supported",
        "newer kernels print the result of their test of it, which a scenario causes",
    ),
    (
        "hrtimer: interrupt took",
        "the kernel measures how long the machine that emulates it did not run it, and prints that once",
    ),
    (
        "sched: DL replenish lagged too much",
        "the same, for the scheduler's deadlines",
    ),
    (
        "hogged CPU for >",
        "the same, for work items that it counts four times: time in which the emulating machine did something else counts",
    ),
    (
        "No irq handler for",
        "the model's interrupts go through an eventfd and QEMU's main loop, not in order with the memory that they announce, so \
         that on a busy computer one arrives when its vector was given back",
    ),
];

/// The recorded card, and the one whose capabilities are assumed to be the same.
const LIKE_THE_RECORDED: &[Card] = &[Card::ConnectX4Lx, Card::ConnectX4];

/// Warnings of the guest's kernel that are allowed on these cards only.
const DRIVER_ON: &[(&[Card], &str, &str)] = &[
    (
        LIKE_THE_RECORDED,
        "Self loop back prevention is not supported",
        "the ConnectX-4 Lx that was recorded, and the ConnectX-4 that is assumed to be like it, do not offer it \
         (self_lb_en_modifiable)",
    ),
    (
        LIKE_THE_RECORDED,
        "invalid device_frequency_khz, aborting HW clock init",
        "the recorded ConnectX-4 Lx, and the ConnectX-4, which is assumed to be like it, report their frequency in MHz \
         only",
    ),
];

/// Warnings of the model.
const MODEL: &[(&str, &str)] = &[(
    "health: syndrome 0x1",
    "the rig had the firmware stop, in a scenario that is about that",
)];

fn find(list: &[(&'static str, &str)], line: &str) -> Option<&'static str> {
    let known = list.iter().find(|(known, _)| line.contains(known))?;
    Some(known.0)
}

/// The card is the one that was asked for, if one was.
pub(super) fn by_driver(card: Option<Card>, line: &str) -> Option<&'static str> {
    let of_card = || {
        let mut known = DRIVER_ON.iter();
        known
            .find(|(of, text, _)| {
                card.is_some_and(|card| of.contains(&card)) && line.contains(text)
            })
            .map(|(_, text, _)| *text)
    };
    find(DRIVER, line).or_else(of_card)
}

pub(super) fn by_model(line: &str) -> Option<&'static str> {
    find(MODEL, line)
}

/// Why a warning is explained, or excused by one of these scenarios.
pub(in super::super) fn reason(known: &str, scenarios: &[Scenario]) -> &'static str {
    let allowances = scenarios
        .iter()
        .flat_map(|scenario| scenario.model_may_warn);
    let rounds = scenarios.iter().flat_map(|scenario| scenario.rounds);
    let ends = rounds.clone().filter_map(|boot| boot.known_abort.as_ref());
    let allowed = rounds.flat_map(|boot| boot.driver_may_warn);
    let allowed = allowed.map(|(_, text, reason)| (*text, *reason));
    let of_cards = DRIVER_ON.iter().map(|(_, text, reason)| (*text, *reason));
    let all = DRIVER.iter().chain(MODEL).chain(allowances).chain(ends);
    let mut all = all.copied().chain(allowed).chain(of_cards);
    all.find(|(text, _)| *text == known)
        .map_or("", |(_, reason)| reason)
}
