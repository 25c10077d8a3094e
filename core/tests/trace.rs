//! The trace of commands, in the form of `mlx5_core`.

mod support;

use std::sync::Mutex;

use bareverbs_core::{Config, Cqs, Device, PageChunks, Qps, Resources, Srqs};
use bareverbs_firmware_cmds::dump::{Direction, LOG_TARGET, Line};
use support::Fake;

struct Collector(Mutex<Vec<String>>);

impl log::Log for Collector {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target() == LOG_TARGET
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

static LINES: Collector = Collector(Mutex::new(Vec::new()));

#[test]
fn every_command_is_traced_with_its_answer() {
    log::set_logger(&LINES).expect("the only logger");
    log::set_max_level(log::LevelFilter::Trace);
    let fake = Fake::new();
    let mut memory = Resources::<Qps<2>, Cqs<2>, Srqs<2>, PageChunks<8>>::new();
    let device = Device::open(&fake, Config::DEFAULT, memory.storage()).expect("bring-up");
    device.close().expect("orderly");

    let mut dumps = Vec::new();
    for line in LINES.0.lock().unwrap().iter() {
        match Line::parse(line) {
            Line::Start {
                slot,
                opcode,
                direction,
                ..
            } => dumps.push((slot, opcode, direction, Vec::new())),
            Line::Row { offset, bytes, .. } => {
                let (.., rows) = dumps.last_mut().expect("a dump has begun");
                assert_eq!(rows.len(), offset as usize, "{line}");
                rows.extend_from_slice(&bytes);
            }
            Line::Malformed(why) => panic!("{line}: {why}"),
            Line::Block { .. } | Line::End { .. } | Line::Other => {}
        }
    }
    let history = &fake.lock().history;
    assert_eq!(
        dumps.len(),
        2 * history.len(),
        "a dump of the input and one of the output each"
    );
    let of = |wanted| {
        let dumps = dumps.iter().enumerate();
        dumps.filter(move |(_, (_, _, direction, _))| *direction == wanted)
    };
    let mut answers: Vec<_> = of(Direction::Output).collect();
    for (posted, (at, (slot, opcode, _, input))) in history.iter().zip(of(Direction::Input)) {
        // Several are under way at once: the next answer in the same slot.
        let next = answers
            .iter()
            .position(|(place, (taken, ..))| *place > at && taken == slot);
        let (_, (_, answered, _, output)) = answers.remove(next.expect("an answer"));
        assert_eq!((*opcode, *answered), (posted.opcode, posted.opcode));
        // The entry with its inline part, then whole blocks.
        assert_eq!(input[0x10..0x20], posted.input[..16]);
        let blocks = (posted.input.len() - 16).div_ceil(512);
        assert_eq!(input.len(), 64 + blocks * 576);
        if blocks > 0 {
            let len = (posted.input.len() - 16).min(512);
            assert_eq!(input[64..64 + len], posted.input[16..16 + len]);
        }
        assert_eq!(output[0x20], 0, "status OK");
        assert_eq!(
            output.len(),
            64 + (posted.output_len - 16).div_ceil(512) * 576
        );
    }
}
