//! Makes a model of a card from the driver's log of it, and plays the log to the driver, which fails as it did on that card.

use std::cell::RefCell;
use std::fmt::Write;
use std::time::Duration;

use bareverbs_core::firmware_cmds::dump::LOG_TARGET;
use bareverbs_core::firmware_cmds::opcode::Opcode;
use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_in_process::{Builder, World};
use connectx_model::{
    Card, CommandFault, CommandRule, Config as CardConfig, Profile, Recording, Report, Status,
};

type Memory = Resources<Qps<4>, Cqs<4>, Srqs<2>, PageChunks<64>>;

thread_local! {
    static LINES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the driver's commands, as a file with `RUST_LOG=mlx5_cmd=trace` does. The driver and its model run in the thread of the
/// test.
struct Commands;

impl log::Log for Commands {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target() == LOG_TARGET
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            LINES.with_borrow_mut(|lines| {
                writeln!(lines, "[0.000000001] {}", record.args()).expect("memory")
            });
        }
    }

    fn flush(&self) {}
}

/// Runs `f`. Returns its value and the log of its commands.
fn logged<T>(f: impl FnOnce() -> T) -> (T, String) {
    // Only the first test of the process can set it.
    let _ = log::set_logger(&Commands);
    log::set_max_level(log::LevelFilter::Trace);
    LINES.take();
    let result = f();
    (result, LINES.take())
}

fn world(card: CardConfig) -> World {
    Builder::new()
        .function(card)
        .function(CardConfig::new(9))
        .stepped()
}

/// Brings the driver up and takes it down again. Returns the result as text.
fn run(world: &World) -> String {
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_millis(50);
    config.teardown_timeout = Duration::from_millis(50);
    let mut memory = Memory::new();
    let opened = Device::open(world.platform(0), config, memory.storage());
    let device = match opened {
        Ok(device) => device,
        Err(error) => return format!("opening: {error}"),
    };
    let pd = device.alloc_pd().map(drop);
    match (pd, device.close()) {
        (Ok(()), Ok(())) => "well".to_owned(),
        (pd, closed) => format!("{pd:?}, {closed:?}"),
    }
}

/// A report's files, as `devinfo --report` names them, from a log and what is known of the card from elsewhere.
fn report(card: &CardConfig, commands: &str) -> Report {
    let about = format!(
        "pci ids: {:04x}:{:04x}\nbar size: {:#x}\nmsix vectors: {}\n",
        card.vendor_id, card.device_id, card.bar_size, card.msix_vectors
    );
    let (major, minor, sub) = card.firmware;
    let queue = card.log_cmdq_size << 4 | card.log_cmdq_stride;
    let init = format!(
        "## init segment\n000: {minor:04x}{major:04x} 0005{sub:04x} 00000000 00000000\n\
         010: 00000000 {queue:08x} 00000000 00000000\n1f0: 00000000 00000000 00000000 {:08x}\n",
        u32::from(card.embedded_cpu) << 23
    );
    let files = [
        ("about.txt", about.as_str()),
        ("commands.txt", commands),
        ("init-segment.txt", init.as_str()),
    ];
    Report::new("a report", files).expect("a report")
}

#[test]
fn the_log_of_a_driver_makes_the_same_card() {
    for &card in Card::ALL {
        let original = CardConfig::card(card, 1);
        let (ended, log) = logged(|| run(&world(original.clone())));
        assert_eq!(ended, "well", "{card}");
        let report = report(&original, &log);
        assert_eq!(report.recording().problems(), [] as [String; 0], "{card}");
        let text = report
            .profile(None)
            .unwrap_or_else(|error| panic!("{card}: {error}"));
        let made = Profile::parse("made", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        // The model's behaviour depends on the configuration alone.
        same(card, &made.config(1), &original);
        same(card, &made.modelled(1), &CardConfig::modelled(card, 1));
        for value in ["device_id", "first_eqn", "first_uar", "firmware"] {
            assert!(
                text.lines()
                    .any(|line| line.starts_with(value) && line.ends_with(" (report)")),
                "{card}: {value} was recorded:\n{text}"
            );
        }
        // The model gives the same answers, also to the recorded commands.
        let differences = report.recording().play(made.config(1));
        let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
        assert_eq!(differences, [] as [String; 0], "{card}");
    }
}

/// Checks that two cards are the same.
fn same(card: Card, one: &CardConfig, other: &CardConfig) {
    let [one, other] = [one, other].map(|config| format!("{config:#?}"));
    for (one, other) in one.lines().zip(other.lines()) {
        assert_eq!(one, other, "{card}");
    }
    assert_eq!(one.len(), other.len(), "{card}");
}

/// Ten ways for a card to fail.
fn faults() -> [CommandRule; 10] {
    let fail = |status, syndrome| CommandFault::Fail { status, syndrome };
    let next = |opcode: Opcode, fault| CommandRule::next(opcode.number(), fault);
    [
        next(Opcode::EnableHca, fail(Status::BadSystemState, 0x1111)),
        next(Opcode::SetHcaCap, fail(Status::BadParam, 0x66)),
        next(Opcode::SetIssi, fail(Status::BadParam, 0x3c5a71)),
        next(Opcode::QueryPages, CommandFault::Delivery(0x7)),
        next(Opcode::ManagePages, fail(Status::NoResources, 0x22)),
        next(Opcode::QueryHcaCap, fail(Status::InternalError, 0x33)),
        next(Opcode::InitHca, CommandFault::Drop),
        next(Opcode::CreateEq, fail(Status::Limit, 0x62_bbc6)),
        next(Opcode::QueryNicVportContext, fail(Status::BadOp, 0x44)),
        next(Opcode::AllocPd, fail(Status::NoResources, 0x55)),
    ]
}

/// The opcodes of a log's commands.
fn asked(log: &str) -> Vec<u16> {
    let recording = Recording::read(log);
    let all = recording.exchanges().iter().map(|one| one.opcode);
    all.collect()
}

#[test]
fn a_recorded_failure_is_played_to_the_driver_again() {
    for &card in Card::ALL {
        let mut failures = 0;
        for rule in faults() {
            let original = CardConfig::card(card, 1);
            let broken = world(original.clone());
            broken.with_model(0, |model| model.faults_mut().commands.push(rule));
            let (failed, log) = logged(|| run(&broken));
            // A virtual function is asked for no pages.
            if !asked(&log).iter().any(|&one| Some(one) == rule.opcode) {
                continue;
            }
            failures += usize::from(failed != "well");
            // The report of a card that failed half way lacks values, and those are the built-in card's.
            let report = report(&original, &log);
            let made = report
                .card(None)
                .unwrap_or_else(|error| panic!("{card}: {error}"));
            let again = world(made.config(1));
            again.with_model(0, |model| model.replay(report.recording()));
            let (failed_again, second) = logged(|| run(&again));
            assert_eq!(failed_again, failed, "{card}: {rule:?}");
            assert_eq!(asked(&second), asked(&log), "{card}: {rule:?}");
            // The model without the fault differs from the card in the command that failed.
            let differences = report.recording().play(made.config(1));
            assert_eq!(
                differences
                    .first()
                    .map(|first| (first.opcode, first.field.as_str())),
                rule.opcode.map(|opcode| (opcode, "status")),
                "{card}: {rule:?}"
            );
        }
        // The driver tolerates some of the faults.
        assert!(failures >= 7, "{card}: {failures}");
    }
}
