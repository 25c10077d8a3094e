//! The port's counters and their rates: as text, or a line of JSON each time.

use std::fmt::Write;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::{Duration, Instant};

use bareverbs::verbs::{Config, Device, DeviceSlot, PageChunk, Platform, Storage};
use bareverbs_node::inspect::{self, Count};

use bareverbs_examples::Result;

/// Longest sleep at a time.
const SLICE: Duration = Duration::from_millis(50);

/// The interval, and the form of the output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    /// Between two looks.
    pub(crate) interval: Duration,
    /// The number of queries; without it, they do not end.
    pub(crate) times: Option<NonZeroU32>,
    /// Lines of JSON.
    pub(crate) json: bool,
}

/// All counters at one time.
pub(crate) struct Look(Count);

impl Look {
    /// The counters that are not zero: the value and, where there is an earlier one, the rate in a second since then.
    pub(crate) fn rows<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (&'a str, u64, Option<f64>)> {
        let seconds = before.map(|before| self.0.at.saturating_sub(before.0.at).as_secs_f64());
        let counted = self
            .0
            .values
            .iter()
            .enumerate()
            .filter(|(_, row)| row.1 != 0);
        counted.map(move |(index, (name, value))| {
            let old = before.and_then(|before| before.0.values.get(index));
            let rate = old.zip(seconds).map(|((_, old), seconds)| {
                // Another program may have set it to 0.
                value.saturating_sub(*old) as f64 / seconds.max(1e-9)
            });
            (name.as_str(), *value, rate)
        })
    }

    fn text(&self, before: Option<&Self>) -> String {
        let mut text = String::new();
        for (name, value, rate) in self.rows(before) {
            let rate = rate.map_or(String::new(), |rate| format!("{rate:>18.0}/s"));
            let _ = writeln!(text, "{name:<44}{value:>20}{rate}");
        }
        if text.is_empty() {
            text.push_str("nothing counted yet\n");
        }
        text
    }

    /// One object: seconds on the platform's clock, then each counter's value and rate.
    fn json(&self, before: Option<&Self>) -> String {
        let mut line = format!("{{\"seconds\":{:.6}", self.0.at.as_secs_f64());
        for (name, value, rate) in self.rows(before) {
            let _ = write!(line, ",\"{name}\":{{\"value\":{value}");
            if let Some(rate) = rate {
                let _ = write!(line, ",\"per_second\":{rate:.1}");
            }
            line.push('}');
        }
        line.push_str("}\n");
        line
    }
}

impl Watch {
    /// Looks again and again, and gives each text to `print`.
    pub(crate) fn run<P: Platform>(
        self,
        platform: P,
        mut chunks: Vec<PageChunk>,
        print: impl FnMut(&str),
    ) -> Result<()> {
        let mut slot = DeviceSlot::new();
        let storage = Storage::new(&mut slot, &mut [], &mut [], &mut [], &mut chunks);
        let device = Device::open(platform, Config::DEFAULT, storage)?;
        // Serves firmware that asks for pages, and finds a device that is gone.
        let poll = || Ok(device.poll()?);
        self.repeat(|| Ok(inspect::count(&device)?), poll, print)?;
        device.close()?;
        Ok(())
    }

    /// Looks at a device that another process has in use, and serves at this path.
    pub(crate) fn of_socket(self, path: &Path, print: impl FnMut(&str)) -> Result<()> {
        let count = || {
            let counted = inspect::ask_counters(path);
            counted.map_err(|error| format!("{}: {error}", path.display()).into())
        };
        self.repeat(count, || Ok(()), print)
    }

    fn repeat(
        self,
        mut count: impl FnMut() -> Result<Count>,
        mut meanwhile: impl FnMut() -> Result<()>,
        mut print: impl FnMut(&str),
    ) -> Result<()> {
        let mut before: Option<Look> = None;
        let mut left = self.times.map(NonZeroU32::get);
        loop {
            let look = Look(count()?);
            let text = match self.json {
                true => look.json(before.as_ref()),
                false => look.text(before.as_ref()),
            };
            print(&text);
            before = Some(look);
            if let Some(left) = &mut left {
                *left -= 1;
                if *left == 0 {
                    return Ok(());
                }
            }
            let end = Instant::now() + self.interval;
            loop {
                meanwhile()?;
                let rest = end.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    break;
                }
                std::thread::sleep(rest.min(SLICE));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_in_process::Builder;
    use connectx_model::Config as Card;

    fn look(milliseconds: u64, values: [(&str, u64); 3]) -> Look {
        Look(Count {
            at: Duration::from_millis(milliseconds),
            values: values.map(|(name, value)| (name.into(), value)).into(),
        })
    }

    #[test]
    fn rates_are_between_two_looks() {
        let first = look(250, [("a.x", 100), ("a.y", 7), ("b.z", 0)]);
        let second = look(750, [("a.x", 1100), ("a.y", 2), ("b.z", 0)]);
        let rows: Vec<_> = second.rows(Some(&first)).collect();
        // 1,000 in half a second; what was cleared meanwhile has no rate below zero.
        assert_eq!(rows, [("a.x", 1100, Some(2000.0)), ("a.y", 2, Some(0.0))]);
        let text = second.text(Some(&first));
        let words: Vec<_> = text.split_whitespace().collect();
        assert_eq!(words, ["a.x", "1100", "2000/s", "a.y", "2", "0/s"]);
        assert_eq!(
            second.json(Some(&first)),
            "{\"seconds\":0.750000,\"a.x\":{\"value\":1100,\"per_second\":2000.0},\
             \"a.y\":{\"value\":2,\"per_second\":0.0}}\n"
        );
        assert_eq!(
            first.json(None),
            "{\"seconds\":0.250000,\"a.x\":{\"value\":100},\"a.y\":{\"value\":7}}\n"
        );
    }

    #[test]
    fn looks_at_either_kind_of_port() {
        for infiniband in [false, true] {
            let card = match infiniband {
                false => Card::new(1),
                true => Card::new(1).infiniband(),
            };
            let world = Builder::new().function(card).threaded();
            let watch = Watch {
                interval: Duration::from_millis(1),
                times: NonZeroU32::new(3),
                json: true,
            };
            let mut lines = Vec::new();
            crate::chunks::with_page_chunks(|chunks| {
                watch.run(world.platform(0), chunks, |line| {
                    lines.push(line.to_owned())
                })
            })
            .unwrap();
            assert_eq!(lines.len(), 3, "{lines:?}");
            assert!(lines.iter().all(|line| line.starts_with("{\"seconds\":")));
        }
    }
}
