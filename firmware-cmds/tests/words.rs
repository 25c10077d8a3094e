//! Rung 0 of the data path: the accessors that driver and model run, against the members of the vendor's structures
//! (`data/mlx5_ifc.tsv`) and against what the vendor's own functions write (`data/mlx5_functions.tsv`; `cargo rig layouts`
//! makes both again).

mod table;

use bareverbs_firmware_cmds::cqe::{self, Opcode as CqeOpcode, Syndrome, l3_header, l4_header};
use bareverbs_firmware_cmds::doorbell::{self, SendRecord};
use bareverbs_firmware_cmds::numbers::LKey;
use bareverbs_firmware_cmds::registry::WORDS;
use bareverbs_firmware_cmds::word::{Word, WordDescriptor, WordField};
use bareverbs_firmware_cmds::wqe::{self, Opcode, completion, ethernet, fence, umr};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use table::{Row, oldest};

const FUNCTIONS: &str = include_str!("../data/mlx5_functions.tsv");

/// Fields that are a part of a member, or of a word without a structure, for which no header has a function.
const NO_FUNCTION: &[(&str, &str, &str)] = &[
    (
        "DestinationWord",
        "stat_rate",
        "rdma-core composes the byte in mlx5_create_ah",
    ),
    ("DestinationWord", "sl", "as stat_rate"),
    (
        "DestinationWord",
        "eth_prio",
        "as stat_rate; Linux has it in create_ib_ah of mlx5_ib",
    ),
    (
        "DestinationWord",
        "fl",
        "`fl` of `ads` in mlx5_ifc.h is the same byte's bit 7",
    ),
    (
        "GrhWord",
        "grh",
        "rdma-core composes the dword in mlx5_create_ah",
    ),
    ("GrhWord", "sgid_index", "as grh"),
    ("GrhWord", "flow_label", "as grh"),
    (
        "WqeIdWord",
        "outer_ipv6",
        "DPDK has it in mlx5_set_ptype_table, as bit 7 of its index",
    ),
    ("XrcWord", "srqn", "the number has 24 bits, the member 32"),
    (
        "PathWord",
        "dlid_path_bits",
        "rdma-core masks with 0x7f in handle_responder",
    ),
    (
        "SourceWord",
        "grh",
        "rdma-core takes the dword apart in handle_responder",
    ),
    ("SourceWord", "sl", "as grh"),
    (
        "SourceWord",
        "l3_type",
        "as grh; Linux has it in mlx5_ib_poll_one's callers",
    ),
    ("SourceWord", "rqpn", "as grh"),
    (
        "HeadersWord",
        "l3_hdr_type",
        "rdma-core and mlx5e shift by 2 in their pollers",
    ),
    ("HeadersWord", "ip_frag", "the PRM only"),
    (
        "IndexWord",
        "srqn_uidx",
        "the number has 24 bits, the member 32",
    ),
    ("ImmediateWord", "pkey_index", "16 bits of a member of 32"),
    (
        "TailWord",
        "wqe_opcode",
        "rdma-core and Linux shift by 24 in their pollers",
    ),
    ("TailWord", "qpn", "as wqe_opcode"),
    ("CqArmDoorbell", "record", "its two upper bits are always 0"),
    (
        "EqDoorbell",
        "eqn",
        "Linux composes it in eq_update_ci of eq.c",
    ),
    ("EqDoorbell", "consumer", "as eqn"),
    (
        "ReceiveRecord",
        "counter",
        "rdma-core masks with 0xffff where it posts",
    ),
    ("SendRecord", "counter", "as ReceiveRecord"),
];

/// Members that Linux's structure does not have, which the table is made of.
const NOT_IN_LINUX: &[(&str, &str, &str)] = &[(
    "ControlFlags",
    "dci_stream_channel_id",
    "reserved in Linux; libibverbs' mlx5dv.h has it in bytes 9 and 10",
)];

fn ones(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

fn width(field: &WordField) -> u32 {
    field.high - field.low + 1
}

fn mask(field: &WordField) -> u64 {
    ones(width(field)) << field.low
}

fn fields() -> impl Iterator<Item = (&'static WordDescriptor, &'static WordField)> {
    WORDS
        .iter()
        .flat_map(|word| word.fields.iter().map(move |field| (*word, field)))
}

/// The fields' values that were given to a vendor's function, and the bytes that it made of them.
struct Vector {
    /// A structure, or a word that is in none.
    of: &'static str,
    fields: BTreeMap<&'static str, u64>,
    bytes: Vec<u8>,
}

fn vectors() -> Vec<Vector> {
    let rows = FUNCTIONS
        .lines()
        .filter_map(|row| row.strip_prefix("vector\t"));
    rows.map(|row| {
        let [of, fields, bytes] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let pair = |text: &'static str| {
            let (name, value) = text.split_once('=').unwrap();
            (name, value.parse().unwrap())
        };
        let digits = bytes.as_bytes().chunks(2);
        let byte = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap();
        Vector {
            of,
            fields: fields.split(' ').map(pair).collect(),
            bytes: digits.map(byte).collect(),
        }
    })
    .collect()
}

impl Vector {
    fn is_of(&self, word: &WordDescriptor) -> bool {
        // The tail of a completion is the same in those in error.
        if word.structure.is_empty() {
            self.of == word.name
        } else {
            self.of == word.structure
        }
    }

    /// The bytes of a word.
    fn at<'a>(&self, word: &WordDescriptor, bytes: &'a mut [u8]) -> &'a mut [u8] {
        let start = if word.structure.is_empty() {
            0
        } else {
            word.offset
        };
        &mut bytes[start..start + word.width as usize / 8]
    }

    fn word(&self, word: &WordDescriptor) -> u64 {
        let mut bytes = self.bytes.clone();
        self.at(word, &mut bytes)
            .iter()
            .fold(0, |all, &byte| all << 8 | u64::from(byte))
    }
}

/// `true` if a field is named as a member, which it has to be then, rather than a part of one. Members of nested unions have
/// their path in front.
fn is_whole(field: &WordField) -> bool {
    field.member.rsplit('.').next() == Some(field.name)
        || field.member.replace('.', "_") == field.name
}

/// The fault of a field's place, as the tables have it.
fn fault(
    table: &HashMap<&str, Vec<Row>>,
    vectors: &[Vector],
    word: &WordDescriptor,
    field: &WordField,
) -> Option<String> {
    let (start, width) = (word.bit_offset(field), width(field));
    if !word.structure.is_empty() {
        let rows = table.get(word.structure).map_or(&[][..], |rows| rows);
        let members: Vec<&Row> = rows
            .iter()
            .filter(|row| row.field == field.member && row.nested.is_empty())
            .collect();
        let inside = |row: &&Row| row.offset <= start && start + width <= row.offset + row.width;
        let exact = |row: &&Row| (row.offset, row.width) == (start, width);
        let good = if is_whole(field) {
            members.iter().any(exact)
        } else {
            members.iter().any(inside)
        };
        if !good {
            return Some(format!(
                "{start}+{width} is not in `{}` of the header",
                field.member
            ));
        }
        if is_whole(field) {
            return None;
        }
    }
    let values: Vec<(u64, u64)> = vectors
        .iter()
        .filter(|vector| vector.is_of(word))
        .filter_map(|vector| {
            let value = *vector.fields.get(field.name)?;
            Some((value, vector.word(word) >> field.low & ones(width)))
        })
        .collect();
    if let Some((theirs, ours)) = values.iter().find(|(theirs, ours)| theirs != ours) {
        return Some(format!(
            "{ours:#x} where the vendor's function has {theirs:#x}"
        ));
    }
    // Or it could be wider.
    let whole = values.iter().any(|&(value, _)| value == ones(width));
    (!whole).then(|| "a part of a member, which no vendor's function shows".into())
}

#[test]
fn every_field_of_a_word_is_where_the_vendor_has_it() {
    let (table, vectors) = (oldest(), vectors());
    let mut unused: BTreeSet<_> = NO_FUNCTION
        .iter()
        .map(|&(word, field, _)| (word, field))
        .collect();
    let mut absent: BTreeSet<_> = NOT_IN_LINUX
        .iter()
        .map(|&(word, field, _)| (word, field))
        .collect();
    let mut wrong = Vec::new();
    for (word, field) in fields() {
        let name = (word.name, field.name);
        if let Some(what) = fault(&table, &vectors, word, field)
            && !(what.starts_with("a part") && unused.remove(&name))
            && !absent.remove(&name)
        {
            wrong.push(format!("{}.{}: {what}", word.name, field.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        unused.is_empty(),
        "reasons for fields that have a function: {unused:?}"
    );
    assert!(absent.is_empty(), "Linux has them now: {absent:?}");
    assert!(fields().count() > 95 && vectors.len() > 70);
}

#[test]
fn a_setter_changes_its_own_bits_and_a_getter_reads_them() {
    for (word, field) in fields() {
        let name = format!("{}.{}", word.name, field.name);
        let (mask, all) = (mask(field), ones(word.width));
        let most = ones(width(field));
        for value in (0..width(field))
            .map(|bit| 1 << bit)
            .chain([0, most, u64::MAX])
        {
            for around in [0, all, 0xa5a5_a5a5_a5a5_a5a5 & all] {
                let set = (field.set)(around, value);
                assert_eq!(set, around & !mask | (value & most) << field.low, "{name}");
                assert_eq!((field.get)(set), value & most, "{name}");
            }
        }
    }
}

#[test]
fn the_vendors_functions_write_what_our_words_say() {
    for vector in vectors() {
        let mut ours = vec![0; vector.bytes.len()];
        for (name, value) in &vector.fields {
            let found = fields().find(|(word, field)| vector.is_of(word) && field.name == *name);
            let (word, field) = found.unwrap_or_else(|| panic!("{} has no {name}", vector.of));
            let bytes = vector.at(word, &mut ours);
            let now = bytes
                .iter()
                .fold(0, |all, &byte| all << 8 | u64::from(byte));
            let set = (field.set)(now, *value).to_be_bytes();
            bytes.copy_from_slice(&set[8 - bytes.len()..]);
        }
        assert_eq!(ours, vector.bytes, "{} {:?}", vector.of, vector.fields);
    }
}

#[test]
fn a_word_one_bit_off_is_caught() {
    let (table, vectors) = (oldest(), vectors());
    let mut moved = 0;
    for (word, field) in fields() {
        if NO_FUNCTION
            .iter()
            .any(|&(w, f, _)| (w, f) == (word.name, field.name))
        {
            continue;
        }
        let places = [
            (field.high + 1, field.low + 1),
            (field.high.wrapping_sub(1), field.low.wrapping_sub(1)),
            (field.high + 1, field.low),
            (field.high, field.low.wrapping_sub(1)),
        ];
        for (high, low) in places {
            // Beyond the word nothing compiles.
            if high >= word.width || low > high {
                continue;
            }
            let other = WordField {
                high,
                low,
                ..*field
            };
            assert!(
                fault(&table, &vectors, word, &other).is_some(),
                "{}.{} passes at {high}:{low}",
                word.name,
                field.name
            );
            moved += 1;
        }
    }
    assert!(moved > 180, "{moved}");
}

/// The vendor's constants by name, and what this crate has for them.
#[test]
fn constants_are_the_vendors() {
    fn cast(opcode: CqeOpcode) -> u64 {
        opcode as u64
    }
    let flag = |flags: u8| u64::from(flags);
    let inline = (wqe::InlineWord::new(0).0).into();
    let extended =
        wqe::DestinationWord(0).to(bareverbs_firmware_cmds::numbers::Qpn::from_low_bits(0));
    let arm = |solicited| doorbell::CqArmRecord::new(0, solicited, 0).0.into();
    let (mut l2, mut l3, mut l4) =
        <(cqe::HeadersWord, cqe::HeadersWord, cqe::HeadersWord)>::default();
    l2.set_l2_ok(true);
    l3.set_l3_ok(true);
    l4.set_l4_ok(true);
    let mut solicited = wqe::ControlFlags(0);
    solicited.set_solicited(true);
    let mut umr_flags = [wqe::UmrWord(0); 5];
    umr_flags[0].set_inline(true);
    umr_flags[1].set_check(umr::MUST_BE_FREE);
    umr_flags[2].set_check(umr::MUST_NOT_BE_FREE);
    umr_flags[3].set_translation_offset(true);
    umr_flags[4].set_check_qpn(true);
    let [
        umr_inline,
        must_be_free,
        must_not_be_free,
        umr_offset,
        umr_qpn,
    ] = umr_flags.map(|word| word.0 >> 56);
    let ours: &[(&str, u64)] = &[
        ("MLX5_OPCODE_NOP", Opcode::Nop as u64),
        ("MLX5_OPCODE_SEND_INVAL", Opcode::SendInvalidate as u64),
        ("MLX5_OPCODE_RDMA_WRITE", Opcode::RdmaWrite as u64),
        (
            "MLX5_OPCODE_RDMA_WRITE_IMM",
            Opcode::RdmaWriteImmediate as u64,
        ),
        ("MLX5_OPCODE_SEND", Opcode::Send as u64),
        ("MLX5_OPCODE_SEND_IMM", Opcode::SendImmediate as u64),
        ("MLX5_OPCODE_TSO", Opcode::Lso as u64),
        ("MLX5_OPCODE_RDMA_READ", Opcode::RdmaRead as u64),
        ("MLX5_OPCODE_ATOMIC_CS", Opcode::AtomicCompareSwap as u64),
        ("MLX5_OPCODE_ATOMIC_FA", Opcode::AtomicFetchAdd as u64),
        (
            "MLX5_OPCODE_ATOMIC_MASKED_CS",
            Opcode::AtomicMaskedCompareSwap as u64,
        ),
        (
            "MLX5_OPCODE_ATOMIC_MASKED_FA",
            Opcode::AtomicMaskedFetchAdd as u64,
        ),
        ("MLX5_OPCODE_CONFIG_CMD", Opcode::ConfigCmd as u64),
        ("MLX5_OPCODE_SET_PSV", Opcode::SetPsv as u64),
        ("MLX5_OPCODE_UMR", Opcode::Umr as u64),
        (
            "MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR",
            Syndrome::LocalLength.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR",
            Syndrome::LocalQpOperation.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_LOCAL_PROT_ERR",
            Syndrome::LocalProtection.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_WR_FLUSH_ERR",
            Syndrome::WrFlush.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_MW_BIND_ERR",
            Syndrome::MwBind.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_BAD_RESP_ERR",
            Syndrome::BadResponse.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR",
            Syndrome::LocalAccess.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR",
            Syndrome::RemoteInvalidRequest.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR",
            Syndrome::RemoteAccess.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_OP_ERR",
            Syndrome::RemoteOperation.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR",
            Syndrome::TransportRetryExceeded.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR",
            Syndrome::RnrRetryExceeded.number().into(),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR",
            Syndrome::RemoteAborted.number().into(),
        ),
        ("MLX5_CQE_L2_OK", (l2.0 >> 24).into()),
        ("MLX5_CQE_L3_OK", (l3.0 >> 24).into()),
        ("MLX5_CQE_L4_OK", (l4.0 >> 24).into()),
        ("MLX5_CQE_L3_HDR_TYPE_IPV6", l3_header::IPV6.into()),
        ("MLX5_CQE_L3_HDR_TYPE_IPV4", l3_header::IPV4.into()),
        ("MLX5_CQE_OWNER_MASK", 1),
        ("MLX5_CQE_REQ", cast(CqeOpcode::Requester)),
        (
            "MLX5_CQE_RESP_WR_IMM",
            cast(CqeOpcode::ResponderWriteImmediate),
        ),
        ("MLX5_CQE_RESP_SEND", cast(CqeOpcode::ResponderSend)),
        (
            "MLX5_CQE_RESP_SEND_IMM",
            cast(CqeOpcode::ResponderSendImmediate),
        ),
        (
            "MLX5_CQE_RESP_SEND_INV",
            cast(CqeOpcode::ResponderSendInvalidate),
        ),
        ("MLX5_CQE_RESIZE_CQ", cast(CqeOpcode::ResizeCq)),
        ("MLX5_CQE_NO_PACKET", cast(CqeOpcode::NoPacket)),
        ("MLX5_CQE_SIG_ERR", cast(CqeOpcode::SignatureError)),
        ("MLX5_CQE_REQ_ERR", cast(CqeOpcode::RequesterError)),
        ("MLX5_CQE_RESP_ERR", cast(CqeOpcode::ResponderError)),
        ("MLX5_CQE_INVALID", cast(CqeOpcode::Invalid)),
        ("MLX5_CQ_DOORBELL", doorbell::CQ_ARM as u64),
        ("MLX5_CQ_DB_REQ_NOT_SOL", arm(true)),
        ("MLX5_CQ_DB_REQ_NOT", arm(false)),
        ("MLX5_INVALID_LKEY", LKey::TERMINATOR.0.into()),
        ("MLX5_EXTENDED_UD_AV", extended.0 >> 32),
        ("MLX5_WQE_CTRL_CQ_UPDATE", flag(completion::ALWAYS)),
        (
            "MLX5_WQE_CTRL_CQ_UPDATE_AND_EQE",
            flag(completion::ALWAYS_WITH_EVENT),
        ),
        ("MLX5_WQE_CTRL_SOLICITED", solicited.fm_ce_se().into()),
        ("MLX5_WQE_CTRL_FENCE", flag(fence::SMALL_AND_FENCE)),
        (
            "MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE",
            flag(fence::INITIATOR_SMALL),
        ),
        (
            "MLX5_FENCE_MODE_INITIATOR_SMALL",
            flag(fence::INITIATOR_SMALL),
        ),
        ("MLX5_FENCE_MODE_FENCE", flag(fence::FENCE)),
        (
            "MLX5_FENCE_MODE_STRONG_ORDERING",
            flag(fence::STRONG_ORDERING),
        ),
        (
            "MLX5_FENCE_MODE_SMALL_AND_FENCE",
            flag(fence::SMALL_AND_FENCE),
        ),
        ("MLX5_SEND_WQE_BB", wqe::BASIC_BLOCK as u64),
        ("MLX5_INLINE_SEG", inline),
        ("MLX5_ETH_WQE_L3_CSUM", flag(ethernet::L3_CHECKSUM)),
        ("MLX5_ETH_WQE_L4_CSUM", flag(ethernet::L4_CHECKSUM)),
        (
            "MLX5_ETH_WQE_L3_INNER_CSUM",
            flag(ethernet::INNER_L3_CHECKSUM),
        ),
        (
            "MLX5_ETH_WQE_L4_INNER_CSUM",
            flag(ethernet::INNER_L4_CHECKSUM),
        ),
        ("MLX5_ETH_WQE_INSERT_VLAN", ethernet::INSERT_VLAN.into()),
        ("MLX5_ETH_WQE_SVLAN", ethernet::SERVICE_TAG.into()),
        ("MLX5_RCV_DBR", doorbell::ReceiveRecord::OFFSET as u64 / 4),
        ("MLX5_SND_DBR", SendRecord::OFFSET as u64 / 4),
        ("MLX5_WQE_UMR_CTRL_FLAG_INLINE", umr_inline),
        // "Check that it is free", and "fail if it is not free": the same bit.
        ("MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE", must_be_free),
        ("MLX5_UMR_CHECK_NOT_FREE", must_be_free),
        ("MLX5_UMR_CHECK_FREE", must_not_be_free),
        ("MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET", umr_offset),
        ("MLX5_UMR_TRANSLATION_OFFSET_EN", umr_offset),
        ("MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN", umr_qpn),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN", umr::mask::LEN),
        (
            "MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR",
            umr::mask::START_ADDR,
        ),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR", umr::mask::EN_SIGERR),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE", umr::mask::BSF_EN),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY", umr::mask::KEY),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN", umr::mask::QPN),
        (
            "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE",
            umr::mask::LW,
        ),
        (
            "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ",
            umr::mask::RR,
        ),
        (
            "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE",
            umr::mask::RW,
        ),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC", umr::mask::A),
        ("MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE", umr::mask::FREE),
        ("MLX5_MKEY_MASK_LEN", umr::mask::LEN),
        ("MLX5_MKEY_MASK_PAGE_SIZE", umr::mask::PAGE_SIZE),
        ("MLX5_MKEY_MASK_START_ADDR", umr::mask::START_ADDR),
        ("MLX5_MKEY_MASK_PD", umr::mask::PD),
        ("MLX5_MKEY_MASK_EN_RINVAL", umr::mask::EN_RINVAL),
        ("MLX5_MKEY_MASK_EN_SIGERR", umr::mask::EN_SIGERR),
        ("MLX5_MKEY_MASK_BSF_EN", umr::mask::BSF_EN),
        ("MLX5_MKEY_MASK_KEY", umr::mask::KEY),
        ("MLX5_MKEY_MASK_QPN", umr::mask::QPN),
        ("MLX5_MKEY_MASK_LR", umr::mask::LR),
        ("MLX5_MKEY_MASK_LW", umr::mask::LW),
        ("MLX5_MKEY_MASK_RR", umr::mask::RR),
        ("MLX5_MKEY_MASK_RW", umr::mask::RW),
        ("MLX5_MKEY_MASK_A", umr::mask::A),
        ("MLX5_MKEY_MASK_SMALL_FENCE", umr::mask::SMALL_FENCE),
        (
            "MLX5_MKEY_MASK_RELAXED_ORDERING_WRITE",
            umr::mask::RELAXED_ORDERING_WRITE,
        ),
        ("MLX5_MKEY_MASK_FREE", umr::mask::FREE),
        (
            "MLX5_MKEY_MASK_RELAXED_ORDERING_READ",
            umr::mask::RELAXED_ORDERING_READ,
        ),
        ("CQE_L4_HDR_TYPE_TCP_NO_ACK", l4_header::TCP_NO_ACK.into()),
        ("CQE_L4_HDR_TYPE_UDP", l4_header::UDP.into()),
        (
            "CQE_L4_HDR_TYPE_TCP_ACK_NO_DATA",
            l4_header::TCP_ACK_NO_DATA.into(),
        ),
        (
            "CQE_L4_HDR_TYPE_TCP_ACK_AND_DATA",
            l4_header::TCP_ACK_AND_DATA.into(),
        ),
    ];
    let ours: BTreeMap<&str, u64> = ours.iter().copied().collect();
    let theirs: BTreeMap<&str, u64> = FUNCTIONS
        .lines()
        .filter_map(|row| row.strip_prefix("constant\t")?.split_once('\t'))
        .map(|(name, value)| (name, value.parse().unwrap()))
        .collect();
    assert_eq!(ours, theirs);
}
