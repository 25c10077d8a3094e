//! Commands taken apart for people: every field by name, what its number means, and bits that are set although no field
//! here has them.

use crate::dump::Direction;
use crate::flow::{DestFormat, FlowContext, FlowCounterList};
use crate::layout::{Descriptor, Field, Kind, Layout, get};
use crate::opcode::Opcode;
use crate::register::{PortCounterGroup, PpcntReg};
use crate::registry;
use crate::status::Status;
use crate::values::{
    CapabilityGroup, MkeyAccessMode, Mtu, PathMigration, PortType, QpServiceType, QpState,
    RegisterId, RoceL3Type, RoceVersion, RqType,
};
use crate::vport::TrafficCounter;
use core::fmt;
use zerocopy::FromBytes;

/// One item to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The depth of nesting.
    pub depth: usize,
    /// Name of the field, or of the structure that begins here.
    pub name: &'a str,
    /// Position in an array of open length.
    pub index: Option<usize>,
    /// The item's content.
    pub value: Value<'a>,
}

/// The content of an [`Item`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    /// A structure; its fields follow, one deeper.
    Structure,
    /// A number, and what it means if that is known.
    Number(u64, Option<&'static str>),
    /// Bytes.
    Bytes(&'a [u8]),
    /// Bytes of which nothing is known.
    Raw {
        /// Offset of the first in the message.
        at: usize,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bits that no field covers, but that are set, in the dword at this byte of the message.
    UnknownBits {
        /// Offset of the dword in the message.
        at: usize,
        /// The bits.
        bits: u32,
    },
    /// The message ends inside this structure.
    Truncated {
        /// Bytes that there are.
        have: usize,
        /// Bytes that there should be.
        needed: usize,
    },
}

impl fmt::Display for Item<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:width$}{}", "", self.name, width = self.depth * 2)?;
        if let Some(index) = self.index {
            write!(f, "[{index}]")?;
        }
        match self.value {
            Value::Structure => f.write_str(":"),
            Value::Number(number, None) => write!(f, " = {number:#x}"),
            Value::Number(number, Some(meaning)) => write!(f, " = {number:#x} ({meaning})"),
            Value::Bytes(bytes) => write!(f, " = {}", Hex(bytes)),
            Value::Raw { at, bytes } => write!(f, " at {at:#05x} = {}", Hex(bytes)),
            Value::UnknownBits { at, bits } => {
                write!(f, ": unknown bits set at {at:#05x}: {bits:#010x}")
            }
            Value::Truncated { have, needed } => {
                write!(f, ": only {have} of {needed} bytes")
            }
        }
    }
}

struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if i != 0 && i % 4 == 0 {
                f.write_str(" ")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// The fields of a message that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// The header, and fields that are not zero.
    NonZero,
    /// All fields.
    All,
}

/// Takes a message apart. `input` is the command's input, also where `bytes` is the output: what an output's data mean
/// depends on what was asked. An unknown opcode gives its header and raw bytes.
pub fn message(
    opcode: u16,
    direction: Direction,
    bytes: &[u8],
    input: &[u8],
    show: Show,
    visit: &mut dyn FnMut(Item<'_>),
) {
    let mut walk = Walk { show, visit };
    let Some(known) = Opcode::from_number(opcode) else {
        let header = match direction {
            Direction::Input => registry::command(Opcode::AllocPd).input,
            Direction::Output => registry::command(Opcode::AllocPd).output,
        };
        walk.header(header, bytes);
        let (first_row, rest) = bytes.split_at(bytes.len().min(16));
        walk.raw(8, first_row.get(8..).unwrap_or_default());
        walk.raw(16, rest);
        return;
    };
    let description = registry::command(known);
    let structure = match direction {
        Direction::Input => description.input,
        Direction::Output => description.output,
    };
    // A refused command's answer has its header only, for every requested length.
    let refused =
        direction == Direction::Output && bytes.first().is_some_and(|&status| status != 0);
    if refused {
        walk.header(structure, bytes);
        return;
    }
    walk.structure(structure, bytes, 0, 0);
    let Some(tail) = bytes.get(structure.size..).filter(|tail| !tail.is_empty()) else {
        return;
    };
    match known {
        Opcode::SetFte | Opcode::QueryFte => {
            walk.entry_lists(bytes.get(..structure.size).unwrap_or_default(), tail);
            return;
        }
        Opcode::QueryFlowCounter if direction == Direction::Output => {
            let counter = TrafficCounter::DESCRIPTOR;
            walk.elements("flow_statistics", counter, tail, structure.size);
            return;
        }
        _ => {}
    }
    let about = |at: usize| {
        input
            .get(at..at + 2)
            .map(|b| u16::from_be_bytes([b[0], b[1]]))
    };
    let content = match known {
        Opcode::QueryHcaCap | Opcode::SetHcaCap => about(6)
            .and_then(|op_mod| CapabilityGroup::from_number(op_mod >> 1))
            .and_then(registry::capability),
        Opcode::AccessRegister => about(10)
            .and_then(RegisterId::from_number)
            .and_then(registry::register),
        _ => None,
    };
    match content {
        Some(content) => {
            walk.item(0, content.name, None, Value::Structure);
            walk.structure(content, tail, structure.size, 1);
            walk.port_counters(content, tail, structure.size);
            let behind = tail.get(content.size..).unwrap_or_default();
            walk.raw(structure.size + content.size, behind);
        }
        None => walk.tail(structure, tail),
    }
}

/// Takes a structure apart that is not a whole message.
pub fn structure(
    of: &'static Descriptor,
    bytes: &[u8],
    show: Show,
    visit: &mut dyn FnMut(Item<'_>),
) {
    Walk { show, visit }.structure(of, bytes, 0, 0);
}

struct Walk<'v> {
    show: Show,
    visit: &'v mut dyn FnMut(Item<'_>),
}

impl Walk<'_> {
    fn item(&mut self, depth: usize, name: &str, index: Option<usize>, value: Value<'_>) {
        (self.visit)(Item {
            depth,
            name,
            index,
            value,
        });
    }

    /// The first 8 bytes of a message, which all have alike.
    fn header(&mut self, of: &'static Descriptor, bytes: &[u8]) {
        self.fields(of, bytes.get(..8).unwrap_or(bytes), 0, 0);
        if bytes.len() < 8 {
            let have = bytes.len();
            self.item(0, "header", None, Value::Truncated { have, needed: 8 });
        }
    }

    /// `base` is where `bytes` lie in the message.
    fn structure(&mut self, of: &'static Descriptor, bytes: &[u8], base: usize, depth: usize) {
        let bytes = bytes.get(..of.size).unwrap_or(bytes);
        self.fields(of, bytes, base, depth);
        if bytes.len() < of.size {
            let (have, needed) = (bytes.len(), of.size);
            self.item(depth, of.name, None, Value::Truncated { have, needed });
        }
    }

    fn fields(&mut self, of: &'static Descriptor, bytes: &[u8], base: usize, depth: usize) {
        for field in of.fields {
            let (start, end) = dwords(field);
            let Some(place) = bytes.get(start..end) else {
                continue;
            };
            match field.kind {
                Kind::Tail => {}
                Kind::Struct(inner) => {
                    if self.show == Show::All || place.iter().any(|&byte| byte != 0) {
                        self.item(depth, field.name, None, Value::Structure);
                        self.structure(inner, place, base + start, depth + 1);
                    }
                }
                Kind::Bytes => {
                    if self.show == Show::All || place.iter().any(|&byte| byte != 0) {
                        self.item(depth, field.name, None, Value::Bytes(place));
                    }
                }
                Kind::Bits => {
                    let number = get(place, field.offset - start as u32 * 8, field.width);
                    let header =
                        depth == 0 && matches!(field.name, "opcode" | "status" | "syndrome");
                    if header || self.show == Show::All || number != 0 {
                        let meaning = meaning(of, field, number, bytes);
                        self.item(depth, field.name, None, Value::Number(number, meaning));
                    }
                }
            }
        }
        let (words, _) = bytes.as_chunks::<4>();
        for (i, word) in words.iter().enumerate() {
            let bits = u32::from_be_bytes(*word) & !covered(of, i as u32 * 32);
            if bits != 0 {
                let at = base + i * 4;
                self.item(depth, "reserved", None, Value::UnknownBits { at, bits });
            }
        }
    }

    /// Structures one after the other; those that hold nothing only if all is to be shown.
    fn elements(&mut self, name: &str, of: &'static Descriptor, bytes: &[u8], base: usize) {
        for (i, element) in bytes.chunks(of.size).enumerate() {
            if self.show == Show::All || element.iter().any(|&byte| byte != 0) {
                self.item(0, name, Some(i), Value::Structure);
                self.structure(of, element, base + i * of.size, 1);
            }
        }
    }

    /// The lists behind the context of a flow table entry: destinations, then counters, as many as the context says.
    fn entry_lists(&mut self, message: &[u8], tail: &[u8]) {
        let context = message
            .get(message.len().saturating_sub(size_of::<FlowContext>())..)
            .and_then(|context| FlowContext::ref_from_bytes(context).ok());
        let Some(context) = context else {
            return self.raw(message.len(), tail);
        };
        let each = size_of::<DestFormat>();
        let end = context.destination_list_size() as usize * each;
        let (destinations, rest) = tail.split_at(end.min(tail.len()));
        let end = context.flow_counter_list_size() as usize * each;
        let (counters, rest) = rest.split_at(end.min(rest.len()));
        let mut base = message.len();
        self.elements("destination", DestFormat::DESCRIPTOR, destinations, base);
        base += destinations.len();
        self.elements("flow_counter", FlowCounterList::DESCRIPTOR, counters, base);
        self.raw(base + counters.len(), rest);
    }

    /// The counters of a port, whose group says what they are.
    fn port_counters(&mut self, content: &'static Descriptor, bytes: &[u8], base: usize) {
        if content.name != PpcntReg::DESCRIPTOR.name {
            return;
        }
        let Ok((register, _)) = PpcntReg::ref_from_prefix(bytes) else {
            return;
        };
        let counters = register.counter_set();
        let group = PortCounterGroup::from_number(register.grp());
        if let Some(group) = group
            && counters.iter().any(|&byte| byte != 0)
        {
            let of = group.descriptor();
            self.item(1, of.name, None, Value::Structure);
            self.structure(of, counters, base + content.size - counters.len(), 2);
        }
    }

    fn tail(&mut self, of: &Descriptor, bytes: &[u8]) {
        let tail = tail_of(of);
        let Some(field) = tail.filter(|field| field.width >= 32 && field.width % 8 == 0) else {
            self.raw(of.size, bytes);
            return;
        };
        for (i, element) in bytes.chunks(field.width as usize / 8).enumerate() {
            match element.len() {
                4 | 8 => {
                    let number = get(element, 0, element.len() as u32 * 8);
                    self.item(0, field.name, Some(i), Value::Number(number, None));
                }
                _ => self.item(0, field.name, Some(i), Value::Bytes(element)),
            }
        }
    }

    /// Bytes of which nothing is known, in rows of 16; rows of zeros only if all is to be shown.
    fn raw(&mut self, base: usize, bytes: &[u8]) {
        for (i, row) in bytes.chunks(16).enumerate() {
            if self.show == Show::All || row.iter().any(|&byte| byte != 0) {
                let at = base + i * 16;
                self.item(0, "data", None, Value::Raw { at, bytes: row });
            }
        }
    }
}

/// The array of open length behind a structure, which may be that of the context at its end.
fn tail_of(of: &Descriptor) -> Option<&'static Field> {
    of.fields.iter().find_map(|field| match field.kind {
        Kind::Tail => Some(field),
        Kind::Struct(inner) if (field.offset + field.width) as usize == of.size * 8 => {
            tail_of(inner)
        }
        _ => None,
    })
}

/// The bytes of the dwords that a field touches; for byte arrays and structures its own bytes.
fn dwords(field: &Field) -> (usize, usize) {
    match field.kind {
        Kind::Bits => {
            let start = field.offset / 32 * 4;
            let end = (field.offset + field.width).div_ceil(32) * 4;
            (start as usize, end as usize)
        }
        _ => {
            let start = field.offset / 8;
            (start as usize, (start + field.width / 8) as usize)
        }
    }
}

/// The bits of the dword at bit offset `at` that belong to some field.
fn covered(of: &Descriptor, at: u32) -> u32 {
    let mut mask = 0;
    for field in of.fields {
        if matches!(field.kind, Kind::Tail) {
            continue;
        }
        let from = field.offset.max(at);
        let to = (field.offset + field.width).min(at + 32);
        if from < to {
            let width = to - from;
            let ones = u32::MAX >> (32 - width);
            mask |= ones << (at + 32 - to);
        }
    }
    mask
}

/// The meaning of a number, where there is a word for it.
fn meaning(of: &Descriptor, field: &Field, number: u64, bytes: &[u8]) -> Option<&'static str> {
    let byte = u8::try_from(number).ok();
    let short = u16::try_from(number).ok();
    match (of.name, field.name) {
        (_, "opcode") => short.and_then(Opcode::from_number).map(Opcode::name),
        (name, "status") if name.ends_with("_out") => {
            byte.map(Status::from_number).map(Status::description)
        }
        ("query_hca_cap_in", "op_mod") => {
            CapabilityGroup::parse_query(short?).map(|(g, _)| g.name())
        }
        ("set_hca_cap_in", "op_mod") => {
            CapabilityGroup::from_number(short? >> 1).map(CapabilityGroup::name)
        }
        ("manage_pages_in", "op_mod") => {
            crate::values::ManagePages::from_number(short?).map(crate::values::ManagePages::name)
        }
        ("query_pages_in", "op_mod") => {
            crate::values::QueryPages::from_number(short?).map(crate::values::QueryPages::name)
        }
        ("access_register_in", "op_mod") => crate::values::AccessRegister::from_number(short?)
            .map(crate::values::AccessRegister::name),
        ("access_register_in", "register_id") => {
            RegisterId::from_number(short?).map(RegisterId::name)
        }
        ("teardown_hca_in", "profile") => {
            crate::values::Teardown::from_number(short?).map(crate::values::Teardown::name)
        }
        ("qpc", "state") => QpState::from_number(byte?).map(QpState::name),
        ("qpc", "st") => QpServiceType::from_number(byte?).map(QpServiceType::name),
        ("qpc", "mtu") => Mtu::from_number(byte?).map(Mtu::name),
        ("qpc", "pm_state") => PathMigration::from_number(byte?).map(PathMigration::name),
        ("qpc", "rq_type") => RqType::from_number(byte?).map(RqType::name),
        ("mkc", "access_mode_1_0") => {
            let high = bytes.first().map_or(0, |first| first >> 2 & 7);
            MkeyAccessMode::from_parts(high, byte?).map(MkeyAccessMode::name)
        }
        ("cmd_hca_cap", "port_type") => PortType::from_number(byte?).map(PortType::name),
        ("roce_addr_layout", "roce_version") => {
            RoceVersion::from_number(byte?).map(RoceVersion::name)
        }
        ("roce_addr_layout", "roce_l3_type") => {
            RoceL3Type::from_number(byte?).map(RoceL3Type::name)
        }
        (_, "table_type") => {
            crate::values::FlowTableType::from_number(byte?).map(crate::values::FlowTableType::name)
        }
        ("flow_table_context", "table_miss_action") => {
            crate::values::FlowTableMiss::from_number(byte?).map(crate::values::FlowTableMiss::name)
        }
        ("dest_format_struct", "destination_type") => {
            crate::values::FlowDestination::from_number(byte?)
                .map(crate::values::FlowDestination::name)
        }
        ("flow_context", "action") => flow_action(short?),
        ("sqc" | "rqc", "state") => {
            crate::values::QueueState::from_number(byte?).map(crate::values::QueueState::name)
        }
        ("modify_sq_in", "sq_state") | ("modify_rq_in", "rq_state") => {
            crate::values::QueueState::from_number(byte?).map(crate::values::QueueState::name)
        }
        ("tirc", "disp_type") => {
            crate::values::TirDispatch::from_number(byte?).map(crate::values::TirDispatch::name)
        }
        ("cqc", "st") => {
            crate::values::CqState::from_number(byte?).map(crate::values::CqState::name)
        }
        ("cqc", "status") => {
            crate::values::CqStatus::from_number(byte?).map(crate::values::CqStatus::name)
        }
        ("eqc", "st") => {
            crate::values::EqState::from_number(byte?).map(crate::values::EqState::name)
        }
        _ => None,
    }
}

/// The actions of flow table entries that occur together.
const fn flow_action(bits: u16) -> Option<&'static str> {
    Some(match bits {
        0x1 => "ALLOW",
        0x2 => "DROP",
        0x4 => "FWD_DEST",
        0x8 => "COUNT",
        0x9 => "ALLOW, COUNT",
        0xa => "DROP, COUNT",
        0xc => "FWD_DEST, COUNT",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::command::EmptyOut;
    use crate::qp::{CreateQpIn, Rst2initQpIn};
    use crate::values::CapabilityMode;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn lines(
        opcode: u16,
        direction: Direction,
        bytes: &[u8],
        input: &[u8],
        show: Show,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        message(opcode, direction, bytes, input, show, &mut |item| {
            lines.push(item.to_string())
        });
        lines
    }

    #[test]
    fn fields_meanings_and_unknown_bits() {
        let mut input = Rst2initQpIn::new();
        input.set_qpn(0x42);
        let qpc = input.qpc_mut();
        qpc.set_state(1).set_st(0).set_pm_state(3).set_pd(7);
        qpc.primary_address_path_mut().set_vhca_port_num(1);
        // Bit 1 of the context's first dword belongs to nothing, nor does the dword at its end.
        input.0[0x18 + 3] |= 2;
        input.0[0x18 + 0xe0] = 0x80;
        let expected = [
            "opcode = 0x502 (RST2INIT_QP)",
            "qpn = 0x42",
            "qpc:",
            "  state = 0x1 (INIT)",
            "  pm_state = 0x3 (MIGRATED)",
            "  pd = 0x7",
            "  primary_address_path:",
            "    vhca_port_num = 0x1",
            "  reserved: unknown bits set at 0x018: 0x00000002",
            "  reserved: unknown bits set at 0x0f8: 0x80000000",
        ];
        assert_eq!(
            lines(0x502, Direction::Input, &input.0, &input.0, Show::NonZero),
            expected
        );
    }

    #[test]
    fn status_in_words() {
        let mut output = EmptyOut::ZERO;
        output.set_status(0x08).set_syndrome(0xdead_beef);
        let expected = [
            "status = 0x8 (a limit would be exceeded)",
            "syndrome = 0xdeadbeef",
        ];
        assert_eq!(
            lines(0x501, Direction::Output, &output.0, &[], Show::NonZero),
            expected
        );
    }

    /// Firmware answers so, too, when there are no more objects of a kind; "no such object" alone misled.
    #[test]
    fn a_bad_resource_may_be_one_too_many() {
        let mut output = EmptyOut::ZERO;
        output.set_status(0x05);
        assert_eq!(
            lines(0x500, Direction::Output, &output.0, &[], Show::NonZero)[0],
            "status = 0x5 (no such object, or no more of them to be had)"
        );
    }

    /// The dwords between a QP's context and `wq_umem_valid`, as Linux 6.12 has them.
    #[test]
    fn the_umem_of_a_qp_is_not_unknown_bits() {
        let mut input = CreateQpIn::new();
        input.0[0x08] = 0x80;
        input.0[0x100..0x108].copy_from_slice(&0x1234_5678_9abc_d000_u64.to_be_bytes());
        input.0[0x108..0x10c].copy_from_slice(&7u32.to_be_bytes());
        input.0[0x10c] = 0x80;
        let expected = [
            "opcode = 0x500 (CREATE_QP)",
            "qpc_ext = 0x1",
            "wq_umem_offset = 0x123456789abcd000",
            "wq_umem_id = 0x7",
            "wq_umem_valid = 0x1",
        ];
        assert_eq!(
            lines(0x500, Direction::Input, &input.0, &input.0, Show::NonZero),
            expected
        );
    }

    #[test]
    fn unknown_opcodes_are_raw() {
        let mut bytes = [0u8; 0x30];
        bytes[0..2].copy_from_slice(&[0x0a, 0xfc]);
        bytes[7] = 1;
        bytes[0x25] = 0x77;
        let expected = [
            "opcode = 0xafc",
            "op_mod = 0x1",
            "data at 0x020 = 00000000 00770000 00000000 00000000",
        ];
        assert_eq!(
            lines(0xafc, Direction::Input, &bytes, &bytes, Show::NonZero),
            expected
        );
    }

    #[test]
    fn capability_groups_and_page_lists() {
        let mut input = [0u8; 16];
        input[0] = 0x01;
        input[7] = CapabilityGroup::Roce.query(CapabilityMode::Current) as u8;
        let mut output = std::vec![0u8; 0x1010];
        output[0x10 + 0x13] = 5;
        output[0x10 + 0x200] = 9;
        let expected = [
            "status = 0x0 (done)",
            "syndrome = 0x0",
            "roce_cap:",
            "  roce_version = 0x5",
            "data at 0x210 = 09000000 00000000 00000000 00000000",
        ];
        assert_eq!(
            lines(0x100, Direction::Output, &output, &input, Show::NonZero),
            expected
        );

        let mut give = std::vec![0u8; 0x20];
        give[..8].copy_from_slice(&[0x01, 0x08, 0, 0, 0, 0, 0, 1]);
        give[0xf] = 2;
        give[0x16] = 0x10;
        give[0x1e] = 0x20;
        let expected = [
            "opcode = 0x108 (MANAGE_PAGES)",
            "op_mod = 0x1 (GIVE)",
            "input_num_entries = 0x2",
            "pas[0] = 0x1000",
            "pas[1] = 0x2000",
        ];
        assert_eq!(
            lines(0x108, Direction::Input, &give, &give, Show::NonZero),
            expected
        );
    }

    #[test]
    fn truncated_messages_say_so() {
        let input = CreateQpIn::new();
        let found = lines(
            0x500,
            Direction::Input,
            &input.0[..0x20],
            &input.0,
            Show::NonZero,
        );
        assert_eq!(found.last().unwrap(), "create_qp_in: only 32 of 272 bytes");
    }

    #[test]
    fn coverage_of_a_dword() {
        let qpc = crate::qp::Qpc::default();
        let of = <crate::qp::Qpc as crate::layout::Layout>::DESCRIPTOR;
        assert_eq!(qpc.0.len(), of.size);
        assert_eq!(covered(of, 0), 0xffff_3bfc);
        assert_eq!(covered(of, 0xa0 * 8), u32::MAX);
    }

    /// Nothing that the wire or a log can hold may panic.
    #[test]
    fn any_bytes_decode() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..4000 {
            let len = (random() % 0x240) as usize;
            let bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            let opcode = match round % 2 {
                0 => Opcode::ALL[random() as usize % Opcode::ALL.len()].number(),
                _ => random() as u16,
            };
            for direction in [Direction::Input, Direction::Output] {
                for show in [Show::NonZero, Show::All] {
                    let mut length = 0;
                    message(
                        opcode,
                        direction,
                        &bytes,
                        &bytes[..len.min(20)],
                        show,
                        &mut |item| {
                            length += item.to_string().len();
                        },
                    );
                    assert!(
                        length > 0 || bytes.is_empty(),
                        "opcode {opcode:#x}, {len} bytes"
                    );
                }
            }
        }
    }
}
