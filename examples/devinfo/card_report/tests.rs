//! Reports of models that work and of models that fail, unpacked again.

use std::collections::BTreeMap;

use bareverbs::verbs::firmware_cmds::opcode::Opcode;
use bareverbs_in_process::{Builder, ModelPlatform, World};
use connectx_model::syndrome::Status;
use connectx_model::{Card, CommandFault, CommandRule, Config as Model, Faults};

use super::*;

type Files = BTreeMap<String, String>;

/// The model of a card with addresses that are found nowhere by accident.
fn model(card: Card) -> Model {
    let mut card = Model::card(card, 1);
    card.mac = MAC;
    card.node_guid = 0x248a_0703_00b1_2345;
    card.port_guid = 0x248a_0703_00b1_2346;
    card.system_image_guid = 0x248a_0703_00b1_2347;
    card
}

const MAC: [u8; 6] = [0x24, 0x8a, 0x07, 0xb1, 0x23, 0x45];

fn collected(world: &World) -> Arc<Report> {
    let open = |_| {
        Ok(Opened::<ModelPlatform> {
            platform: world.platform(0),
            text: "a model\n".into(),
            vectors: Some(16),
        })
    };
    let (name, address) = ("model".into(), None);
    let function = Function {
        name,
        address,
        open,
    };
    let report = Arc::new(Report::new(false));
    collect(&function, &report);
    report
}

/// The files as they are read from the archive.
fn unpacked(report: &Report, identify: bool, why: Option<&str>) -> Files {
    let (files, _) = report.files(identify, why);
    let mut packed = Vec::new();
    archive::write(&files, &mut packed).unwrap();
    archive::read(&packed)
}

fn report(card: Model, fault: impl FnOnce(&mut connectx_model::Model)) -> Files {
    let world = Builder::new().function(card).interrupts(2).stepped();
    world.with_model(0, fault);
    unpacked(&collected(&world), false, None)
}

/// The outcome of each part in `parts.txt`.
fn outcomes(files: &Files) -> BTreeMap<&str, &str> {
    let lines = files["parts.txt"].lines();
    let outcomes: BTreeMap<&str, &str> = lines.filter_map(|line| line.split_once(": ")).collect();
    assert_eq!(outcomes.len(), collection::PARTS.len());
    outcomes
}

#[test]
fn each_card_shows_all_of_itself() {
    for &card in Card::ALL {
        let files = report(model(card), |_| {});
        let name = card.name();
        for (part, outcome) in outcomes(&files) {
            match part {
                "pci" | "iommu" => assert!(outcome.starts_with("not tried: "), "{name} {outcome}"),
                // A virtual function has neither.
                "module" | "temperature" if name == "bluefield-vf" => {}
                // What the card lacks is no fault of the platform.
                "conformance" if name.starts_with("connectx-4") => {
                    let text = &files["conformance.txt"];
                    let lacks = |line: &str| line.contains("the card has no force loopback");
                    let skips = text.lines().filter(|line| line.starts_with("SKIP"));
                    assert_eq!(skips.filter(|line| lacks(line)).count(), 2, "{text}");
                    assert!(text.ends_with("2 of 2 were skipped\n"), "{text}");
                    assert_eq!(outcome, "ok", "{name} {part}");
                }
                _ => assert_eq!(outcome, "ok", "{name} {part}"),
            }
        }
        let about = &files["about.txt"];
        assert!(about.contains("identifiers replaced: yes\n"), "{about}");
        let text = &files["capabilities.txt"];
        for title in [
            "general (capability type 0), current",
            "roce (capability type 4), maximum",
        ] {
            let title = format!("## QUERY_HCA_CAP {title}\n000: ");
            assert!(text.contains(&title), "{name}: {title}");
        }
        // The report asked for types that the model does not have.
        assert!(text.contains("# QUERY_HCA_CAP unknown (capability type 62), current: refused: "));
        let health = &files["health.txt"];
        assert!(
            health.contains("## health buffer, before\n000: "),
            "{health}"
        );
        assert!(
            health.contains("## health buffer, after\n000: "),
            "{health}"
        );
        assert!(files["init-segment.txt"].starts_with("## init segment\n000: "));
    }
}

/// Hexadecimal digits and letters of a file, without what lies between those of a dump.
fn digits(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let values = line.rsplit_once(": ").map_or(line, |(_, values)| values);
        values
            .to_lowercase()
            .replace(|it: char| !it.is_ascii_alphanumeric(), "")
    });
    lines.collect()
}

#[test]
fn nothing_identifies_the_card_unless_it_is_to() {
    // This is the serial number of the model's module.
    let serial = "BV000001";
    for (card, infiniband) in [
        (Card::ConnectX5, false),
        (Card::ConnectX5, true),
        (Card::ConnectX7, false),
    ] {
        let has_vuid = card == Card::ConnectX7;
        let mut card = model(card);
        if infiniband {
            card = card.infiniband();
        }
        let world = Builder::new().function(card).interrupts(2).stepped();
        let report = collected(&world);
        let whole = unpacked(&report, true, None);
        let hidden = unpacked(&report, false, None);
        let mut found = 0;
        let hex = |bytes: &[u8]| {
            bytes
                .iter()
                .map(|it| format!("{it:02x}"))
                .collect::<String>()
        };
        let reversed = |bytes: &[u8]| hex(&bytes.iter().rev().copied().collect::<Vec<_>>());
        let mut wanted = vec![hex(serial.as_bytes()), serial.to_lowercase()];
        for guid in 0x248a_0703_00b1_2345_u64..=0x248a_0703_00b1_2347 {
            wanted.push(hex(&guid.to_be_bytes()));
            wanted.push(reversed(&guid.to_be_bytes()));
            wanted.push(guid.to_string());
        }
        if has_vuid {
            wanted.push(hex(b"BR248A070300B12347"));
            for file in [&whole["contexts.txt"], &hidden["contexts.txt"]] {
                assert!(file.contains("## QUERY_VUID\n000: "), "{file}");
                assert!(digits(file).contains(&hex(b"MLNXS0D0F0")), "{file}");
            }
        }
        if !infiniband {
            wanted.extend([hex(&MAC), reversed(&MAC), "40175253136197".into()]);
            // An IPv6 address has these forms.
            wanted.extend(["268a07fffeb12345".into(), "268a7fffeb12345".into()]);
        }
        for text in wanted {
            for (name, file) in &hidden {
                assert!(!digits(file).contains(&text), "{text} is in {name}");
            }
            found += usize::from(whole.values().any(|file| digits(file).contains(&text)));
        }
        // These are the serial number in two forms, the GUIDs, and on Ethernet the MAC address.
        let least = if infiniband { 4 } else { 5 } + usize::from(has_vuid);
        assert!(found >= least, "{found}");
        let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&whole), names(&hidden));
        assert_eq!(whole["parts.txt"], hidden["parts.txt"]);
    }
}

/// The report of a card with this fault.
fn with_fault(fault: impl FnOnce(&mut connectx_model::Model)) -> Files {
    let files = report(model(Card::ConnectX5), fault);
    // Every report has these files.
    for file in ["about.txt", "init-segment.txt", "health.txt", "latency.txt"] {
        assert!(!files[file].is_empty(), "{file}");
    }
    files
}

fn with_rule(rule: CommandRule) -> Files {
    with_fault(|model| model.faults_mut().commands.push(rule))
}

fn refuse(opcode: u16, skip: u32) -> CommandRule {
    let (status, syndrome) = (Status::NoResources, 0x1234);
    let fault = CommandFault::Fail { status, syndrome };
    CommandRule {
        skip,
        ..CommandRule::next(opcode, fault)
    }
}

#[test]
fn a_card_that_does_not_come_up_says_where_it_stopped() {
    let set =
        |work: fn(&mut Faults)| move |model: &mut connectx_model::Model| work(model.faults_mut());
    let dropped = CommandRule::next(0x102, CommandFault::Drop);
    let corrupt = CommandFault::Corrupt { at: 12, with: 0xff };
    for (files, why) in [
        (
            with_fault(set(|faults| faults.never_boots = true)),
            "firmware",
        ),
        (with_fault(|model| model.vanish()), "gone"),
        (with_rule(refuse(0x104, 0)), "ENABLE_HCA"),
        (with_rule(refuse(0x100, 0)), "QUERY_HCA_CAP"),
        (with_rule(refuse(0x802, 0)), "ALLOC_UAR"),
        (with_rule(dropped), "INIT_HCA"),
        (
            with_rule(CommandRule::next(0x107, CommandFault::Delivery(9))),
            "QUERY_PAGES",
        ),
        (with_rule(CommandRule::next(0x107, corrupt)), "pages"),
    ] {
        let outcomes = outcomes(&files);
        let bring_up = outcomes["bring-up"];
        assert!(
            bring_up.starts_with("failed: ") && bring_up.contains(why),
            "{why}: {bring_up}"
        );
        assert_eq!(outcomes["capabilities"], "not tried: bring-up failed");
        assert_eq!(outcomes["selftest"], "not tried: bring-up failed");
        assert_eq!(outcomes["latency"], "ok");
        let health = &files["health.txt"];
        assert!(health.contains("## health buffer, after"), "{health}");
    }
}

#[test]
fn a_card_that_fails_half_way_leaves_the_rest() {
    // Bring-up does not send this command.
    let files = with_rule(refuse(0x754, 0));
    assert_eq!(outcomes(&files)["port"], "ok");
    assert!(files["port.txt"].contains("# QUERY_NIC_VPORT_CONTEXT: refused: "));

    let lost = CommandRule {
        skip: 10,
        ..CommandRule::next(0x805, CommandFault::DropAnswer)
    };
    let files = with_rule(lost);
    let found = outcomes(&files);
    let why = found["registers"];
    assert!(why.starts_with("failed: ACCESS_REG"), "{why}");
    assert!(files["registers.txt"].contains("## PAOS"));
    assert_eq!(found["capabilities"], "ok");

    let files = with_fault(|model| model.faults_mut().lose_interrupts = true);
    let found = outcomes(&files);
    assert!(found["selftest"].contains("\"interrupt\""), "{found:?}");
    assert!(files["selftest.txt"].contains("\nFAIL  interrupt"));
    assert!(files["selftest.txt"].contains("\nPASS  write"));
}

#[test]
fn an_interrupt_leaves_what_was_there() {
    let world = Builder::new().function(model(Card::ConnectX5)).stepped();
    let (name, address) = ("model".into(), None);
    let report = Arc::new(Report::new(false));
    let seen = report.clone();
    // The file is written from another thread while the function is opened once more, for the conformance test.
    let opened = std::cell::Cell::new(0);
    let taken = std::cell::RefCell::new(None);
    let open = |_| {
        opened.set(opened.get() + 1);
        if opened.get() == 2 {
            let files = std::thread::scope(|scope| {
                let written = || unpacked(&seen, false, Some("interrupted by SIGINT"));
                scope.spawn(written).join()
            });
            taken.replace(Some(files.unwrap()));
        }
        Ok(Opened::<ModelPlatform> {
            platform: world.platform(0),
            text: String::new(),
            vectors: None,
        })
    };
    let function = Function {
        name,
        address,
        open,
    };
    collect(&function, &report);
    let files = taken.take().expect("opened twice");
    let found = outcomes(&files);
    assert_eq!(found["capabilities"], "ok");
    assert_eq!(found["conformance"], "failed: interrupted by SIGINT");
    assert_eq!(found["latency"], "not tried: interrupted by SIGINT");
    assert!(files["commands.txt"].contains("dump command INIT_HCA"));
    assert!(files["recorder.txt"].contains("INIT_HCA"));
}

#[test]
fn an_interrupted_card_is_asked_for_its_health() {
    let world = Builder::new().function(model(Card::ConnectX5)).stepped();
    let report = Report::new(false);
    let platform = world.platform(0);
    report.collection.begin("bring-up");
    report.look(Some(Arc::new(move |collection| {
        firmware::health(&platform, "after", collection)
    })));
    world.with_model(0, |model| model.fail_health(7, 0x1234));
    report.interrupted();
    let files = unpacked(&report, false, Some("interrupted by SIGTERM"));
    let found = outcomes(&files);
    assert_eq!(found["bring-up"], "failed: interrupted by SIGTERM");
    assert_eq!(found["health-after"], "ok");
    assert!(files["health.txt"].contains("# synd 0x7\n"), "{files:?}");
}

/// `profile --from` makes of a report the card that it describes.
#[test]
fn a_report_makes_the_card_again() {
    for &card in Card::ALL {
        // The report of a card that comes up takes long, so that only two cards make one.
        let both = matches!(card, Card::ConnectX4Lx | Card::BlueFieldEcpf);
        for fails in [true, false].into_iter().take(1 + usize::from(both)) {
            let files = report(model(card), |model| {
                if fails {
                    let status = Status::Limit;
                    let syndrome = 0x62_bbc6;
                    let fault = CommandFault::Fail { status, syndrome };
                    let opcode = Opcode::CreateEq.number();
                    let rules = &mut model.faults_mut().commands;
                    rules.push(CommandRule::next(opcode, fault));
                }
            });
            let files = files
                .iter()
                .map(|(name, text)| (name.as_str(), text.as_str()));
            let read = connectx_model::Report::new(card.name(), files).unwrap();
            let made = read.card(Some(card)).unwrap().config(1);
            let mut original = Model::card(card, 1);
            // `collected` says 16 vectors.
            original.msix_vectors = 16;
            let [made, original] = [made, original].map(|card| format!("{card:#?}"));
            for (made, original) in made.lines().zip(original.lines()) {
                assert_eq!(made, original, "{card}, {fails}");
            }
            assert_eq!(made.len(), original.len(), "{card}, {fails}");
        }
    }
}
