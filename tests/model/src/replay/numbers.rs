//! Translates the numbers of objects in commands from the recording's to the model's.

use bareverbs_firmware_cmds::layout::{self, Descriptor, Kind};
use std::collections::HashMap;

/// The number space of an object: kinds of objects with the same value share their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Numbered {
    Uar,
    Pd,
    TransportDomain,
    Xrcd,
    Eq,
    Cq,
    Mkey,
    Qp,
    Srq,
    Tis,
    Tir,
    Rqt,
    Sq,
    Rq,
    QCounter,
    FlowTable,
    FlowGroup,
    FlowCounter,
    Umem,
    ModifyHeader,
}

/// The kind of object whose number a field with this name is.
fn numbered(field: &str) -> Option<Numbered> {
    Some(match field {
        "uar" | "uar_page" => Numbered::Uar,
        "pd" => Numbered::Pd,
        "transport_domain" => Numbered::TransportDomain,
        "xrcd" => Numbered::Xrcd,
        "eq_number" | "c_eqn_or_apu_element" => Numbered::Eq,
        "cqn" | "cqn_snd" | "cqn_rcv" | "cq_number" => Numbered::Cq,
        "mkey_index" => Numbered::Mkey,
        "qpn" | "input_qpn" | "remote_qpn" | "underlay_qpn" | "dctn" => Numbered::Qp,
        "srqn" | "xrc_srqn" | "srqn_xrqn" | "srqn_rmpn_xrqn" | "rmpn" => Numbered::Srq,
        "tisn" | "tis_num_0" => Numbered::Tis,
        "tirn" => Numbered::Tir,
        "rqtn" => Numbered::Rqt,
        "sqn" => Numbered::Sq,
        "rqn" | "inline_rqn" => Numbered::Rq,
        "counter_set_id" => Numbered::QCounter,
        "table_id" => Numbered::FlowTable,
        "group_id" => Numbered::FlowGroup,
        "flow_counter_id" => Numbered::FlowCounter,
        "umem_id" | "wq_umem_id" | "dbr_umem_id" | "cq_umem_id" | "mkey_umem_id" => Numbered::Umem,
        "modify_header_id" => Numbered::ModifyHeader,
        _ => return None,
    })
}

/// Returns true if a field is a number that the card or the driver chose, an address, or a counter: these differ from one run to
/// the next.
pub(super) fn is_arbitrary(field: &str) -> bool {
    numbered(field).is_some()
        || field == "pas"
        || ["addr", "mac", "guid", "gid", "counter", "lkey", "mkey"]
            .iter()
            .any(|part| field.contains(part))
}

/// The model's number for each of the recording's.
#[derive(Debug, Default)]
pub(super) struct Numbers(HashMap<(Numbered, u64), u64>);

impl Numbers {
    /// Learns the number of an object from the two answers to the command that made it.
    pub(super) fn learn(&mut self, of: &Descriptor, recorded: &[u8], own: &[u8]) {
        each(of, 0, &mut |name, offset, width| {
            if let Some(kind) = numbered(name)
                && let (Some(theirs), Some(ours)) =
                    (get(recorded, offset, width), get(own, offset, width))
            {
                self.0.insert((kind, theirs), ours);
            }
        });
    }

    /// Puts the model's numbers into a command.
    pub(super) fn translate(&self, of: &Descriptor, input: &mut [u8]) {
        each(of, 0, &mut |name, offset, width| {
            if let Some(kind) = numbered(name)
                && let Some(theirs) = get(input, offset, width)
                && let Some(&ours) = self.0.get(&(kind, theirs))
                && (width >= 64 || ours >> width == 0)
            {
                layout::set(input, offset, width, ours);
            }
        });
    }
}

/// Every field that is a number, with its offset and width in bits; `base` is where the structure begins.
fn each(of: &Descriptor, base: u32, visit: &mut dyn FnMut(&str, u32, u32)) {
    for field in of.fields {
        match field.kind {
            Kind::Bits => visit(field.name, base + field.offset, field.width),
            Kind::Struct(inner) => each(inner, base + field.offset, visit),
            Kind::Bytes | Kind::Tail => {}
        }
    }
}

/// Reads a field, if the bytes reach so far.
fn get(bytes: &[u8], offset: u32, width: u32) -> Option<u64> {
    let end = (offset + width).div_ceil(32) as usize * 4;
    (end <= bytes.len()).then(|| layout::get(bytes, offset, width))
}
