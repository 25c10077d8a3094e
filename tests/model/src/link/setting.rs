//! Faults of the links by name, for the command line (`--fault loss=0.1`) and for standard input (`loss 0.1`).

use super::fault::Rates;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The default of how late frames may come.
const MAX_DELAY: Duration = Duration::from_millis(1);
/// The longest delay and latency that can be set.
pub const LONGEST_DELAY: Duration = Duration::from_secs(4);

/// No faults.
#[must_use]
pub fn none() -> Rates {
    Rates {
        max_delay: MAX_DELAY,
        ..Rates::default()
    }
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// [`Rates::loss`].
    Loss(u32),
    /// [`Rates::duplicate`].
    Duplicate(u32),
    /// [`Rates::reorder`].
    Reorder(u32),
    /// [`Rates::delay`].
    Delay(u32),
    /// [`Rates::corrupt`].
    Corrupt(u32),
    /// [`Rates::max_delay`].
    MaxDelay(Duration),
    /// [`Rates::latency`].
    Latency(Duration),
}

impl Fault {
    /// A setting by its name and value.
    ///
    /// # Errors
    /// Says what was expected instead.
    pub fn parse(name: &str, value: &str) -> Result<Self, String> {
        Ok(match name {
            "loss" => Self::Loss(rate(value)?),
            "duplicate" => Self::Duplicate(rate(value)?),
            "reorder" => Self::Reorder(rate(value)?),
            "delay" => Self::Delay(rate(value)?),
            "corrupt" => Self::Corrupt(rate(value)?),
            "max-delay" => Self::MaxDelay(duration(value)?),
            "latency" => Self::Latency(duration(value)?),
            _ => {
                return Err(format!(
                    "{name:?} is none of loss, duplicate, reorder, delay, corrupt, max-delay, latency"
                ));
            }
        })
    }

    /// Sets it.
    pub fn apply(self, rates: &mut Rates) {
        match self {
            Self::Loss(rate) => rates.loss = rate,
            Self::Duplicate(rate) => rates.duplicate = rate,
            Self::Reorder(rate) => rates.reorder = rate,
            Self::Delay(rate) => rates.delay = rate,
            Self::Corrupt(rate) => rates.corrupt = rate,
            Self::MaxDelay(time) => rates.max_delay = time,
            Self::Latency(time) => rates.latency = time,
        }
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is no KIND=VALUE"))?;
        Self::parse(name, value)
    }
}

/// A share of 1, in thousandths, which is as fine as the links draw.
fn rate(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(number) => (number, 0.01),
        None => (text, 1.0),
    };
    let share: f64 = number
        .parse()
        .map_err(|_| format!("{text:?} is no rate between 0 and 1, or 0% and 100%"))?;
    let share = share * unit;
    if !(0.0..=1.0).contains(&share) {
        return Err(format!("{text} is no rate between 0 and 1, or 0% and 100%"));
    }
    let thousandths = (share * 1000.0).round() as u32;
    if thousandths == 0 && share != 0.0 {
        return Err(format!("{text} is below 0.001, the smallest rate"));
    }
    Ok(thousandths)
}

/// A time that frames may be late.
fn duration(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time > LONGEST_DELAY {
        return Err(format!("{text:?} is longer than {LONGEST_DELAY:?}"));
    }
    Ok(time)
}

/// A time from a microsecond on, such as `20us`, `1ms` or `2s`.
///
/// # Errors
/// Says what was expected instead.
pub fn time(text: &str) -> Result<Duration, String> {
    let fail = || format!("{text:?} is no time such as 20us, 1ms or 2s");
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u32 = number.parse().map_err(|_| fail())?;
    let unit = match unit {
        "us" => Duration::from_micros(1),
        "ms" => Duration::from_millis(1),
        "s" => Duration::from_secs(1),
        _ => return Err(fail()),
    };
    unit.checked_mul(number)
        .filter(|time| !time.is_zero())
        .ok_or_else(fail)
}

/// Shows rates in words that [`Fault::parse`] takes.
#[derive(Debug, Clone, Copy)]
pub struct Shown(pub Rates);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rates {
            loss,
            duplicate,
            reorder,
            delay,
            corrupt,
            max_delay,
            latency,
        } = self.0;
        let mut any = false;
        if !latency.is_zero() {
            write!(f, "latency {latency:?} ")?;
            any = true;
        }
        for (name, rate) in [
            ("loss", loss),
            ("duplicate", duplicate),
            ("reorder", reorder),
            ("delay", delay),
            ("corrupt", corrupt),
        ] {
            if rate != 0 {
                write!(f, "{name} {} ", f64::from(rate) / 1000.0)?;
                any = true;
            }
        }
        if !any {
            return f.write_str("off");
        }
        write!(f, "max-delay {max_delay:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let mut rates = none();
        assert_eq!(Shown(rates).to_string(), "off");
        for setting in [
            "loss=0.1",
            "duplicate=1",
            "reorder=0.001",
            "delay=5%",
            "corrupt=0",
            "max-delay=20us",
            "latency=3ms",
        ] {
            setting.parse::<Fault>().unwrap().apply(&mut rates);
        }
        let wanted = Rates {
            loss: 100,
            duplicate: 1000,
            reorder: 1,
            delay: 50,
            corrupt: 0,
            max_delay: Duration::from_micros(20),
            latency: Duration::from_millis(3),
        };
        assert_eq!(rates, wanted);
        assert_eq!(
            Shown(rates).to_string(),
            "latency 3ms loss 0.1 duplicate 1 reorder 0.001 delay 0.05 max-delay 20µs"
        );
        for bad in [
            "loss",
            "loss=",
            "loss=x",
            "loss=-0.1",
            "loss=1.01",
            "loss=101%",
            "loss=%",
            "loss=0.01%",
            "loss=NaN",
            "loss=0.0001",
            "lose=0.1",
            "max-delay=1",
            "max-delay=0ms",
            "max-delay=5s",
            "max-delay=99999999999s",
            "max-delay=ms",
        ] {
            assert!(bad.parse::<Fault>().is_err(), "{bad}");
        }
    }
}
