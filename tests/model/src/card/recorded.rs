//! Writes the text of a card's profile from what was recorded of the card.

use super::report::{Dump, Report};
use super::{Card, Source};
use crate::config::{Config, FunctionKind};
use bareverbs_firmware_cmds::eq::CreateEqOut;
use bareverbs_firmware_cmds::hca::{QueryAdapterOut, QueryIssiOut};
use bareverbs_firmware_cmds::layout::{self, Descriptor, Kind};
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::pages::QueryPagesOut;
use bareverbs_firmware_cmds::registry;
use bareverbs_firmware_cmds::uar::AllocUarOut;
use bareverbs_firmware_cmds::values::{CapabilityGroup, CapabilityMode, QueryPages};
use bareverbs_firmware_cmds::vport::QueryNicVportContextOut;
use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The sections of capabilities, in the order of a profile.
const SECTIONS: &[(&str, CapabilityGroup, CapabilityMode)] = &[
    ("general", CapabilityGroup::General, CapabilityMode::Current),
    ("general max", CapabilityGroup::General, CapabilityMode::Max),
    (
        "general 2",
        CapabilityGroup::General2,
        CapabilityMode::Current,
    ),
    ("roce", CapabilityGroup::Roce, CapabilityMode::Current),
    ("roce max", CapabilityGroup::Roce, CapabilityMode::Max),
    ("atomic", CapabilityGroup::Atomic, CapabilityMode::Current),
    (
        "ethernet",
        CapabilityGroup::EthernetOffloads,
        CapabilityMode::Current,
    ),
    ("flow", CapabilityGroup::FlowTable, CapabilityMode::Current),
    (
        "device memory",
        CapabilityGroup::DeviceMemory,
        CapabilityMode::Current,
    ),
];

/// The text of a profile.
pub(super) fn profile(report: &Report, base: Card) -> String {
    let mut text = Text(String::new());
    let name = one_line(report.name());
    text.line(format_args!(
        "# Made from {name}. How to read this file: card/mod.rs of connectx-model.\n#"
    ));
    text.line(format_args!(
        "# What the card has and the model does not do is withheld: in a section without \"modelled\" from every driver.\n"
    ));
    text.line(format_args!("source report = recorded: {name}"));
    text.line(format_args!(
        "source base = assumed: the report does not have it; as the built-in card {base}"
    ));
    text.line(format_args!(
        "source withheld = withheld: the card has it, and the model does not\n"
    ));
    function(report, base.config(), &mut text);
    let mut unjudged = Vec::new();
    for &(section, group, mode) in SECTIONS {
        capabilities(
            report,
            base,
            (section, group, mode),
            &mut text,
            &mut unjudged,
        );
    }
    modelled(base, &mut text);
    remarks(report, &unjudged, &mut text);
    text.0
}

struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn value(&mut self, name: &str, value: impl Display, source: &str) {
        self.line(format_args!("{name} = {value} ({source})"));
    }
}

fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

/// A command's answer, if it was recorded whole.
fn answer<T: FromBytes + KnownLayout + Immutable>(
    report: &Report,
    opcode: Opcode,
    op_mod: Option<u16>,
) -> Option<&T> {
    let bytes = report.recording().answer(opcode, op_mod, size_of::<T>())?;
    T::ref_from_prefix(bytes).ok().map(|(answer, _)| answer)
}

/// Writes the section `[function]`.
fn function(report: &Report, base: &Config, text: &mut Text) {
    text.line("[function]");
    let device = report.device_id();
    let (kind, source) = match device {
        Some(id) if id == base.device_id => (base.function, "report"),
        Some(id) if id == base.virtual_device_id => (FunctionKind::Virtual, "report"),
        _ => (base.function, "base"),
    };
    let kind = match kind {
        FunctionKind::Physical => "physical",
        FunctionKind::Virtual => "virtual",
    };
    text.value("kind", kind, source);
    let mut number = |name: &str, recorded: Option<u64>, base: u64, hex: bool| {
        let (value, source) = recorded.map_or((base, "base"), |value| (value, "report"));
        match hex {
            true => text.value(name, format_args!("{value:#x}"), source),
            false => text.value(name, value, source),
        }
    };
    let pages = |stage: QueryPages| {
        answer(report, Opcode::QueryPages, Some(stage.number()))
            .map(|answer: &QueryPagesOut| u64::from(answer.num_pages()))
    };
    let queue = report.register(0x14).unwrap_or_default();
    // Until the card has started, the register shows nothing.
    let queue = (queue & 0xf >= 6).then_some(u64::from(queue));
    let issi = answer(report, Opcode::QueryIssi, None)
        .map(|answer: &QueryIssiOut| answer.supported_issi_dw0().into());
    let uar =
        answer(report, Opcode::AllocUar, None).map(|answer: &AllocUarOut| answer.uar().into());
    let eqn = answer(report, Opcode::CreateEq, None)
        .map(|answer: &CreateEqOut| answer.eq_number().into());
    let inline = answer(report, Opcode::QueryNicVportContext, Some(0)).map(
        |answer: &QueryNicVportContextOut| answer.nic_vport_context().min_wqe_inline_mode().into(),
    );
    number(
        "device_id",
        device.map(u64::from),
        base.device_id.into(),
        true,
    );
    number(
        "virtual_device_id",
        None,
        base.virtual_device_id.into(),
        true,
    );
    number(
        "embedded_cpu",
        report.embedded_cpu().map(u64::from),
        base.embedded_cpu.into(),
        false,
    );
    let vsc = base.vendor_specific_capability.into();
    number("vendor_specific_capability", None, vsc, false);
    number("supported_issi", issi, base.supported_issi.into(), true);
    number(
        "log_cmdq_size",
        queue.map(|queue| queue >> 4 & 0xf),
        base.log_cmdq_size.into(),
        false,
    );
    number(
        "log_cmdq_stride",
        queue.map(|queue| queue & 0xf),
        base.log_cmdq_stride.into(),
        false,
    );
    number("bar_size", report.number("bar size"), base.bar_size, true);
    number(
        "msix_vectors",
        report.number("msix vectors"),
        base.msix_vectors.into(),
        false,
    );
    number(
        "boot_pages",
        pages(QueryPages::Boot),
        base.boot_pages.into(),
        false,
    );
    number(
        "init_pages",
        pages(QueryPages::Init),
        base.init_pages.into(),
        false,
    );
    number("first_uar", uar, base.first_uar.into(), true);
    number("first_eqn", eqn, base.first_eqn.into(), false);
    number(
        "min_wqe_inline_mode",
        inline,
        base.min_wqe_inline_mode.into(),
        false,
    );
    // The health buffer has the number, if the firmware fills it in.
    let hw_id = report.register(0x234).filter(|&id| id != 0);
    number("hw_id", hw_id.map(u64::from), base.hw_id.into(), true);
    number("pcie_speed", None, base.pcie_speed.into(), false);
    number("pcie_lanes", None, base.pcie_lanes.into(), false);
    let (version, source) = match report.firmware() {
        Some(version) => (version, "report"),
        None => (base.firmware, "base"),
    };
    let (major, minor, sub) = version;
    text.value("firmware", format_args!("{major}.{minor}.{sub}"), source);
    let recorded = answer(report, Opcode::QueryAdapter, None)
        .map(|answer: &QueryAdapterOut| answer.query_adapter_struct().vsd_contd_psid());
    let board = |bytes: &[u8]| {
        let name = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let graphic = !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
        graphic.then(|| String::from_utf8_lossy(name).into_owned())
    };
    if let Some(name) = recorded.and_then(|bytes| board(bytes)) {
        text.value("board_id", name, "report");
    } else if let Some(name) = board(&base.board_id) {
        text.value("board_id", name, "base");
    }
}

/// Writes the section of a group. Fields that the card has, that the base does not have, and that no built-in card withholds go to
/// `unjudged`.
fn capabilities(
    report: &Report,
    base: Card,
    (section, group, mode): (&str, CapabilityGroup, CapabilityMode),
    text: &mut Text,
    unjudged: &mut Vec<String>,
) {
    let assumed = image(base.config(), section);
    let mut known = report.group(group, mode);
    known.retain(|&at, _| at + 4 <= assumed.len());
    let Some(of) = registry::capability(group) else {
        return;
    };
    text.line(format_args!("\n[{section}]"));
    let current = section.strip_suffix(" max").unwrap_or(section);
    let now = report.group(group, CapabilityMode::Current);
    if known.is_empty() && current != section && !now.is_empty() {
        text.line("# The report has the current values only, which can be raised where they can be in the base.");
        return raised(of, image(base.config(), current), assumed, &now, text);
    }
    if known.is_empty() {
        text.line("hex (base)");
        let (dwords, _) = assumed.as_chunks::<4>();
        rows(
            &(0..).step_by(4).zip(dwords.iter().copied()).collect(),
            text,
        );
        return;
    }
    text.line("hex (report)");
    rows(&known, text);
    let mut whole = vec![0; assumed.len()];
    for (&at, dword) in &known {
        whole[at..at + 4].copy_from_slice(dword);
    }
    let withheld = withheld(current);
    leaves(of, 0, "", &mut |name, field, at| {
        let dwords = at / 32 * 4..(at + field.width).div_ceil(32) * 4;
        let recorded = (dwords.step_by(4)).all(|dword| known.contains_key(&(dword as usize)));
        if matches!(field.kind, Kind::Bytes) {
            let bytes = &assumed[at as usize / 8..][..field.width as usize / 8];
            if !recorded && bytes.iter().any(|&byte| byte != 0) {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                text.value(name, digits, "base");
            }
            return;
        }
        let ours = layout::get(assumed, at, field.width);
        if !recorded {
            if ours != 0 {
                text.value(name, format_args!("{ours:#x}"), "base");
            }
        } else if ours == 0 && layout::get(&whole, at, field.width) != 0 {
            if withheld.contains(name) {
                text.value(name, 0, "withheld");
            } else {
                unjudged.push(format!("{section}.{name}"));
            }
        }
    });
}

/// Writes fields of maxima that are not recorded: those of the base that differ from the base's current values, if the card has
/// the same current values.
fn raised(of: &Descriptor, base: &[u8], base_max: &[u8], now: &Dump, text: &mut Text) {
    let mut known = base.to_vec();
    for (&at, dword) in now {
        if let Some(to) = known.get_mut(at..at + 4) {
            to.copy_from_slice(dword);
        }
    }
    leaves(of, 0, "", &mut |name, field, at| {
        if matches!(field.kind, Kind::Bits) {
            let get = |image| layout::get(image, at, field.width);
            let most = get(base_max);
            if get(&known) == get(base) && most != get(base) {
                text.value(name, format_args!("{most:#x}"), "base");
            }
        }
    });
}

/// Writes the capabilities that the base withholds from drivers that take up every offer.
fn modelled(base: Card, text: &mut Text) {
    let mut section = "";
    for value in base.values() {
        if !value.section.ends_with(" modelled") {
            continue;
        }
        if value.section != section {
            section = &value.section;
            text.line(format_args!("\n[{section}]"));
        }
        text.value(&value.field, &value.value, "withheld");
    }
}

/// Writes comments on those parts of the report that the profile leaves out or cannot judge.
fn remarks(report: &Report, unjudged: &[String], text: &mut Text) {
    let modelled: Vec<u16> = SECTIONS
        .iter()
        .map(|(_, group, _)| group.number())
        .collect();
    let others = report.groups();
    let others: Vec<String> = others
        .iter()
        .filter(|group| !modelled.contains(group))
        .map(u16::to_string)
        .collect();
    if !others.is_empty() {
        text.line(format_args!(
            "\n# Withheld: the groups that the card has and the model does not, capability types {}.",
            others.join(", ")
        ));
    }
    if !unjudged.is_empty() {
        text.line(
            "\n# The card has these and the base does not; whether the model does them has to be looked at:",
        );
        for field in unjudged {
            text.line(format_args!("#   {field}"));
        }
    }
}

/// The image of a section as a card has it.
fn image<'c>(config: &'c Config, section: &str) -> &'c [u8] {
    match section {
        "general" => &config.general.0,
        "general max" => &config.general_max.0,
        "general 2" => &config.general_2.0,
        "roce" => &config.roce.0,
        "roce max" => &config.roce_max.0,
        "atomic" => &config.atomic.0,
        "ethernet" => &config.ethernet.0,
        "flow" => &config.flow_table.0,
        _ => &config.device_memory.0,
    }
}

/// The fields of a group that some built-in card withholds from every driver, by their names.
fn withheld(group: &str) -> BTreeSet<&'static str> {
    let all = Card::ALL.iter().flat_map(|card| card.values());
    all.filter(|value| value.source == Source::Withheld && value.section == group)
        .map(|value| value.field.as_str())
        .collect()
}

/// Writes the rows of a dump, of up to four dwords.
fn rows(known: &Dump, text: &mut Text) {
    let mut row = String::new();
    let mut next = None;
    for (&at, dword) in known {
        if next != Some(at) || at % 16 == 0 {
            if !row.is_empty() {
                text.line(&row);
            }
            row = format!("{at:03x}:");
        }
        let _ = write!(row, " {:08x}", u32::from_be_bytes(*dword));
        next = Some(at + 4);
    }
    if !row.is_empty() {
        text.line(&row);
    }
}

/// The fields of a structure that are no structures, each with its name in a profile and its offset in bits.
fn leaves(
    of: &Descriptor,
    base: u32,
    around: &str,
    visit: &mut dyn FnMut(&str, &layout::Field, u32),
) {
    for field in of.fields {
        let name = format!("{around}{}", field.name);
        let at = base + field.offset;
        match field.kind {
            Kind::Struct(inner) => leaves(inner, at, &format!("{name}."), visit),
            Kind::Tail => {}
            Kind::Bits | Kind::Bytes => visit(&name, field, at),
        }
    }
}
