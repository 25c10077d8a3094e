//! A command without an answer is logged after a second, with the device's health.

mod support;

use std::sync::Mutex;
use std::time::Duration;

use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_firmware_cmds::hca::NopIn;
use bareverbs_firmware_cmds::init_segment as registers;
use bareverbs_firmware_cmds::opcode::Opcode;
use support::Fake;
use support::firmware::Action;

struct Collector(Mutex<Vec<(log::Level, String)>>);

impl log::Log for Collector {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let line = record.args().to_string();
            self.0.lock().unwrap().push((record.level(), line));
        }
    }

    fn flush(&self) {}
}

static LINES: Collector = Collector(Mutex::new(Vec::new()));

#[test]
fn a_late_command_is_named_with_the_health_of_the_device() {
    log::set_logger(&LINES).expect("the only logger");
    log::set_max_level(log::LevelFilter::Warn);
    let fake = Fake::new();
    let mut memory = Resources::<Qps<2>, Cqs<2>, Srqs<2>, PageChunks<8>>::new();
    let mut config = Config::DEFAULT;
    config.command_timeout = Duration::from_secs(2);
    let device = Device::open(&fake, config, memory.storage()).expect("bring-up");
    let wait = |action: fn() -> Action| {
        fake.lock().script = Some(Box::new(move |posted| match posted.opcode {
            opcode if opcode == Opcode::Nop.number() => action(),
            _ => Action::Normal,
        }));
        fake.set_register(registers::HEALTH + 0x3c, 0x0107_0042);
        let result = device.execute(&NopIn::new());
        let lines = std::mem::take(&mut *LINES.0.lock().unwrap());
        let late = lines
            .into_iter()
            .filter(|(_, line)| line.contains("no answer for"));
        (result, late.collect::<Vec<_>>())
    };
    let in_time = || Action::After(Duration::from_millis(900), Box::new(Action::Normal));
    let (result, said) = wait(in_time);
    assert!(result.is_ok() && said.is_empty(), "{said:?}");
    let late = || Action::After(Duration::from_millis(1500), Box::new(Action::Normal));
    let (result, said) = wait(late);
    assert!(result.is_ok(), "{result:?}");
    let [(log::Level::Warn, line)] = &said[..] else {
        panic!("{said:?}");
    };
    assert!(
        line.starts_with("NOP(0x80d) op_mod 0x0 in slot 0: no answer for 1"),
        "{line}"
    );
    assert!(
        line.contains(
            "health: syndrome 0x7 (a processor of the device does not respond), extended 0x0042"
        ),
        "{line}"
    );
    let (result, said) = wait(|| Action::Drop);
    assert!(result.is_err());
    let levels: Vec<_> = said.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [log::Level::Warn, log::Level::Error], "{said:?}");
}
