//! The output on a machine's console.

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
pub(super) enum Request<'a> {
    /// The machine reads its input.
    Up,
    /// The machine reads no more, and will boot again.
    Down,
    /// For the other machine.
    Send(&'a str),
    /// The host is to do something to the card.
    Host(&'a str),
    /// The model's state of a function, under a name.
    Ask(&'a str),
    /// A command for QEMU's monitor.
    Monitor(&'a str),
}

/// The output on a machine's console.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub(super) steps: Vec<Step>,
    /// The script came to its end.
    pub(super) ended: bool,
    /// The number of times that it booted so far.
    pub(super) boots: usize,
    /// Lines outside of steps: the firmware's, the kernel's last ones.
    pub(super) rest: Vec<String>,
    open: Option<(Duration, Step)>,
}

impl Transcript {
    /// Takes a line, which came at this time, and returns the request in it.
    pub(super) fn line<'a>(&mut self, at: Duration, line: &'a str) -> Option<Request<'a>> {
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
                    return Some(Request::Up);
                }
                "down" => return Some(Request::Down),
                "send" => return Some(Request::Send(rest)),
                "host" => return Some(Request::Host(rest)),
                "ask" => return Some(Request::Ask(rest)),
                "monitor" => return Some(Request::Monitor(rest)),
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
        if let Some((started, mut step)) = self.open.take() {
            step.took = at.saturating_sub(started);
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
            assert_eq!(word, (second == 1).then_some(Request::Up));
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
    fn requests_are_passed_on() {
        let mut transcript = Transcript::default();
        let mut request = |line| transcript.line(Duration::ZERO, line);
        assert_eq!(
            request("@@ send 1.met=yes\n"),
            Some(Request::Send("1.met=yes"))
        );
        assert_eq!(
            request("@@ host link 0 up\n"),
            Some(Request::Host("link 0 up"))
        );
        assert_eq!(request("@@ ask q1 0\n"), Some(Request::Ask("q1 0")));
        let unplug = Some(Request::Monitor("device_del card0"));
        assert_eq!(request("@@ monitor device_del card0\n"), unplug);
        assert_eq!(request("@@ down\n"), Some(Request::Down));
        assert_eq!(request("@@ lost 1.met\n"), None);
        assert_eq!(request("@@ end\n"), None);
        assert!(transcript.ended);
        assert_eq!(transcript.rest, ["@@ lost 1.met"]);
    }
}
