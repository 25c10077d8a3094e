//! The page on captures, docs/captures.md, followed to the letter.

use super::readings::report;
use crate::outcome::Outcome;
use std::path::Path;
use std::process::Command;

const PAGE: &str = "docs/captures.md";
/// The list of packets has these names for what tshark guesses in this recording, in the column of the protocol or behind
/// it.
const GUESSED: [&str; 2] = ["[Malformed Packet", "SDP"];

/// The page's command, in a folder with the recording: the list of packets has all of them, and nothing that was guessed. The
/// same command without the profile guesses, or the page would have no reason.
pub(super) fn run(outcome: &mut Outcome, work: &Path, frames: usize) -> Result<(), String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PAGE);
    let text = std::fs::read_to_string(&file).map_err(|e| format!("{PAGE}: {e}"))?;
    let command = command(&text).ok_or_else(|| format!("{PAGE} has no command"))?;
    let without = command.replace(" -C bareverbs", "");
    outcome.check(without != command, || {
        format!("{PAGE}: its command has no profile")
    });
    for (command, good) in [(command, true), (&without, false)] {
        let home = work.join("page");
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        let list = list(command, work, &home)?;
        outcome.check(list.lines().count() == frames, || {
            format!("{PAGE}: {} lines of {frames}", list.lines().count())
        });
        let guessed = guessed(&list);
        if good {
            report(outcome, "the page's command guesses nothing", &guessed);
            continue;
        }
        for name in GUESSED {
            outcome.check(guessed.iter().any(|line| line.contains(name)), || {
                format!("{PAGE}: tshark alone says {name} nowhere")
            });
        }
    }
    Ok(())
}

/// The first block of shell commands.
fn command(page: &str) -> Option<&str> {
    Some(page.split_once("```sh\n")?.1.split_once("```")?.0)
}

fn guessed(list: &str) -> Vec<String> {
    let named = |line: &&str| GUESSED.iter().any(|name| line.contains(name));
    list.lines().filter(named).map(str::to_owned).collect()
}

fn list(command: &str, work: &Path, home: &Path) -> Result<String, String> {
    let mut shell = Command::new("bash");
    shell.args(["-euc", command]).current_dir(work);
    shell.env("HOME", home).env_remove("XDG_CONFIG_HOME");
    shell.env("LC_ALL", "C.UTF-8");
    crate::process::quiet_output(&mut shell)
}
