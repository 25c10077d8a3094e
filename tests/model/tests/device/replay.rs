//! Plays recorded commands to the model, and makes profiles of them.

use connectx_model::card::{ReportError, Source};
use connectx_model::{Card, Config, Profile, Recording, Report};

/// The commands of Linux's driver to a ConnectX-4 Lx, with the answers.
const BRING_UP: &str = include_str!("../data/connectx-4-lx-bring-up.txt");
/// The capabilities of the same card as dumps.
const DUMPS: &str = include_str!("../data/connectx-4-lx-14.12.1220.txt");
/// The capabilities of a more recent card, whose kind the source does not say.
const RECENT: &str = include_str!("../data/recent-card.txt");

fn differences(recording: &Recording, card: Config) -> Vec<String> {
    let found = recording.play(card);
    found.iter().map(ToString::to_string).collect()
}

fn report(text: &str) -> Report {
    Report::new("a recording", [("log.txt", text)]).expect("a recording")
}

fn same(one: &Config, other: &Config) {
    assert_eq!(format!("{one:#?}"), format!("{other:#?}"));
}

/// The card's file was made from other lines of the same log, by hand.
#[test]
fn the_model_of_a_recorded_card_answers_as_the_card_did() {
    let recording = Recording::read(BRING_UP);
    assert_eq!(recording.problems(), [] as [String; 0]);
    assert_eq!(recording.exchanges().len(), 42);
    let differences = differences(&recording, Config::card(Card::ConnectX4Lx, 1));
    assert_eq!(differences, [] as [String; 0]);
}

/// Another card's model answers the same commands with other values, and these are listed by field.
#[test]
fn another_cards_model_answers_differently() {
    let recording = Recording::read(BRING_UP);
    let found = differences(&recording, Config::card(Card::ConnectX5, 1));
    for part in [
        "QUERY_PAGES(0x107) op_mod 0x1: num_pages: the card 0x6, the model ",
        "cmd_hca_cap.uar_sz: the card 0x5, the model 0x0",
        "QUERY_ADAPTER(0x101) op_mod 0x0: query_adapter_struct.vsd_contd_psid: the card 4d545f",
    ] {
        assert!(
            found.iter().any(|line| line.contains(part)),
            "{part}: {found:#?}"
        );
    }
}

#[test]
fn a_drivers_log_and_dumps_of_a_card_give_the_profile_that_was_made_by_hand() {
    let by_hand = Profile::from(Card::ConnectX4Lx);
    let log = format!("mlx5_core 0000:02:00.0: firmware version: 14.12.1220\n{BRING_UP}");
    for (what, text) in [("log", log.as_str()), ("dumps", DUMPS)] {
        let report = report(text);
        let base = (what == "dumps").then_some(Card::ConnectX4Lx);
        let card = report
            .card(base)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        same(&card.config(1), &by_hand.config(1));
        same(&card.modelled(1), &by_hand.modelled(1));
        for section in [
            "general",
            "general max",
            "roce",
            "atomic",
            "ethernet",
            "flow",
        ] {
            let hex = |value: &&connectx_model::card::Value| {
                value.section == section && value.field == "hex"
            };
            let source = card.values().iter().find(hex).map(|value| value.source);
            assert_eq!(source, Some(Source::Recorded), "{what}: {section}");
        }
        let pages = card
            .values()
            .iter()
            .find(|value| value.field == "init_pages");
        let expected = [Source::Recorded, Source::Assumed][usize::from(what == "dumps")];
        assert_eq!(pages.map(|value| value.source), Some(expected), "{what}");
    }
}

#[test]
fn a_report_without_a_cards_name_needs_a_base() {
    let report = report(RECENT);
    assert_eq!(report.profile(None).unwrap_err(), ReportError::NoBase);
    let text = report.profile(Some(Card::ConnectX7)).expect("a base");
    let card = Profile::parse("recent", &text).expect("a profile");
    let config = card.config(1);
    let base = Config::card(Card::ConnectX7, 1);
    // One value each is from the recording, from the base, and withheld.
    assert_eq!(config.general.log_max_qp_sz(), 15);
    assert_eq!(config.general.0[0x58..0x5c], [0x00, 0x80, 0x01, 0x00]);
    assert_eq!(config.init_pages, base.init_pages);
    let source = |section: &str, field: &str| {
        let mut all = card.values().iter();
        let value = all.find(|value| value.section == section && value.field == field);
        value.map(|value| value.source)
    };
    assert_eq!(source("function", "init_pages"), Some(Source::Assumed));
    assert_eq!(source("flow", "hex"), Some(Source::Assumed));
    assert_eq!(
        source("general", "release_all_pages"),
        Some(Source::Withheld)
    );
    assert!(!config.general.release_all_pages());
    assert!(
        text.contains("[general max]\n# The report has the current values only"),
        "{text}"
    );
}

#[test]
fn what_is_wrong_with_a_report_is_said() {
    let error = |text: &str| Report::new("r", [("capabilities.txt", text)]).unwrap_err();
    assert!(matches!(
        error("nothing\n010: of a card"),
        ReportError::Nothing { .. }
    ));
    let title = "## general (capability type 0), current\n";
    let short = error(&format!("{title}010: 00000001 00000002"));
    assert!(matches!(short, ReportError::Nothing { .. }), "{short}");
    for row in [
        "ff4: 00000001 00000002 00000003 00000004",
        "011: 00000001 00000002 00000003 00000004",
        "010: 00000001 0000000x 00000003 00000004",
    ] {
        let error = error(&format!("{title}{row}\n"));
        let ReportError::Line { file, line, .. } = &error else {
            panic!("{row}: {error}");
        };
        assert_eq!((file.as_str(), *line), ("capabilities.txt", 2), "{row}");
    }
}
