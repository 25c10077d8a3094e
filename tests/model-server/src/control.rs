//! Events and faults of cards and cables, by lines on standard input:
//!
//! | line | effect |
//! |---|---|
//! | `link FUNCTION up` or `down` | the cable is plugged in or out |
//! | `cable SWITCH PORT up` or `down` | the same at a port of an InfiniBand switch, counted from 0 in its topology |
//! | `busy COUNT` | so many questions to subnet administration are answered that it is busy, and do not reach it |
//! | `health FUNCTION SYNDROME` | the firmware stops with this syndrome (decimal) |
//! | `restart FUNCTION` | another driver resets the firmware, as the physical function does for its virtual ones |
//! | `vanish FUNCTION` | the card falls off the bus |
//! | `temperature FUNCTION SENSOR EIGHTHS` | a sensor measures so many eighths of a degree Celsius |
//! | `pages FUNCTION COUNT` | the next object costs this many pages more |
//! | `loss RATE`, `duplicate RATE`, `reorder RATE`, `delay RATE`, `corrupt RATE` | the faults of frames from here on, as a share of 1 |
//! | `max-delay TIME` | how late they may come, as in 20us, 1ms or 2s |
//! | `fault SETTING` | a fault of a firmware command from here on, as `--fault` has it: `fault command=CREATE_QP,dropped,function=0` |
//! | `faults off` | no more faults of frames and commands |
//! | `faults` | logs what is in force and what it did |
//! | `state FUNCTION` | prints what the function did since power-on, and what it could reach now |

use crate::world::{Function, World};
use connectx_model::fault::setting::Setting;
use connectx_model::link::setting::{self, Fault, Shown};
use connectx_model::{Settings, TrafficClass};
use std::fmt;
use std::io::{self, Write};

/// The request in a line of standard input.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    Command(Setting),
    Card(usize, Mishap),
    Cable(usize, u8, bool),
    Busy(u32),
    Link(Fault),
    FaultsOff,
    Faults,
    State(usize),
}

/// An event or a fault of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mishap {
    Link(bool),
    Health(u8),
    Restart,
    Vanish,
    Pages(u32),
    Temperature(u16, i16),
}

/// Parses the words of a line into a request, or says which of them is wrong.
fn parse(line: &str) -> Result<Event, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (function, mishap) = match words[..] {
        ["link", function, "up"] => (function, Mishap::Link(true)),
        ["link", function, "down"] => (function, Mishap::Link(false)),
        ["cable", switch, port, state @ ("up" | "down")] => {
            let switch = switch.parse().map_err(|_| "which switch?")?;
            let port = port.parse().map_err(|_| "which port?")?;
            return Ok(Event::Cable(switch, port, state == "up"));
        }
        ["busy", count] => {
            let count = count.parse().map_err(|_| "how many questions?")?;
            return Ok(Event::Busy(count));
        }
        ["health", function, syndrome] => {
            let syndrome = syndrome.parse().ok().filter(|&s| s != 0);
            let syndrome = syndrome.ok_or("a health syndrome is a number from 1 to 255")?;
            (function, Mishap::Health(syndrome))
        }
        ["restart", function] => (function, Mishap::Restart),
        ["vanish", function] => (function, Mishap::Vanish),
        ["pages", function, count] => {
            let count = count.parse().map_err(|_| "how many pages?")?;
            (function, Mishap::Pages(count))
        }
        ["temperature", function, sensor, eighths] => {
            let sensor = sensor.parse().map_err(|_| "which sensor?")?;
            let eighths = eighths.parse().map_err(|_| "how warm?")?;
            (function, Mishap::Temperature(sensor, eighths))
        }
        ["fault", setting] => {
            let setting: Setting = setting.parse()?;
            return match setting.is_of_frames() {
                true => Err("frames have lines of their own, such as loss 0.1".into()),
                false => Ok(Event::Command(setting)),
            };
        }
        ["faults", "off"] => return Ok(Event::FaultsOff),
        ["faults"] => return Ok(Event::Faults),
        ["state", function] => {
            let function = function.parse().map_err(|_| "which function?")?;
            return Ok(Event::State(function));
        }
        [name, value] => return Fault::parse(name, value).map(Event::Link),
        _ => return Err("no such line".into()),
    };
    let function = function.parse().map_err(|_| "which function?")?;
    Ok(Event::Card(function, mishap))
}

/// Does what the lines say until there are no more.
pub(crate) fn follow(world: &World, lines: impl Iterator<Item = io::Result<String>>) {
    for line in lines.map_while(Result::ok) {
        if line.trim().is_empty() {
            continue;
        }
        if let Err(why) = parse(&line).and_then(|event| obey(world, event)) {
            log::error!("standard input: {line:?}: {why}");
        }
    }
}

fn obey(world: &World, event: Event) -> Result<(), String> {
    let (rates, report) = match event {
        Event::Card(index, mishap) => return strike(world, index, mishap),
        Event::Cable(switch, port, up) => {
            log::info!(
                "switch {switch}, port {port}: {}",
                if up { "up" } else { "down" }
            );
            return world
                .with_subnet(|subnet| subnet.set_cable(switch, port, up))
                .then_some(())
                .ok_or("there is no switch of InfiniBand's".into());
        }
        Event::Busy(count) => {
            log::info!("subnet administration is busy for {count} questions");
            return world
                .with_subnet(|subnet| subnet.set_busy(count))
                .then_some(())
                .ok_or("there is no switch of InfiniBand's".into());
        }
        Event::Link(fault) => world.set_faults(|rates| fault.apply(rates)),
        Event::Command(setting) => {
            log::info!("{setting:?}");
            crate::arm(world, &[setting]);
            return Ok(());
        }
        Event::FaultsOff => {
            for index in 0..world.functions() {
                world.with(index, |function| {
                    function.model.faults_mut().commands.clear();
                });
            }
            world.set_faults(|rates| *rates = setting::none())
        }
        Event::Faults => world.set_faults(|_| {}),
        Event::State(index) => return print_state(world, index),
    };
    log::info!("faults {}; {report}", Shown(rates));
    Ok(())
}

fn check(world: &World, index: usize) -> Result<(), String> {
    if index < world.functions() {
        return Ok(());
    }
    Err(format!("there are {} functions", world.functions()))
}

/// Prints the card's view of the state that a driver must not leave behind.
fn print_state(world: &World, index: usize) -> Result<(), String> {
    check(world, index)?;
    let (stats, reach, master, settings) = world.with(index, |Function { model, port }| {
        (
            model.stats(),
            port.memory.reach(),
            u8::from(model.is_bus_master()),
            Set(model.settings().clone()),
        )
    });
    // The reader waits for this line, which has to be written before the next request is read.
    let mut out = io::stdout().lock();
    let (commands, doorbells) = (stats.commands, stats.doorbells);
    let (blue_flame, missed) = (stats.blue_flame, stats.blue_flame_missed);
    let compressed = stats.compressed;
    writeln!(
        out,
        "state {index} commands={commands} reach={reach} master={master} doorbells={doorbells} \
         blue-flame={blue_flame} blue-flame-missed={missed} compressed={compressed} {settings}"
    )
    .and_then(|()| out.flush())
    .map_err(|error| error.to_string())
}

/// Writes what is set of a port, a word for each.
struct Set(Settings);

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(set) = self;
        let numbers = |all: &[u8]| {
            let all: Vec<String> = all.iter().map(u8::to_string).collect();
            all.join(",")
        };
        let [send, receive] = set.pauses;
        write!(
            f,
            "pauses={}{} pfc={:#x},{:#x} trust={} dscp={} classes={} fec={:#x}",
            u8::from(send.port),
            u8::from(receive.port),
            send.priorities,
            receive.priorities,
            set.trust,
            numbers(&set.dscp),
            numbers(&set.classes),
            set.fec
        )?;
        let column = |of: fn(&TrafficClass) -> u16| {
            let all = set.bandwidth.each_ref().map(|class| of(class).to_string());
            all.join(",")
        };
        write!(
            f,
            " groups={} bandwidth={} limits={} units={}",
            column(|class| class.group.into()),
            column(|class| class.bandwidth.into()),
            column(|class| class.limit.1),
            column(|class| class.limit.0.into())
        )?;
        write!(
            f,
            " ai-rate={} cnp-dscp={} cnp-priority={}",
            set.reaction.rpg_ai_rate(),
            set.notification.cnp_dscp(),
            set.notification.cnp_802p_prio()
        )
    }
}

fn strike(world: &World, index: usize, mishap: Mishap) -> Result<(), String> {
    check(world, index)?;
    log::info!("function {index}: {mishap:?}");
    if let Mishap::Link(up) = mishap {
        world.with_subnet(|subnet| subnet.set_adapter(index, up));
    }
    world.with(index, |Function { model, port }| match mishap {
        Mishap::Link(up) => model.set_link(port, up),
        Mishap::Health(syndrome) => model.fail_health(syndrome, 0),
        Mishap::Restart => model.reset_firmware(),
        Mishap::Vanish => model.vanish(),
        Mishap::Pages(count) => model.set_page_appetite(count),
        Mishap::Temperature(sensor, eighths) => model.set_temperature(port, sensor, eighths),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use connectx_model::{Config, Model};

    #[test]
    fn lines() {
        let card = |index, mishap| Ok(Event::Card(index, mishap));
        assert_eq!(parse("link 1 down"), card(1, Mishap::Link(false)));
        assert_eq!(parse("link 0 up "), card(0, Mishap::Link(true)));
        assert_eq!(parse("health 0 12"), card(0, Mishap::Health(12)));
        assert_eq!(parse("restart 2"), card(2, Mishap::Restart));
        assert_eq!(parse("vanish 3"), card(3, Mishap::Vanish));
        assert_eq!(parse("pages 0 40"), card(0, Mishap::Pages(40)));
        assert_eq!(
            parse("temperature 0 64 -8"),
            card(0, Mishap::Temperature(64, -8))
        );
        assert_eq!(parse("loss 0.1"), Ok(Event::Link(Fault::Loss(100))));
        assert_eq!(parse("cable 1 4 down"), Ok(Event::Cable(1, 4, false)));
        assert_eq!(parse("busy 4"), Ok(Event::Busy(4)));
        let dropped = "command=CREATE_QP,dropped,function=0";
        assert_eq!(
            parse(&format!("fault {dropped}")),
            Ok(Event::Command(dropped.parse().unwrap()))
        );
        assert_eq!(parse("faults off"), Ok(Event::FaultsOff));
        assert_eq!(parse("faults"), Ok(Event::Faults));
        assert_eq!(parse("state 1"), Ok(Event::State(1)));
        let plain = Set(Model::new(Config::new(1)).settings().clone()).to_string();
        let words: Vec<&str> = plain.split(' ').collect();
        assert_eq!(words[..3], ["pauses=00", "pfc=0x0,0x0", "trust=1"]);
        assert_eq!(words[4..6], ["classes=0,1,2,3,4,5,6,7", "fec=0x0"]);
        assert!(plain.ends_with("ai-rate=5 cnp-dscp=48 cnp-priority=6"));
        for bad in [
            "link",
            "link x up",
            "cable 0 up",
            "cable 0 256 up",
            "busy",
            "busy -1",
            "health 0 0",
            "health 0 256",
            "vanish",
            "vanish x",
            "pages 0 many",
            "temperature 0 64",
            "temperature 0 64 4096000",
            "loss",
            "loss 2",
            "fault",
            "fault loss=0.1",
            "fault command=CREATE_QP",
            "faults on",
            "state",
            "state x",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
