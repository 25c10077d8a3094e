//! Faults by name, for command lines and the environment: of commands (`command=CREATE_QP,nth=3,status=BAD_PARAM`), or of
//! frames, as [`link::setting`](crate::link::setting) has them (`loss=0.1,max-delay=5ms`).

use super::{CommandFault, CommandRule, Faults};
use crate::link::fault::Rates;
use crate::link::setting::{self, Fault, time};
use crate::syndrome::Status;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::status::{DeliveryStatus, Status as Named};
use std::str::FromStr;

/// The outcomes that can be set for a command, for messages.
const OUTCOMES: &str = "status=NAME (with syndrome=NUMBER), delivery=NUMBER, late=TIME, dropped, never-answered, half, \
                        event-lost, health=SYNDROME, vanish";

/// One list of settings with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// Faults of the frames that the ports send.
    Frames(Vec<Fault>),
    /// A fault of a command.
    Command {
        /// The function that it is for, counted from 0; each one if `None`.
        function: Option<usize>,
        /// The commands that it strikes, and the outcome.
        rule: CommandRule,
    },
}

impl Setting {
    /// Returns true for faults of frames.
    #[must_use]
    pub fn is_of_frames(&self) -> bool {
        matches!(self, Self::Frames(_))
    }
}

/// Reads several settings with semicolons between them, for an environment variable.
///
/// # Errors
/// Says what was expected instead.
pub fn list(text: &str) -> Result<Vec<Setting>, String> {
    text.split(';').map(str::parse).collect()
}

/// The faults of frames among them.
#[must_use]
pub fn rates(settings: &[Setting]) -> Rates {
    let mut rates = setting::none();
    for setting in settings {
        if let Setting::Frames(faults) = setting {
            faults.iter().for_each(|fault| fault.apply(&mut rates));
        }
    }
    rates
}

/// Adds those of commands that are for the function with this number, counted from 0.
pub fn arm(settings: &[Setting], index: usize, faults: &mut Faults) {
    faults
        .commands
        .extend(settings.iter().filter_map(|setting| match setting {
            Setting::Command { function, rule } if function.is_none_or(|one| one == index) => {
                Some(*rule)
            }
            _ => None,
        }));
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.split(',').any(|part| key(part).0 == "command") {
            return command(text);
        }
        let faults = text.split(',').map(|part| {
            part.parse()
                .map_err(|error: String| format!("{part:?}: {error}, and there is no command="))
        });
        faults.collect::<Result<_, _>>().map(Self::Frames)
    }
}

/// The name and the value, if there is one.
fn key(part: &str) -> (&str, Option<&str>) {
    match part.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (part, None),
    }
}

fn command(text: &str) -> Result<Setting, String> {
    let mut rule = CommandRule::nth(0, CommandFault::Drop);
    let (mut function, mut fault, mut syndrome) = (None, None, None);
    let mut seen = Vec::new();
    for part in text.split(',') {
        let (name, value) = key(part);
        if seen.contains(&name) {
            return Err(format!("{name} is there twice"));
        }
        seen.push(name);
        let happens = match (name, value) {
            ("command", Some("any")) => None,
            ("command", Some(command)) => {
                rule.opcode = Some(opcode(command)?);
                None
            }
            ("op-mod", Some(value)) => {
                rule.op_mod = Some(number(value)?);
                None
            }
            ("nth", Some(value)) => {
                rule.skip = counted(value)? - 1;
                None
            }
            ("times", Some(value)) => {
                rule.times = counted(value)?;
                None
            }
            ("function", Some(value)) => {
                function = Some(number(value)?);
                None
            }
            ("syndrome", Some(value)) => {
                syndrome = Some(number(value)?);
                None
            }
            ("status", Some(value)) => Some(CommandFault::Fail {
                status: status(value)?,
                syndrome: 0,
            }),
            ("delivery", Some(value)) => Some(CommandFault::Delivery(delivery(value)?)),
            ("late", Some(value)) => Some(CommandFault::Delay(time(value)?)),
            ("dropped", None) => Some(CommandFault::Drop),
            ("never-answered", None) => Some(CommandFault::DropAnswer),
            ("half", None) => Some(CommandFault::Half),
            ("event-lost", None) => Some(CommandFault::LoseEvent),
            ("health", Some(value)) => match number(value)? {
                0 => return Err("health=0 is a firmware that is well".into()),
                syndrome => Some(CommandFault::Health(syndrome)),
            },
            ("vanish", None) => Some(CommandFault::Vanish),
            _ => {
                return Err(format!(
                    "{part:?} is none of command=NAME, op-mod=NUMBER, nth=NUMBER, times=NUMBER, function=NUMBER, {OUTCOMES}"
                ));
            }
        };
        if let Some(happens) = happens
            && let Some(other) = fault.replace(happens)
        {
            return Err(format!(
                "{part:?}: something else ({other:?}) is to happen already"
            ));
        }
    }
    let mut fault = fault.ok_or_else(|| format!("what is to happen to it? One of {OUTCOMES}"))?;
    match (&mut fault, syndrome) {
        (CommandFault::Fail { syndrome, .. }, Some(given)) => *syndrome = given,
        (_, Some(_)) => return Err("a syndrome goes with a status".into()),
        (_, None) => {}
    }
    rule.fault = fault;
    Ok(Setting::Command { function, rule })
}

fn opcode(text: &str) -> Result<u16, String> {
    let named = Opcode::ALL
        .iter()
        .find(|opcode| opcode.name().eq_ignore_ascii_case(text));
    match named {
        Some(opcode) => Ok(opcode.number()),
        None => number(text).map_err(|_| {
            format!(
                "{text:?} is no command: a name such as CREATE_QP or 2ERR_QP, a number such as 0x500, or any"
            )
        }),
    }
}

fn status(text: &str) -> Result<Status, String> {
    let named = Named::ALL
        .iter()
        .find(|status| status.name().eq_ignore_ascii_case(text));
    let value = named.map_or_else(|| number(text).ok(), |status| Some(status.number()));
    let status = Status::ALL
        .into_iter()
        .find(|status| *status != Status::Ok && value == Some(*status as u8));
    status.ok_or_else(|| {
        let bad = Named::ALL.iter().filter(|status| !status.is_ok());
        let names: Vec<&str> = bad.map(|status| status.name()).collect();
        format!("{text:?} is no status: one of {}", names.join(", "))
    })
}

fn delivery(text: &str) -> Result<u8, String> {
    let value = number(text).ok().filter(|&value| {
        let status = DeliveryStatus::from_number(value);
        !status.is_ok() && DeliveryStatus::ALL.contains(&status)
    });
    value.ok_or_else(|| {
        let bad = DeliveryStatus::ALL.iter().filter(|status| !status.is_ok());
        let known: Vec<String> = bad
            .map(|status| format!("{:#x}", status.number()))
            .collect();
        format!(
            "{text:?} is no delivery status: one of {}",
            known.join(", ")
        )
    })
}

/// A number from 1 on.
fn counted(text: &str) -> Result<u32, String> {
    match number(text)? {
        0 => Err(format!("{text:?}: they are counted from 1")),
        count => Ok(count),
    }
}

/// A number in decimal digits, or in hexadecimal ones after `0x`.
fn number<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value
        .ok()
        .and_then(|value| T::try_from(value).ok())
        .ok_or_else(|| {
            let bytes = size_of::<T>();
            format!("{text:?} is no number of at most {bytes} bytes, such as 12 or 0x3c")
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn rule(text: &str) -> CommandRule {
        match text.parse() {
            Ok(Setting::Command { rule, .. }) => rule,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_named_counted_and_struck() {
        let third = rule("command=CREATE_QP,nth=3,status=BAD_PARAM,syndrome=0x3c5a71");
        let wanted = CommandRule {
            opcode: Some(0x500),
            op_mod: None,
            skip: 2,
            times: 1,
            fault: CommandFault::Fail {
                status: Status::BadParam,
                syndrome: 0x3c_5a71,
            },
        };
        assert_eq!(third, wanted);
        let any = rule("vanish,command=any,times=2,op-mod=1");
        assert_eq!(
            (any.opcode, any.op_mod, any.skip, any.times),
            (None, Some(1), 0, 2)
        );
        for (word, fault) in [
            ("late=20ms", CommandFault::Delay(Duration::from_millis(20))),
            ("delivery=6", CommandFault::Delivery(6)),
            ("dropped", CommandFault::Drop),
            ("never-answered", CommandFault::DropAnswer),
            ("half", CommandFault::Half),
            ("event-lost", CommandFault::LoseEvent),
            ("health=0xc", CommandFault::Health(12)),
            ("vanish", CommandFault::Vanish),
        ] {
            assert_eq!(
                rule(&format!("command=0x80d,{word}")),
                CommandRule::next(0x80d, fault)
            );
        }
    }

    /// Statuses and commands are found by the names of the layouts' tables.
    #[test]
    fn every_status_and_command_has_its_name() {
        for named in Named::ALL.iter().filter(|status| !status.is_ok()) {
            let found = status(named.name()).map(|status| status as u8);
            assert_eq!(found, Ok(named.number()));
        }
        for named in Opcode::ALL {
            assert_eq!(opcode(named.name()), Ok(named.number()));
        }
    }

    #[test]
    fn functions_have_their_own() {
        let settings =
            list("command=any,dropped,function=1;loss=0.1,delay=5%;command=any,half").unwrap();
        let armed = [0, 1].map(|index| {
            let mut faults = Faults::default();
            arm(&settings, index, &mut faults);
            faults
                .commands
                .iter()
                .map(|rule| rule.fault)
                .collect::<Vec<_>>()
        });
        assert_eq!(armed[0], [CommandFault::Half]);
        assert_eq!(armed[1], [CommandFault::Drop, CommandFault::Half]);
        let rates = rates(&settings);
        assert_eq!((rates.loss, rates.delay), (100, 50));
        assert_eq!(
            settings
                .iter()
                .map(Setting::is_of_frames)
                .collect::<Vec<_>>(),
            [false, true, false]
        );
        assert!(list("loss=0.1;").is_err());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, why) in [
            ("", "no KIND=VALUE"),
            ("dropped", "no command="),
            ("command=CREATE_QP", "what is to happen"),
            ("command,dropped", "none of command=NAME"),
            ("command=CREATE_QQ,dropped", "\"CREATE_QQ\" is no command"),
            ("command=0x10000,dropped", "no command"),
            ("command=any,command=any,dropped", "twice"),
            ("command=any,dropped,vanish", "already"),
            ("command=any,status=BAD_PARM", "INT_ERR, BAD_OP, BAD_PARAM"),
            ("command=any,status=OK", "no status"),
            ("command=any,dropped,syndrome=1", "goes with a status"),
            ("command=any,status=RES_BUSY,syndrome=x", "no number"),
            (
                "command=any,status=RES_BUSY,syndrome=0x100000000",
                "4 bytes",
            ),
            ("command=any,delivery=0", "no delivery status"),
            ("command=any,delivery=0x7f", "no delivery status"),
            ("command=any,late=1", "no time"),
            ("command=any,late", "none of"),
            ("command=any,dropped=1", "none of"),
            ("command=any,health=0", "is well"),
            ("command=any,health=256", "1 bytes"),
            ("command=any,dropped,nth=0", "from 1"),
            ("command=any,dropped,times=0", "from 1"),
            ("command=any,dropped,function=-1", "no number"),
            ("command=any,dropped,loss=0.1", "none of"),
            ("command=any,dropped,", "none of"),
            ("loss=0.1,", "no KIND=VALUE"),
        ] {
            let error = text.parse::<Setting>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
