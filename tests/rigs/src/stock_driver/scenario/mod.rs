//! Runs a scenario's guests and checks their results.

mod description;
mod explained;
mod table;

use super::machine::{Places, Round};
use super::provision::Provisions;
use super::report::Report;
use super::rig::Rig;
use super::server::{self, Server};
use super::transcript::{Step, Transcript};
use crate::wireshark::{self, Recording};
use connectx_model::Card;
use std::path::Path;
use std::time::Duration;

pub(crate) use description::{Boot, Loader, Scenario};
pub(super) use explained::reason;
pub(super) use table::ALL;
pub(crate) use table::{BOOT, SCENARIO};

/// Kernel log level of warnings; lower is worse.
const WARNING: u8 = 4;

/// The most runs of a round in which QEMU aborts in the known way before the last step has ended.
const ATTEMPTS: usize = 5;

/// Begins a line of a step's output that goes to the report if the step succeeds.
const NOTE: &str = "note: ";

impl Scenario {
    pub(super) fn run(
        &self,
        provisions: &Provisions,
        rig: &Rig,
        card: Option<Card>,
        logs: &Path,
        sockets: &Path,
    ) -> Result<Report, String> {
        let mut report = Report::default();
        let mut arguments = self.model.to_vec();
        if let Some(card) = card {
            arguments.extend(["--card", card.name(), "--modelled"]);
        }
        let mut server = Server::start(logs, sockets, self.functions, &arguments)?;
        for (index, boot) in self.rounds.iter().enumerate() {
            let many = self.rounds.len() > 1;
            let prefix = if many {
                format!("{}-", index + 1)
            } else {
                String::new()
            };
            let round = Round {
                name: &prefix,
                machines: boot.machines,
                script: boot.script,
                programs: &rig.programs,
                ours: &rig.ours,
                here: boot.here,
                record: boot.record,
                processors: boot.processors,
                memory: boot.memory,
                iommu: boot.iommu,
                network: boot.network,
                shared_slot: boot.shared_slot,
                buttons: boot.buttons,
                known_abort: boot.known_abort.map(|(text, _)| text),
                boots_twice: boot.boots_twice,
                loader: boot.loader.as_ref(),
                limit: Duration::from_secs(60 * boot.limit),
            };
            let places = Places { logs, sockets };
            let planned = (0..boot.machines.len())
                .map(|machine| boot.steps(machine))
                .collect::<Result<Vec<_>, String>>()?;
            let mut attempts = 1..=ATTEMPTS;
            let mut ran = loop {
                attempts.next();
                let ran = round.run(provisions, &places, &mut server)?;
                if !ran.cut_short(&planned) || attempts.is_empty() {
                    break ran;
                }
                report.line(&format!(
                    "  round {}: QEMU ended before the last step, so it is run again",
                    index + 1
                ));
            };
            if let (true, Some((text, _))) = (ran.died, boot.known_abort) {
                report.explain(text);
                for transcript in &mut ran.transcripts {
                    transcript.ended = true;
                }
            }
            for wrong in ran.wrong {
                report.check(false, || format!("{} {prefix}{wrong}", self.name));
            }
            for (machine, (transcript, planned)) in ran.transcripts.iter().zip(&planned).enumerate()
            {
                let name = format!("{prefix}{machine}");
                check_machine(&name, boot, card, planned, transcript, &mut report);
            }
            boot.check(&prefix, &ran.transcripts, &mut report);
            if boot.record {
                self.judge(&places.record(&prefix), boot.filters, sockets, &mut report)?;
            }
        }
        if let Some(how) = server.ended() {
            report.check(false, || format!("{}: {how}", self.name));
        }
        let log = server.stop()?;
        if self.functions > 1 {
            self.judge(&server::record(logs), &[], sockets, &mut report)?;
        }
        for wanted in self.model_logs {
            report.check(log.iter().any(|line| line.contains(wanted)), || {
                format!("{}: the model's log has no {wanted:?}", self.name)
            });
        }
        let mut complaints = Vec::new();
        for line in log.iter().filter(|line| Server::is_warning(line)) {
            let allowance = self
                .model_may_warn
                .iter()
                .find(|(text, _)| line.contains(text));
            match explained::by_model(line).or(allowance.map(|(text, _)| *text)) {
                Some(known) => report.explain(known),
                None => complaints.push(line.as_str()),
            }
        }
        report.check(complaints.is_empty(), || {
            let first = complaints[..complaints.len().min(20)].join("\n  ");
            format!("{}: the model warns:\n  {first}", self.name)
        });
        Ok(report)
    }

    /// Shows tshark what went over a wire.
    fn judge(
        &self,
        file: &Path,
        filters: &[&str],
        work: &Path,
        report: &mut Report,
    ) -> Result<(), String> {
        let recording = Recording {
            file,
            filters,
            roce: self.roce,
            damaged: self.damaged,
        };
        let verdict = wireshark::judge(recording, work)?;
        report.line(&format!("  {}", verdict.about));
        for (what, problems) in verdict.checks {
            report.check(problems.is_empty(), || {
                let first = problems[..problems.len().min(20)].join("\n  ");
                let name = self.name;
                format!(
                    "{name}: {}: {what}: {} not:\n  {first}",
                    file.display(),
                    problems.len()
                )
            });
        }
        Ok(())
    }
}

fn check_machine(
    name: &str,
    boot: &Boot,
    card: Option<Card>,
    planned: &[String],
    transcript: &Transcript,
    report: &mut Report,
) {
    if !transcript.ended {
        let rest = transcript.rest.iter().rev().take(40).rev();
        for line in rest {
            report.line(&format!("    {line}"));
        }
    }
    report.check(transcript.ended, || {
        format!("machine {name}: the script did not come to its end")
    });
    for step in &transcript.steps {
        let before = report.failed;
        check_step(name, boot, card, step, report);
        if report.failed == before {
            let took = step.took.as_secs_f32();
            report.line(&format!("  machine {name}: {} ({took:.1} s)", step.name));
            let notes = step.output.iter();
            for note in notes.filter_map(|line| line.strip_prefix(NOTE)) {
                report.line(&format!("    {note}"));
            }
        }
    }
    let lines = transcript.steps.iter().flat_map(|step| {
        let lines = step.log.iter();
        lines.filter(|(_, text)| boot.allowed(step, text).is_some())
    });
    let times = lines.count();
    if times > boot.driver_may_warn_times {
        report.check(false, || {
            format!("machine {name}: {times} warnings that may come now and then")
        });
    }
    let ran: Vec<&String> = transcript.steps.iter().map(|step| &step.name).collect();
    let missing: Vec<&String> = planned.iter().filter(|name| !ran.contains(name)).collect();
    report.check(missing.is_empty(), || {
        format!("machine {name}: steps that never ran: {missing:?}")
    });
}

fn check_step(name: &str, boot: &Boot, card: Option<Card>, step: &Step, report: &mut Report) {
    report.check(step.status == Some(0), || {
        let output = step.output.join("\n    ");
        let status = step.status.map_or("did not end".to_string(), |status| {
            format!("exit status {status}")
        });
        format!("machine {name}: {}: {status}\n    {output}", step.name)
    });
    if boot
        .driver_warns
        .iter()
        .any(|(step_name, _)| *step_name == step.name)
    {
        return;
    }
    for (level, text) in &step.log {
        if *level <= WARNING {
            match explained::by_driver(card, text).or_else(|| boot.allowed(step, text)) {
                Some(known) => report.explain(known),
                None => report.check(false, || format!("machine {name}: {}: {text}", step.name)),
            }
        }
    }
}

impl Boot {
    /// The text of the list of warnings that may come in a step by which this one is allowed.
    fn allowed(&self, step: &Step, line: &str) -> Option<&'static str> {
        let mut allowed = self.driver_may_warn.iter();
        let known = allowed.find(|(of, text, _)| *of == step.name && line.contains(text))?;
        Some(known.1)
    }

    fn check(&self, prefix: &str, transcripts: &[Transcript], report: &mut Report) {
        let named = |wanted: &str| {
            let steps = transcripts.iter().flat_map(|transcript| &transcript.steps);
            let wanted = wanted.to_string();
            steps.filter(move |step| step.name == wanted)
        };
        for (wanted, text) in self.driver_warns {
            let complained = |step: &Step| step.log.iter().any(|(_, line)| line.contains(text));
            report.check(named(wanted).any(complained), || {
                format!("{prefix}{wanted}: the driver did not log {text:?}")
            });
        }
        for (wanted, text) in self.prints {
            let printed = |step: &Step| step.output.iter().any(|line| line.contains(text));
            // This computer and a guest run different commands, so only one of them is meant.
            let good = match self.here {
                Some(_) => named(wanted).any(printed),
                None => named(wanted).next().is_some() && named(wanted).all(printed),
            };
            report.check(good, || format!("{prefix}{wanted}: did not print {text:?}"));
        }
    }
}

/// That every script can be planned, and that what is expected is expected of steps that it has.
#[cfg(test)]
pub(crate) fn check_plans(all_scenarios: &[Scenario]) {
    for scenario in all_scenarios {
        for boot in scenario.rounds {
            let mut all = Vec::new();
            for machine in 0..boot.machines.len() {
                let steps = boot.steps(machine).unwrap();
                assert!(!steps.is_empty(), "{}", scenario.name);
                all.extend(steps);
            }
            let allowed = boot
                .driver_may_warn
                .iter()
                .map(|(step, text, _)| (step, text));
            let wanted = boot.prints.iter().chain(boot.driver_warns);
            for (step, text) in wanted.map(|(step, text)| (step, text)).chain(allowed) {
                assert!(
                    all.iter().any(|name| name == step),
                    "{}: no step {step:?}, which is to say {text:?}",
                    scenario.name
                );
            }
            let functions = boot.machines.iter().flat_map(|functions| *functions);
            assert!(
                functions
                    .clone()
                    .all(|&function| function < scenario.functions)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_can_be_planned_and_has_what_is_expected_of_it() {
        check_plans(ALL);
    }

    #[test]
    fn a_step_that_never_ran_is_a_failure() {
        let mut transcript = Transcript::default();
        for line in ["@@ step a", "@status 0", "@@ done a", "@@ end"] {
            transcript.line(Duration::ZERO, line);
        }
        let boot = &ALL[0].rounds[0];
        let mut report = Report::default();
        check_machine("0", boot, None, &["a".into()], &transcript, &mut report);
        assert_eq!((report.passed, report.failed), (3, 0), "{}", report.text);
        check_machine(
            "0",
            boot,
            None,
            &["a".into(), "b".into()],
            &transcript,
            &mut report,
        );
        assert_eq!((report.passed, report.failed), (5, 1), "{}", report.text);
    }

    #[test]
    fn kernel_warnings_have_to_be_explained() {
        let check_on = |card: Option<Card>, line: &str| {
            let mut transcript = Transcript::default();
            for line in ["@@ step a", "@status 0", line, "@@ done a", "@@ end"] {
                transcript.line(Duration::ZERO, line);
            }
            let mut report = Report::default();
            let boot = &ALL[0].rounds[0];
            check_machine("0", boot, card, &["a".into()], &transcript, &mut report);
            report
        };
        let check = |line: &str| check_on(None, line);
        assert_eq!(check("@log <6>[ 1.0] mlx5_core: fine").failed, 0);
        assert_eq!(check("@log <4>[ 1.0] mlx5_core: odd").failed, 1);
        let known = check("@log <4>[ 1.0] mlx5_core: Failed to get valid vendor specific ID");
        assert_eq!((known.failed, known.explained.len()), (0, 1));

        // What one card is known for is a failure on another.
        let clock =
            "@log <4>[ 1.0] mlx5_core: invalid device_frequency_khz, aborting HW clock init";
        assert_eq!(check_on(Some(Card::ConnectX4Lx), clock).failed, 0);
        assert_eq!(check_on(Some(Card::ConnectX7), clock).failed, 1);
        assert_eq!(check(clock).failed, 1);
    }

    #[test]
    fn a_warning_that_is_allowed_may_not_come_for_ever() {
        let boot = Boot {
            driver_may_warn: &[("a", "join failed", "")],
            driver_may_warn_times: 3,
            ..BOOT
        };
        for (times, failed) in [(3, 0), (4, 1)] {
            let mut transcript = Transcript::default();
            let warnings = vec!["@log <4>[ 1.0] ib0: join failed"; times];
            let before = ["@@ step a", "@status 0"].into_iter();
            for line in before.chain(warnings).chain(["@@ done a", "@@ end"]) {
                transcript.line(Duration::ZERO, line);
            }
            let mut report = Report::default();
            check_machine("0", &boot, None, &["a".into()], &transcript, &mut report);
            assert_eq!(report.failed, failed, "{times}");
        }
    }

    #[test]
    fn a_warning_allowed_in_one_step_is_a_failure_in_another() {
        let boot = Boot {
            driver_may_warn: &[("a", "status = 2", "")],
            ..BOOT
        };
        let failed = |step: &str, line: &str| {
            let step = Step {
                name: step.to_string(),
                status: Some(0),
                log: vec![(WARNING - 1, line.to_string())],
                ..Step::default()
            };
            let mut report = Report::default();
            check_step("0", &boot, None, &step, &mut report);
            report.failed
        };
        assert_eq!(failed("a", "rxe: error status = 2"), 0);
        assert_eq!(failed("a", "rxe: error status = 3"), 1);
        assert_eq!(failed("b", "rxe: error status = 2"), 1);
    }
}
