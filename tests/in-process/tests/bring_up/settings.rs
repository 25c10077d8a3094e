//! Settings of the port, the module's memory, and what sensors measure. What is set is looked for in the registers' bytes, at
//! the places where `mlx5_ifc.h` has them; what is read is compared with what the test itself drew.

use bareverbs_core::firmware_cmds::congestion::CongestionPoint;
use bareverbs_core::firmware_cmds::register::AccessRegisterIn;
use bareverbs_core::{
    AsyncEvent, Celsius, Device, Fec, FlowControl, MODULE_SENSORS, ModuleAddress, ModuleKind,
    Platform, RegisterError, TailIn, Trust,
};
use connectx_model::{Card as Kind, Config as Card, Module, Sensor};

use crate::support::{Memory, assert_nothing_held, quick, world};

/// Numbers drawn from a seed (Knuth's multiplier).
struct Draw(u64);

impl Draw {
    fn number(&mut self) -> u64 {
        let step = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = step.wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn byte(&mut self) -> u8 {
        self.number() as u8
    }
}

/// A register as it comes, `L` bytes of it; the port's number is the second one.
fn raw<const L: usize>(device: &Device<'_, impl Platform>, id: u16, query: [u8; L]) -> [u8; L] {
    let mut read = AccessRegisterIn::new();
    read.set_op_mod(1).set_register_id(id);
    let mut answer = query;
    device
        .execute_with(&read, TailIn::Bytes(&query), &mut answer)
        .expect("a register");
    answer
}

fn of_port<const L: usize>() -> [u8; L] {
    let mut query = [0; L];
    query[1] = 1;
    query
}

#[test]
fn settings_are_where_the_header_has_them() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    for seed in 0..50 {
        let mut draw = Draw(seed);
        let port = draw.byte() & 1 != 0;
        let priorities = |draw: &mut Draw| if port { 0 } else { draw.byte() };
        let wanted = FlowControl {
            send_pauses: port && draw.byte() & 1 != 0,
            obey_pauses: port,
            send_pfc: priorities(&mut draw),
            obey_pfc: priorities(&mut draw),
        };
        device.set_flow_control(wanted).expect("PFCC");
        assert_eq!(device.query_flow_control(), Ok(wanted), "seed {seed}");
        let pfcc: [u8; 32] = raw(&device, 0x5007, of_port());
        let bytes = [
            u8::from(wanted.send_pauses) << 7,
            wanted.send_pfc,
            u8::from(wanted.obey_pauses) << 7,
            wanted.obey_pfc,
        ];
        assert_eq!([pfcc[8], pfcc[9], pfcc[12], pfcc[13]], bytes, "seed {seed}");

        let trust = [Trust::Pcp, Trust::Dscp][usize::from(draw.byte() & 1)];
        device.set_trust(trust).expect("QPTS");
        assert_eq!(device.query_trust(), Ok(trust));
        let qpts: [u8; 8] = raw(&device, 0x4002, of_port());
        assert_eq!(qpts[7], if trust == Trust::Pcp { 1 } else { 2 });

        let mut expected = device.query_dscp_priorities().expect("QPDPM");
        for _ in 0..10 {
            let (dscp, priority) = (draw.byte() & 63, draw.byte() & 7);
            device.set_dscp_priority(dscp, priority).expect("QPDPM");
            expected[usize::from(dscp)] = priority;
        }
        assert_eq!(device.query_dscp_priorities(), Ok(expected), "seed {seed}");
        let qpdpm: [u8; 132] = raw(&device, 0x4013, of_port());
        let found = core::array::from_fn(|dscp| qpdpm[4 + 2 * dscp + 1] & 0xf);
        assert_eq!(found, expected);

        let mut classes = device.query_traffic_classes().expect("QTCT");
        let (priority, class) = (draw.byte() & 7, draw.byte() & 7);
        device.set_traffic_class(priority, class).expect("QTCT");
        classes[usize::from(priority)] = class;
        assert_eq!(device.query_traffic_classes(), Ok(classes));
        let qtct: [u8; 8] = raw(&device, 0x400a, [0, 1, 0, priority, 0, 0, 0, 0]);
        assert_eq!(qtct[7], class);
    }
    let bandwidth = device.query_bandwidth().expect("QETCR");
    assert!(bandwidth.iter().all(|class| class.bandwidth == 100));
    let argument = |result| assert!(matches!(result, Err(RegisterError::Argument { .. })));
    argument(device.set_dscp_priority(64, 0));
    argument(device.set_dscp_priority(0, 8));
    argument(device.set_traffic_class(8, 0));
    argument(device.set_trust(Trust::Unknown(3)));
    argument(device.set_flow_control(FlowControl {
        send_pauses: true,
        obey_pfc: 1,
        ..FlowControl::default()
    }));
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}

/// A driver sets the error correction of the port, and settings are still there for the driver that comes after it, as Linux
/// does in `cargo rig stock-driver settings`.
#[test]
fn settings_outlast_a_driver() {
    let world = world(Card::new(1));
    let wanted = FlowControl {
        send_pfc: 0x28,
        obey_pfc: 0x28,
        ..FlowControl::default()
    };
    for first in [true, false] {
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        if first {
            assert_eq!(device.query_fec(), Ok(Some(Fec::Rs528)));
            // The port's, of all speeds: none at 100 Gb/s; Fire code, which it does not have there; none at 25 Gb/s.
            let write = |at: usize, policy: u8| {
                let mut pplm: [u8; 0x50] = of_port();
                pplm[at] = policy;
                let mut write = AccessRegisterIn::new();
                write.set_register_id(0x5023);
                let done = device.execute_with(&write, TailIn::Bytes(&pplm), &mut [0; 0x50]);
                done.map(drop)
            };
            write(0x16, 1 << 4).expect("none");
            write(0x16, 2 << 4).expect_err("Fire code");
            write(0x17, 1 << 4).expect_err("25 Gb/s");
            device.set_flow_control(wanted).expect("PFCC");
            device.set_trust(Trust::Dscp).expect("QPTS");
        }
        assert_eq!(device.query_fec(), Ok(Some(Fec::Off)));
        assert_eq!(device.query_flow_control(), Ok(wanted));
        assert_eq!(device.query_trust(), Ok(Trust::Dscp));
        device.close().expect("orderly");
    }
    assert_nothing_held(&world, "after close");
}

/// Names, and position and width of each parameter, in bits, from `mlx5_ifc_cong_control_r_roce_ecn_{rp,np}_bits`.
const PARAMETERS: [(CongestionPoint, &str, usize, u32); 8] = [
    (CongestionPoint::Reaction, "clamp_tgt_rate", 0x64, 1),
    (CongestionPoint::Reaction, "rpg_time_reset", 0xa0, 32),
    (CongestionPoint::Reaction, "rpg_ai_rate", 0x120, 32),
    (CongestionPoint::Reaction, "rpg_gd", 0x160, 32),
    (CongestionPoint::Reaction, "initial_alpha_value", 0x340, 32),
    (
        CongestionPoint::Notification,
        "min_time_between_cnps",
        0xa0,
        32,
    ),
    (CongestionPoint::Notification, "cnp_dscp", 0xd2, 6),
    (CongestionPoint::Notification, "cnp_802p_prio", 0xdd, 3),
];

#[test]
fn a_parameter_of_congestion_control_is_set_alone() {
    let world = world(Card::new(1));
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let all = |point| {
        let parameters = device.query_congestion(point).expect("parameters");
        let values = parameters.iter().map(|one| (one.name, one.value));
        values.collect::<Vec<_>>()
    };
    let image = |point: CongestionPoint| {
        use bareverbs_core::firmware_cmds::congestion::QueryCongParamsIn;
        let mut query = QueryCongParamsIn::new();
        query.set_cong_protocol(point.number());
        *device.execute(&query).unwrap().congestion_parameters()
    };
    let mut draw = Draw(1);
    for round in 0..100 {
        let (point, name, at, width) = PARAMETERS[round % PARAMETERS.len()];
        let value = draw.number() as u32 & (u32::MAX >> (32 - width));
        let mut expected = all(point);
        device.set_congestion(point, name, value).expect(name);
        for (found, old) in &mut expected {
            if *found == name {
                *old = value.into();
            }
        }
        assert_eq!(all(point), expected, "{name} = {value}");
        let bytes = image(point);
        let word = u32::from_be_bytes(bytes[at / 32 * 4..][..4].try_into().unwrap());
        let end = at as u32 % 32 + width;
        assert_eq!(
            word >> (32 - end) & (u32::MAX >> (32 - width)),
            value,
            "{name}"
        );
        if width < 32 {
            let refused = device.set_congestion(point, name, 1 << width);
            assert!(matches!(refused, Err(RegisterError::Argument { .. })));
        }
    }
    // The priority of notifications counts in mode 0 only (`MLX5_IB_DBG_CC_NP_CNP_PRIO` of Linux's cong.c).
    let notification = CongestionPoint::Notification;
    device
        .set_congestion(notification, "cnp_prio_mode", 1)
        .expect("the mode");
    device
        .set_congestion(notification, "cnp_802p_prio", 5)
        .expect("the priority");
    // Mode and priority share the last byte.
    assert_eq!(image(notification)[0x1b], 5);
    let refused = device.set_congestion(CongestionPoint::Reaction, "cnp_dscp", 1);
    assert!(matches!(refused, Err(RegisterError::Argument { .. })));
    for &point in CongestionPoint::ALL {
        for priority in 0..8 {
            let enable = draw.byte() & 1 != 0;
            device
                .enable_congestion(point, priority, enable)
                .expect("status");
            assert_eq!(device.query_congestion_enabled(point, priority), Ok(enable));
        }
    }
    let statistics = device.query_congestion_statistics().expect("statistics");
    assert_eq!(statistics.get("np_cnp_sent"), Some(0));
    device.close().expect("orderly");
}

/// Settings that a card of the list lacks are refused by the capability's name.
#[test]
fn what_a_card_lacks_is_refused_by_name() {
    let missing = |capability| RegisterError::NotOffered { capability };
    for &kind in Kind::ALL {
        for virtual_function in [false, true] {
            let mut card = Card::card(kind, 1);
            // Enough for what the test has memory for.
            (card.boot_pages, card.init_pages) = (8, 8);
            if virtual_function {
                card = card.virtual_function();
            }
            let recorded = matches!(kind, Kind::ConnectX4 | Kind::ConnectX4Lx);
            let old = recorded || kind == Kind::BlueFieldVf;
            let general = card.general;
            let world = world(card);
            let mut memory = Memory::new();
            let device =
                Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
            let physical = !virtual_function && kind != Kind::BlueFieldVf;
            let judge = |found: Option<RegisterError>, capability, register| {
                let expected = match (old, physical) {
                    (true, _) => Some(missing(capability)),
                    (false, false) => Some(missing(register)),
                    (false, true) => None,
                };
                assert_eq!(found, expected, "{kind}, virtual: {virtual_function}");
            };
            judge(device.query_trust().err(), "qcam_reg", "QPTS");
            judge(device.query_dscp_priorities().err(), "qcam_reg", "QPDPM");
            judge(device.query_fec().err(), "pcam_reg", "PPLM");
            judge(device.query_sensors().err(), "mcam_reg", "MTCAP");
            judge(device.query_temperature(0).err(), "mcam_reg", "MTMP");
            judge(
                device.query_pcie_counters().err(),
                "mcam_reg",
                "pcie_performance_group",
            );
            let classes = device.query_traffic_classes().err();
            match (general.ets(), physical) {
                (false, _) => assert_eq!(classes, Some(missing("ets"))),
                (true, false) => assert_eq!(classes, Some(missing("QTCT"))),
                (true, true) => assert_eq!(classes, None),
            }
            let congestion = device.query_congestion(CongestionPoint::Reaction).err();
            match general.cc_query_allowed() {
                false => assert_eq!(congestion, Some(missing("cc_query_allowed"))),
                true => assert_eq!(congestion, None),
            }
            device.query_flow_control().expect("every card");
            device.close().expect("orderly");
        }
    }
}

/// Where each standard has vendor, part and serial number; the first byte that says which.
const STANDARDS: [(&[u8], [usize; 3]); 3] = [
    (&[0x03], [20, 40, 68]),
    (&[0x0c, 0x0d, 0x11], [148, 168, 196]),
    (&[0x18, 0x19, 0x1e], [129, 148, 166]),
];

/// Text as it may be shown: up to the first zero, without spaces at the end, with nothing that a terminal would obey.
fn shown(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    let kept = &bytes[..end.unwrap_or(bytes.len())];
    let text: String = kept
        .iter()
        .map(|byte| match byte {
            0x20..=0x7e => char::from(*byte),
            0x09 | 0x0a | 0x0c | 0x0d => '\u{1}',
            _ => '?',
        })
        .collect();
    let text = text.trim_end_matches([' ', '\u{1}']);
    text.replace('\u{1}', "?")
}

#[test]
fn a_modules_memory_is_not_believed() {
    let mut temperatures = 0;
    for seed in 0..400 {
        let mut draw = Draw(seed);
        let kind = match seed % 2 {
            // Every number once; and those that mean something more often.
            0 => (seed / 2) as u8,
            _ => [0x03, 0x0c, 0x0d, 0x11, 0x18, 0x19, 0x1e][draw.number() as usize % 7],
        };
        let mut module = Module {
            low: core::array::from_fn(|_| draw.byte()),
            pages: vec![
                (0, core::array::from_fn(|_| draw.byte())),
                (1, core::array::from_fn(|_| draw.byte())),
            ],
            second: Some(core::array::from_fn(|_| draw.byte())),
        };
        module.low[0] = kind;
        let memory_of = |page: usize| {
            let mut all = [0; 256];
            all[..128].copy_from_slice(&module.low);
            all[128..].copy_from_slice(&module.pages[page].1);
            all
        };
        let (first, second, measured) = (memory_of(0), memory_of(1), module.second.unwrap());
        let mut card = Card::new(1);
        card.module = Some(module);
        let world = world(card);
        let mut memory = Memory::new();
        let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
        let found = device.query_module().expect("a module");
        let standard = STANDARDS.iter().find(|(kinds, _)| kinds.contains(&kind));
        match standard {
            None => {
                assert_eq!(found.kind, ModuleKind::Unknown(kind));
                assert!(found.vendor.is_empty() && found.temperature.is_none());
            }
            Some((_, at)) => {
                let texts = [found.vendor, found.part, found.serial].map(|text| text.to_string());
                let expected = at.map(|at| shown(&first[at..][..16]));
                assert_eq!(texts, expected, "seed {seed}");
                let bytes = match kind {
                    0x03 if first[92] & 0x44 == 0x40 => Some([measured[96], measured[97]]),
                    0x0c | 0x0d | 0x11 if first[220] & 0x20 != 0 => Some([first[22], first[23]]),
                    0x18 | 0x19 | 0x1e if first[2] & 0x80 == 0 && second[159] & 1 != 0 => {
                        Some([first[14], first[15]])
                    }
                    _ => None,
                };
                // 256ths of a degree, rounded down to eighths.
                let degrees = bytes.map(|bytes| Celsius(i16::from_be_bytes(bytes).div_euclid(32)));
                assert_eq!(found.temperature, degrees, "seed {seed}");
                temperatures += usize::from(degrees.is_some());
            }
        }
        let offset = draw.byte();
        let mut part = vec![0; draw.number() as usize % (257 - usize::from(offset))];
        let read = device.read_module(ModuleAddress::Low, 1, offset, &mut part);
        assert_eq!(read, Ok(()));
        assert_eq!(part, second[usize::from(offset)..][..part.len()]);
        let mut beyond = vec![0; 257 - usize::from(offset)];
        let refused = device.read_module(ModuleAddress::Low, 0, offset, &mut beyond);
        assert!(matches!(refused, Err(RegisterError::Argument { .. })));
        device.close().expect("orderly");
    }
    assert!(temperatures > 20, "{temperatures}");
}

#[test]
fn a_port_without_a_module_says_so() {
    let mut card = Card::new(1);
    card.module = None;
    let world = world(card);
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let none = RegisterError::Module { status: 1 };
    assert_eq!(device.query_module(), Err(none));
    device.close().expect("orderly");
}

#[test]
fn heat_is_measured_and_reported_once() {
    let mut card = Card::new(1);
    let names = [*b"\xff\x1b[2J\xc3\x28x", *b"asic\0zzz", [0; 8]];
    let shown = ["??[2J?(x", "asic", ""];
    card.sensors = [0, 63, MODULE_SENSORS]
        .into_iter()
        .zip(names)
        .map(|(number, name)| Sensor {
            number,
            name,
            temperature: -1,
            highest: 80,
            threshold: 800,
        })
        .collect();
    let world = world(card);
    let mut memory = Memory::new();
    let device = Device::open(world.platform(0), quick(), memory.storage()).expect("bring-up");
    let own: Vec<u16> = device.query_sensors().expect("sensors").collect();
    assert_eq!(own, [0, 63]);
    assert_eq!(device.module_sensor(), Ok(MODULE_SENSORS));
    for (sensor, shown) in [0, 63, MODULE_SENSORS].into_iter().zip(shown) {
        let found = device.query_temperature(sensor).expect("a sensor");
        assert_eq!(found.name.to_string(), shown);
        assert_eq!(found.now.to_string(), "-0.125");
        assert_eq!(
            [found.highest, found.threshold],
            [Celsius(80), Celsius(800)]
        );
    }
    assert!(device.query_temperature(1).is_err());
    for (sensor, number) in [(0, 0), (63, 63), (MODULE_SENSORS, 64)] {
        for (eighths, warned) in [(799, false), (800, true), (900, false), (0, false)] {
            world.set_temperature(0, sensor, eighths);
            device.poll().expect("well");
            let expected = warned.then_some(AsyncEvent::TemperatureWarning { sensor: number });
            assert_eq!(
                device.next_async_event(),
                expected,
                "sensor {sensor}: {eighths}"
            );
            let found = device.query_temperature(sensor).expect("a sensor");
            assert_eq!(found.now, Celsius(eighths));
        }
        let found = device.query_temperature(sensor).expect("a sensor");
        assert_eq!(found.highest, Celsius(900));
    }
    device.close().expect("orderly");
    assert_nothing_held(&world, "after close");
}
