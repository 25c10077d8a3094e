//! The decoder on whole logs: a real device's, our own, and garbage.

#[path = "../../examples/decode/report.rs"]
mod report;

use bareverbs_firmware_cmds::cmdq::{CommandQueueEntry, INLINE_SIZE, MailboxBlock, blocks_needed};
use bareverbs_firmware_cmds::decode::Show;
use bareverbs_firmware_cmds::dump::{self, Direction};
use bareverbs_firmware_cmds::flow::{
    DestFormat, FlowCounterList, QueryFlowCounterIn, QueryFlowCounterOut, QueryFteIn, QueryFteOut,
    SetFteIn,
};
use bareverbs_firmware_cmds::qp::{CreateQpIn, CreateQpOut};
use bareverbs_firmware_cmds::register::{
    AccessRegisterIn, AccessRegisterOut, Eth8023Counters, PpcntReg,
};
use bareverbs_firmware_cmds::registry;
use bareverbs_firmware_cmds::tir::{CreateRqtIn, QueryRqtIn, QueryRqtOut};
use bareverbs_firmware_cmds::values::{QpServiceType, QpState};
use connectx_model::trace;

/// Bytes that a ConnectX-4 with firmware 14.12.1220 exchanged with Linux, as the Snabb project published them
/// (Apache-2.0), between lines of other drivers.
const CONNECTX4: &str = "\
[  +0.023976] mlx5_core 0000:02:00.0: firmware version: 14.12.1220
[  +0.019326] EDAC MC: Ver: 3.0.0
[  +0.074963] mlx5_core 0000:02:00.0: 0000:02:00.0:dump_command:587:(pid 87): dump command MLX5_CMD_OP_ENABLE_HCA(0x104) INPUT
[  +0.000004] 000: 07000000 00000010 00000000 00000000
[  +0.000001] 010: 01040000 00000000 00000000 00000000
[  +0.000002] 020: 00000000 00000000 00000000 00000000
[  +0.000001] 030: 00000000 00000000 00000010 01fd0001

[  +0.000003] mlx5_core 0000:02:00.0: 0000:02:00.0:cmd_work_handler:665:(pid 87): writing 0x1 to command doorbell
[  +0.009517] mlx5_core 0000:02:00.0: 0000:02:00.0:dump_command:587:(pid 87): dump command MLX5_CMD_OP_ENABLE_HCA(0x104) OUTPUT
[  +0.000001] 000: 07000000 00000010 00000000 00000000
[  +0.000002] 010: 01040000 00000000 00000000 00000000
[  +0.000001] 020: 00000000 00000000 00000000 00000000
[  +0.006464] usbcore: registered new interface driver usbserial
[  +0.000001] 030: 00000000 00000000 00000010 01fd0000

[  +0.000007] mlx5_core 0000:02:00.0: 0000:02:00.0:dump_command:587:(pid 87): dump command QUERY_PAGES(0x107) INPUT
[  +0.000002] 000: 07000000 00000010 00000000 00000000
[  +0.000001] 010: 01070000 00000001 00000000 00000000
[  +0.000001] 020: 00000000 00000000 00000000 00000000
[  +0.000001] 030: 00000000 00000000 00000010 04fa0001

[  +0.003188] mlx5_core 0000:02:00.0: 0000:02:00.0:dump_command:587:(pid 87): dump command QUERY_PAGES(0x107) OUTPUT
[  +0.000005] 000: 07000000 00000010 00000000 00000000
[  +0.000003] 010: 01070000 00000001 00000000 00000000
[  +0.000002] 020: 00000000 00000000 00000000 00000006
[  +0.000002] 030: 00000000 00000000 00000010 04fc0000
";

fn decode(log: &[u8], show: Show) -> (String, String, bool) {
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    let good = report::report("log", log, show, &mut out, &mut errors);
    (
        String::from_utf8(out).unwrap(),
        String::from_utf8(errors).unwrap(),
        good,
    )
}

#[test]
fn a_real_log() {
    let (out, errors, good) = decode(CONNECTX4.as_bytes(), Show::NonZero);
    let expected = "\
#1 ENABLE_HCA(0x104), line 3
  INPUT, 16 bytes                | OUTPUT, 16 bytes
  opcode = 0x104 (ENABLE_HCA)    | status = 0x0 (done)
                                 | syndrome = 0x0

#2 QUERY_PAGES(0x107), line 17
  INPUT, 16 bytes                | OUTPUT, 16 bytes
  opcode = 0x107 (QUERY_PAGES)   | status = 0x0 (done)
  op_mod = 0x1 (BOOT)            | syndrome = 0x0
                                 | num_pages = 0x6

";
    assert_eq!(out, expected);
    assert_eq!((errors.as_str(), good), ("", true));
}

/// The signatures that the kernel and the device computed are those that we compute.
#[test]
fn a_real_devices_signatures() {
    for (rows, signed) in [
        (
            [
                "07000000 00000010 00000000 00000000",
                "01040000 00000000 00000000 00000000",
                "00000000 00000000 00000000 00000000",
                "00000000 00000000 00000010 01fd0001",
            ],
            true,
        ),
        (
            [
                "07000000 00000010 00000000 00000000",
                "01070000 00000001 00000000 00000000",
                "00000000 00000000 00000000 00000000",
                "00000000 00000000 00000010 04fa0001",
            ],
            true,
        ),
        // The device signs what it gives back with the ownership bit still in.
        (
            [
                "07000000 00000010 00000000 00000000",
                "01070000 00000001 00000000 00000000",
                "00000000 00000000 00000000 00000006",
                "00000000 00000000 00000010 04fc0001",
            ],
            true,
        ),
        (
            [
                "07000000 00000010 00000000 00000000",
                "01070000 00000001 00000000 00000000",
                "00000000 00000000 00000000 00000007",
                "00000000 00000000 00000010 04fc0001",
            ],
            false,
        ),
    ] {
        let mut entry = CommandQueueEntry::ZERO;
        for (bytes, word) in entry.0.chunks_mut(4).zip(rows.join(" ").split(' ')) {
            bytes.copy_from_slice(&u32::from_str_radix(word, 16).unwrap().to_be_bytes());
        }
        assert_eq!(entry.signature_is_valid(), signed);
        let signature = entry.signature();
        assert_eq!(entry.sign().signature() == signature, signed);
    }
}

/// A message as entry and blocks.
fn split(message: &[u8]) -> ([u8; INLINE_SIZE], Vec<MailboxBlock>) {
    let mut padded = message.to_vec();
    padded.resize(INLINE_SIZE + blocks_needed(message.len()) * 512, 0xee);
    let (inline, rest) = padded.split_first_chunk().unwrap();
    let blocks = rest.chunks(512).enumerate().map(|(number, data)| {
        let mut block = MailboxBlock::ZERO;
        block.mailbox_data_mut().copy_from_slice(data);
        block
            .set_block_number(number as u32)
            .set_token(9)
            .set_next_block(0x7000_0400);
        block
    });
    (*inline, blocks.collect())
}

fn log_of(slot: usize, opcode: u16, input: &[u8], output: &[u8]) -> [Vec<String>; 2] {
    let mut entry = CommandQueueEntry::ZERO;
    entry
        .set_type(7)
        .set_token(9)
        .set_input_length(input.len() as u32)
        .set_output_length(output.len() as u32)
        .set_ownership(true);
    let (inline, in_blocks) = split(input);
    *entry.command_input_inline_data_mut() = inline;
    let mut lines = [Vec::new(), Vec::new()];
    let [sent, answered] = &mut lines;
    dump::write(
        slot,
        opcode,
        Direction::Input,
        &entry,
        in_blocks.iter(),
        &mut |line| {
            sent.push(format!("[    1.234567] {line}"));
        },
    );
    let (inline, out_blocks) = split(output);
    *entry.command_output_inline_data_mut() = inline;
    entry.set_ownership(false);
    dump::write(
        slot,
        opcode,
        Direction::Output,
        &entry,
        out_blocks.iter(),
        &mut |line| {
            answered.push(line.to_string());
        },
    );
    lines
}

fn create_qp() -> (Vec<u8>, Vec<u8>) {
    let mut input = CreateQpIn::new();
    input
        .qpc_mut()
        .set_st(QpServiceType::Ud.number())
        .set_state(QpState::Reset.number())
        .set_pd(0x123)
        .set_log_sq_size(4)
        .set_dbr_addr(0x1234_5678_9abc);
    // Enough pages for three blocks.
    let mut message = input.0.to_vec();
    for page in 1..=150u64 {
        message.extend((page << 12).to_be_bytes());
    }
    let mut output = CreateQpOut::ZERO;
    output.set_qpn(0x77);
    (message, output.0.to_vec())
}

#[test]
fn our_own_log_comes_back_whole() {
    let (input, output) = create_qp();
    let log = log_of(3, 0x500, &input, &output).concat().join("\n");
    let trace = trace::read(&log);
    assert!(trace.problems.is_empty(), "{:?}", trace.problems);
    let [command] = trace.commands.as_slice() else {
        panic!("{:?}", trace.commands)
    };
    assert_eq!((command.slot, command.opcode), (Some(3), 0x500));
    assert_eq!(command.input.as_ref().unwrap().bytes, input);
    assert_eq!(command.output.as_ref().unwrap().bytes, output);

    let (out, _, good) = decode(log.as_bytes(), Show::NonZero);
    assert!(good);
    for text in [
        "#1 CREATE_QP(0x500) in slot 3, line 2",
        "st = 0x2 (UD)",
        "pd = 0x123",
        "pas[149] = 0x96000",
        "| qpn = 0x77",
    ] {
        assert!(out.contains(text), "{text:?} is not in\n{out}");
    }
    assert!(!out.contains("pas[150]") && !out.contains("unknown bits"));
}

/// The left column, what was sent, of a report on one command; or the right one, its answer.
fn column(opcode: u16, input: &[u8], output: &[u8], answer: bool) -> Vec<String> {
    let log = log_of(0, opcode, input, output).concat().join("\n");
    let (out, errors, good) = decode(log.as_bytes(), Show::NonZero);
    assert!(good, "{errors}");
    let text = |line: &str| match (line.split_once(" |"), answer) {
        (Some((left, _)), false) => left.to_owned(),
        (Some((_, right)), true) => format!(" {right}"),
        (None, _) => String::new(),
    };
    let rows = out.lines().filter(|line| line.starts_with("  "));
    rows.map(text)
        .map(|text| text.trim_end().strip_prefix("  ").unwrap_or("").to_owned())
        .filter(|text| !text.is_empty())
        .collect()
}

/// Two destinations and a counter, as they follow an entry's context, and eight bytes that belong to nothing.
fn lists() -> Vec<u8> {
    let (mut table, mut tir) = (DestFormat::ZERO, DestFormat::ZERO);
    table.set_destination_type(1).set_destination_id(0x15);
    tir.set_destination_type(2).set_destination_id(0x2a);
    let mut counter = FlowCounterList::ZERO;
    counter.set_flow_counter_id(0x8004);
    [table.0, tir.0, counter.0, [0x5a; 8]].concat()
}

#[test]
fn flow_table_entries_with_their_lists() {
    let mut set = SetFteIn::new();
    set.set_table_id(7).set_flow_index(3);
    let context = set.flow_context_mut();
    context
        .set_group_id(9)
        .set_action(0xc)
        .set_destination_list_size(2)
        .set_flow_counter_list_size(1);
    let value = context.match_value_mut();
    value
        .outer_headers_mut()
        .set_ip_version(4)
        .set_tcp_dport(80);
    value.misc_parameters_mut().set_outer_second_vid(0x123);
    let input = [&set.0[..], &lists()].concat();
    let entry = [
        "group_id = 0x9",
        "action = 0xc (FWD_DEST, COUNT)",
        "destination_list_size = 0x2",
        "flow_counter_list_size = 0x1",
        "match_value:",
        "  outer_headers:",
        "    ip_version = 0x4",
        "    tcp_dport = 0x50",
        "  misc_parameters:",
        "    outer_second_vid = 0x123",
    ];
    let lists_shown = [
        "destination[0]:",
        "  destination_type = 0x1 (FLOW_TABLE)",
        "  destination_id = 0x15",
        "destination[1]:",
        "  destination_type = 0x2 (TIR)",
        "  destination_id = 0x2a",
        "flow_counter[0]:",
        "  flow_counter_id = 0x8004",
        "data at 0x358 = 5a5a5a5a 5a5a5a5a",
    ];
    let nested = entry.map(|line| format!("  {line}"));
    let nested = nested.iter().map(String::as_str);
    let head = [
        "opcode = 0x936 (SET_FLOW_TABLE_ENTRY)",
        "table_id = 0x7",
        "flow_index = 0x3",
    ];
    let expected: Vec<_> = head
        .into_iter()
        .chain(["flow_context:"])
        .chain(nested.clone())
        .chain(lists_shown)
        .collect();
    assert_eq!(column(0x936, &input, &[0; 16], false)[1..], expected);

    let query = QueryFteIn::new();
    let mut answer = QueryFteOut::ZERO;
    *answer.flow_context_mut() = *set.flow_context();
    let output = [&answer.0[..], &lists()].concat();
    let expected: Vec<_> = ["status = 0x0 (done)", "syndrome = 0x0", "flow_context:"]
        .into_iter()
        .chain(nested)
        .chain(lists_shown)
        .collect();
    assert_eq!(column(0x937, &query.0, &output, true)[1..], expected);

    // Of sizes beyond the end, as much is shown as there is.
    set.flow_context_mut().set_destination_list_size(0xff_ffff);
    let input = [&set.0[..], &lists()[..12]].concat();
    let shown = column(0x936, &input, &[0; 16], false);
    assert!(
        shown.iter().any(|line| line.contains("only 4 of 8 bytes")),
        "{shown:#?}"
    );
}

#[test]
fn flow_counters_and_receive_queue_tables() {
    let mut query = QueryFlowCounterIn::new();
    query.set_flow_counter_id(8).set_num_of_counters(4);
    let mut output = QueryFlowCounterOut::ZERO.0.to_vec();
    for (packets, octets) in [(2u64, 120u64), (0, 0), (1, 60)] {
        output.extend(packets.to_be_bytes());
        output.extend(octets.to_be_bytes());
    }
    let expected = [
        "status = 0x0 (done)",
        "syndrome = 0x0",
        "flow_statistics[0]:",
        "  packets = 0x2",
        "  octets = 0x78",
        "flow_statistics[2]:",
        "  packets = 0x1",
        "  octets = 0x3c",
    ];
    assert_eq!(column(0x93b, &query.0, &output, true)[1..], expected);

    let mut create = CreateRqtIn::new();
    create
        .rqt_context_mut()
        .set_rqt_max_size(4)
        .set_rqt_actual_size(2);
    let numbers = [0, 0, 0, 0x41, 0, 0, 0, 0x42];
    let input = [&create.0[..], &numbers].concat();
    let expected = [
        "opcode = 0x916 (CREATE_RQT)",
        "rqt_context:",
        "  rqt_max_size = 0x4",
        "  rqt_actual_size = 0x2",
        "rq_num[0] = 0x41",
        "rq_num[1] = 0x42",
    ];
    assert_eq!(column(0x916, &input, &[0; 16], false)[1..], expected);
    let mut answer = QueryRqtOut::ZERO;
    *answer.rqt_context_mut() = *create.rqt_context();
    let output = [&answer.0[..], &numbers].concat();
    let shown = column(0x919, &QueryRqtIn::new().0, &output, true);
    assert_eq!(shown[shown.len() - 2..], expected[4..]);
}

#[test]
fn port_counters_by_their_group() {
    const PPCNT: u16 = 0x5008;
    let mut access = AccessRegisterIn::new();
    access.set_op_mod(1).set_register_id(PPCNT);
    let mut counters = Eth8023Counters::ZERO;
    counters
        .set_a_frames_received_ok_low(77)
        .set_a_octets_received_ok_high(1);
    let mut register = PpcntReg::ZERO;
    register
        .set_local_port(1)
        .counter_set_mut()
        .copy_from_slice(&counters.0);
    let input = [&access.0[..], &PpcntReg::ZERO.0].concat();
    let show = |register: &PpcntReg| {
        let output = [&AccessRegisterOut::ZERO.0[..], &register.0].concat();
        column(0x805, &input, &output, true).join("\n")
    };
    let shown = show(&register);
    for text in [
        "local_port = 0x1",
        "a_frames_received_ok_low = 0x4d",
        "a_octets_received_ok_high = 0x1",
    ] {
        assert!(shown.contains(text), "{text} is not in\n{shown}");
    }
    // Another group holds something else.
    register.set_grp(0x10);
    let shown = show(&register);
    assert!(
        !shown.contains("a_frames") && shown.contains("grp = 0x10"),
        "{shown}"
    );
}

#[test]
fn every_command_comes_back_whole() {
    for command in registry::COMMANDS {
        let number = command.opcode.number();
        let mut input = vec![0x11; command.input.size];
        input[..2].copy_from_slice(&number.to_be_bytes());
        let output = vec![0; command.output.size];
        let log = log_of(0, number, &input, &output).concat().join("\n");
        let trace = trace::read(&log);
        assert_eq!(trace.commands[0].input.as_ref().unwrap().bytes, input);
        assert_eq!(trace.commands[0].output.as_ref().unwrap().bytes, output);
        let (out, errors, good) = decode(log.as_bytes(), Show::All);
        assert!(good, "{errors}");
        // Every field of the fixed part is there, and the reserved bits of the pattern are named as such.
        for field in command.input.fields {
            let tail = matches!(field.kind, bareverbs_firmware_cmds::layout::Kind::Tail);
            assert!(
                tail || out.contains(field.name),
                "{}: no {}",
                command.input.name,
                field.name
            );
        }
        assert!(
            out.contains("unknown bits set at"),
            "{}",
            command.input.name
        );
    }
}

#[test]
fn interleaved_slots() {
    let (input, output) = create_qp();
    let [in_a, out_a] = log_of(0, 0x500, &input, &output);
    let [in_b, out_b] = log_of(
        31,
        0x108,
        &[1, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0; 16],
    );
    let mut lines = Vec::new();
    for i in 0..in_a.len().max(in_b.len()) {
        lines.extend(in_b.get(i).cloned());
        lines.extend(in_a.get(i).cloned());
    }
    lines.extend(out_b);
    lines.extend(out_a);
    let trace = trace::read(&lines.join("\n"));
    assert!(trace.problems.is_empty(), "{:?}", trace.problems);
    let found: Vec<_> = trace
        .commands
        .iter()
        .map(|c| (c.slot, c.opcode, c.output.is_some()))
        .collect();
    assert_eq!(found, [(Some(31), 0x108, true), (Some(0), 0x500, true)]);
    assert_eq!(trace.commands[1].input.as_ref().unwrap().bytes, input);
}

#[test]
fn refusals_and_undelivered_commands_in_words() {
    let refused = [
        0x08, 0, 0, 0, 0x00, 0x12, 0x34, 0x56, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let log = log_of(0, 0x500, &create_qp().0, &refused)
        .concat()
        .join("\n");
    let (out, _, _) = decode(log.as_bytes(), Show::NonZero);
    assert!(
        out.contains("status = 0x8 (a limit would be exceeded)"),
        "{out}"
    );
    assert!(out.contains("syndrome = 0x123456"), "{out}");

    let undelivered = CONNECTX4.replace("00000010 04fc0000", "00000010 04fc0004");
    let (out, _, _) = decode(undelivered.as_bytes(), Show::NonZero);
    assert!(out.contains("not delivered: TOKEN_ERR(0x02)"), "{out}");
}

#[test]
fn unknown_opcodes_are_raw() {
    let mut input = vec![0u8; 0x20];
    input[..2].copy_from_slice(&[0x0a, 0x7f]);
    input[0x14] = 0x5a;
    let log = log_of(0, 0xa7f, &input, &[0; 16]).concat().join("\n");
    let (out, _, good) = decode(log.as_bytes(), Show::NonZero);
    assert!(
        good && out.contains("unknown command opcode(0xa7f)"),
        "{out}"
    );
    assert!(
        out.contains("data at 0x010 = 00000000 5a000000 00000000 00000000"),
        "{out}"
    );
}

#[test]
fn garbage_is_an_error() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "no mlx5 command in 0 lines"),
        (b"hello\nworld\n", "no mlx5 command in 2 lines"),
        (b"\xff\xfe\x00\x80", "no mlx5 command"),
        (
            b"dump command ENABLE_HCA(0x104)\n",
            "line 1: neither INPUT nor OUTPUT",
        ),
        (
            b"dump command X(0x104) INPUT\n000: 07000000 00000010 00000000 0000000g\n",
            "line 2: a row needs four dwords",
        ),
        (
            b"000: 07000000 00000010 00000000 00000000\n",
            "line 1: a row, but no `dump command`",
        ),
    ];
    for (log, expected) in cases {
        let (_, errors, good) = decode(log, Show::NonZero);
        assert!(!good && errors.contains(expected), "{errors}");
    }
    let gap = CONNECTX4.replace(
        "[  +0.000001] 010: 01040000 00000000 00000000 00000000\n",
        "",
    );
    let (_, errors, good) = decode(gap.as_bytes(), Show::NonZero);
    assert!(
        !good && errors.contains("line 5: row 020 where 010 should follow"),
        "{errors}"
    );
}

#[test]
fn a_log_cut_anywhere_does_not_panic() {
    let (input, output) = create_qp();
    let log = log_of(3, 0x500, &input, &output).concat().join("\n");
    for cut in 0..log.len() {
        let _ = decode(&log.as_bytes()[..cut], Show::NonZero);
    }
    let cut = log.find("cmd[3]: 0a0:").unwrap();
    let (_, errors, good) = decode(&log.as_bytes()[..cut], Show::NonZero);
    assert!(
        !good && errors.contains("breaks off after 112 of"),
        "{errors}"
    );
}

#[test]
fn random_damage_does_not_panic() {
    let seed = std::env::var("SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    println!("SEED={seed}");
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    let (input, output) = create_qp();
    let clean = CONNECTX4.to_owned() + &log_of(3, 0x500, &input, &output).concat().join("\n");
    for _ in 0..1500 {
        let mut log = clean.clone().into_bytes();
        for _ in 0..=random(30) {
            let at = random(log.len());
            match random(4) {
                0 => log[at] = random(256) as u8,
                1 => log[at] = b"0123456789abcdef:\n ()[]x"[random(24)],
                2 => drop(log.drain(at..(at + random(200)).min(log.len()))),
                _ => {
                    let piece = log[at..(at + random(100)).min(log.len())].to_vec();
                    let to = random(log.len());
                    log.splice(to..to, piece);
                }
            }
            if log.is_empty() {
                break;
            }
        }
        let _ = decode(&log, Show::All);
    }
    for _ in 0..200 {
        let log: Vec<u8> = (0..random(4000)).map(|_| random(256) as u8).collect();
        let (_, _, good) = decode(&log, Show::All);
        assert!(!good);
    }
}
