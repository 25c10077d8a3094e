//! Plays a report's commands in both directions.

use std::fmt::Write;
use std::sync::Arc;

use bareverbs_in_process::Builder;
use bareverbs_node::{DevicePlatform, Node, Options};
use connectx_model::{Card, Report};

use crate::Result;

/// Plays a report. Returns the text to print.
pub(crate) fn run(report: &Report, base: Option<Card>) -> Result<String> {
    let card = report.card(base)?;
    let recording = report.recording();
    if recording.exchanges().is_empty() {
        return Err("there is no command in it to play".into());
    }
    let mut text = String::new();
    for problem in recording.problems() {
        writeln!(text, "not read: {problem}")?;
    }
    let mut config = card.config(1);
    recording.identify(&mut config);
    let world = Builder::new().function(config.clone()).stepped();
    world.with_model(0, |model| model.replay(recording));
    let world = Arc::new(world);
    let node = Node::new(
        DevicePlatform::model(&world, 0),
        std::net::IpAddr::from([10, 0, 0, 1]),
        Options::default(),
    );
    let outcome = node.run(|_| Ok::<_, bareverbs_node::Error>(()));
    let all = recording.exchanges().len();
    let left = world.with_model(0, |model| model.replay_left());
    match outcome {
        Ok(()) => writeln!(text, "driver: came up and ended, as on the card's record")?,
        Err(error) => writeln!(text, "driver: {error}")?,
    }
    writeln!(text, "{} of {all} recorded answers were used", all - left)?;
    let differences = recording.play(config);
    for difference in &differences {
        writeln!(text, "{difference}")?;
    }
    writeln!(
        text,
        "model: {} fields are not as the card's",
        differences.len()
    )?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use connectx_model::Profile;

    /// Linux's commands to a ConnectX-4 Lx, which end in the middle of starting.
    const RECORDED: &str = include_str!("../../tests/model/tests/data/connectx-4-lx-bring-up.txt");

    #[test]
    fn a_log_of_linux_is_played_to_this_driver() {
        let report = Report::new("log", [("log.txt", RECORDED)]).expect("a log");
        let text = run(&report, Some(Card::ConnectX4Lx)).expect("played");
        assert!(text.contains("driver: came up"), "{text}");
        assert!(
            text.ends_with("model: 0 fields are not as the card's\n"),
            "{text}"
        );
        let profile = report.profile(Some(Card::ConnectX4Lx)).expect("a base");
        let card = Profile::parse("log", &profile).expect("a profile");
        assert_eq!(card.config(1).init_pages, 12_868);
    }

    #[test]
    fn what_the_card_refused_the_driver_says() {
        // The answer to the first CREATE_EQ gets a syndrome that the Snabb project saw of another command.
        let answer = "(0x301) OUTPUT\n000: 00000000 00000000";
        let refused = "(0x301) OUTPUT\n000: 08000000 0062bbc6";
        assert!(RECORDED.contains(answer));
        let log = RECORDED.replacen(answer, refused, 1);
        let report = Report::new("log", [("log.txt", log.as_str())]).expect("a log");
        let text = run(&report, Some(Card::ConnectX4Lx)).expect("played");
        assert!(text.contains("0x62bbc6"), "{text}");
        assert!(
            text.contains("CREATE_EQ(0x301) op_mod 0x0: status: the card 0x8 (a limit would be exceeded), the model 0x0"),
            "{text}"
        );
    }
}
