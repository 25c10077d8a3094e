//! What a machine's console showed.

use std::time::Duration;

/// One command in the guest.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) name: String,
    /// Its exit status; `None` if it never ended.
    pub(super) status: Option<u32>,
    pub(super) took: Duration,
    pub(super) output: Vec<String>,
    /// Kernel messages: level and text.
    pub(super) log: Vec<(u8, String)>,
}

/// Requests of guests to the host that runs them, beside the output of their steps.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// It listens.
    Up,
    /// It reads no more, and will boot again.
    Down,
    /// For the other machine.
    Tell(&'a str),
    /// Something is to happen to the card.
    Host(&'a str),
    /// The model's state of a function, under a name.
    Ask(&'a str),
    /// Something is to happen to the machine.
    Monitor(&'a str),
}

/// What a machine's console showed.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) steps: Vec<Step>,
    /// The script came to its end.
    pub(super) ended: bool,
    /// How often it booted so far.
    pub(super) boots: usize,
    /// What belongs to no step: the firmware, the kernel's last words.
    pub(super) rest: Vec<String>,
    open: Option<(Duration, Step)>,
}

impl Transcript {
    /// Takes a line, which came at this time. What it asks for.
    pub(super) fn line<'a>(&mut self, at: Duration, line: &'a str) -> Option<Word<'a>> {
        let line = line.trim_end();
        if let Some(words) = line.strip_prefix("@@ ") {
            let (verb, rest) = words.split_once(' ').unwrap_or((words, ""));
            match verb {
                "step" => {
                    self.close(at);
                    let name = rest.to_string();
                    self.open = Some((
                        at,
                        Step {
                            name,
                            ..Step::default()
                        },
                    ));
                }
                "done" => self.close(at),
                "end" => self.ended = true,
                "up" => {
                    self.boots += 1;
                    return Some(Word::Up);
                }
                "down" => return Some(Word::Down),
                "tell" => return Some(Word::Tell(rest)),
                "host" => return Some(Word::Host(rest)),
                "ask" => return Some(Word::Ask(rest)),
                "monitor" => return Some(Word::Monitor(rest)),
                _ => self.rest.push(line.to_string()),
            }
            return None;
        }
        let open = self.open.as_mut().map(|(_, step)| step);
        let (mark, text) = line.split_once(' ').unwrap_or((line, ""));
        match (mark, open) {
            ("@out", Some(step)) => step.output.push(text.to_string()),
            ("@status", Some(step)) => step.status = text.parse().ok(),
            ("@log", Some(step)) => step.log.push(level(text)),
            _ => self.rest.push(line.to_string()),
        }
        None
    }

    /// There are no more lines.
    pub(super) fn close(&mut self, at: Duration) {
        if let Some((begun, mut step)) = self.open.take() {
            step.took = at.saturating_sub(begun);
            self.steps.push(step);
        }
    }
}

/// Takes the level off a raw kernel message; its low three bits, the rest is the facility.
fn level(message: &str) -> (u8, String) {
    match message.strip_prefix('<').and_then(|m| m.split_once('>')) {
        Some((number, text)) => match number.parse::<u32>() {
            Ok(number) => ((number & 7) as u8, text.to_string()),
            Err(_) => (0, message.to_string()),
        },
        None => (0, message.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_apart() {
        let mut transcript = Transcript::default();
        let lines = [
            "SeaBIOS\r\n",
            "@@ up\r\n",
            "@@ step probe\r\n",
            "@out hello\r\n",
            "@out\r\n",
            "@status 3\r\n",
            "@log <4>[    1.5] mlx5_core 0000:01:00.0: odd\r\n",
            "@log <30>[    1.6] mlx5_core: fine\r\n",
            "@@ done probe\r\n",
            "@out of no step\r\n",
            "@@ step hang\r\n",
            "Kernel panic\r\n",
        ];
        for (second, line) in lines.iter().enumerate() {
            let word = transcript.line(Duration::from_secs(second as u64), line);
            assert_eq!(word, (second == 1).then_some(Word::Up));
        }
        transcript.close(Duration::from_secs(20));
        let [probe, hang] = &transcript.steps[..] else {
            panic!("{transcript:?}");
        };
        assert_eq!(probe.name, "probe");
        assert_eq!(probe.status, Some(3));
        assert_eq!(probe.took, Duration::from_secs(6));
        assert_eq!(probe.output, ["hello", ""]);
        assert_eq!(probe.log[0].0, 4);
        assert_eq!(probe.log[1], (6, "[    1.6] mlx5_core: fine".to_string()));
        assert_eq!(hang.status, None);
        assert_eq!(hang.took, Duration::from_secs(10));
        assert!(!transcript.ended);
        assert_eq!(transcript.boots, 1);
        assert_eq!(
            transcript.rest,
            ["SeaBIOS", "@out of no step", "Kernel panic"]
        );
    }

    #[test]
    fn words_are_passed_on() {
        let mut transcript = Transcript::default();
        let mut say = |line| transcript.line(Duration::ZERO, line);
        assert_eq!(say("@@ tell 1.met=yes\n"), Some(Word::Tell("1.met=yes")));
        assert_eq!(say("@@ host link 0 up\n"), Some(Word::Host("link 0 up")));
        assert_eq!(say("@@ ask q1 0\n"), Some(Word::Ask("q1 0")));
        let unplug = Some(Word::Monitor("device_del card0"));
        assert_eq!(say("@@ monitor device_del card0\n"), unplug);
        assert_eq!(say("@@ down\n"), Some(Word::Down));
        assert_eq!(say("@@ lost 1.met\n"), None);
        assert_eq!(say("@@ end\n"), None);
        assert!(transcript.ended);
        assert_eq!(transcript.rest, ["@@ lost 1.met"]);
    }
}
