//! Asks the firmware for capabilities, contexts, registers and the module's memory. No question changes anything on the card.

use std::fmt::Write;

use bareverbs::verbs::firmware_cmds::caps::{HcaCap2, QueryHcaCapIn};
use bareverbs::verbs::firmware_cmds::command::Command;
use bareverbs::verbs::firmware_cmds::hca::{QueryIssiIn, QueryVuidIn, QueryVuidOut};
use bareverbs::verbs::firmware_cmds::init_segment::{FW_REV, HEALTH, HEALTH_COUNTER, VANISHED};
use bareverbs::verbs::firmware_cmds::mkey::QuerySpecialContextsIn;
use bareverbs::verbs::firmware_cmds::register::AccessRegisterIn;
use bareverbs::verbs::firmware_cmds::values::{
    AccessRegister, CAPABILITY_GROUP_SIZE, CapabilityGroup, CapabilityMode, RegisterId,
};
use bareverbs::verbs::firmware_cmds::vport::{
    QueryHcaVportContextIn, QueryNicVportContextIn, QueryVportCounterIn, QueryVportStateIn,
};
use bareverbs::verbs::{
    CommandError, CommandFailure, Device, HealthBuffer, LinkLayer, ModuleAddress, ModuleKind,
    Platform, RegisterError, TailIn, read_health,
};
use zerocopy::IntoBytes;

use bareverbs_examples::Result;

use super::super::settings;
use super::collection::Collection;

/// Rows of a dump, from this byte offset on.
fn rows(text: &mut String, mut offset: usize, bytes: &[u8]) {
    for row in bytes.chunks(16) {
        let _ = write!(text, "{offset:03x}:");
        for dword in row.chunks(4) {
            text.push(' ');
            for byte in dword {
                // Writing to a String does not fail.
                let _ = write!(text, "{byte:02x}");
            }
        }
        text.push('\n');
        offset += row.len();
    }
}

/// A dump with its title.
pub(crate) fn dump(title: &str, bytes: &[u8]) -> String {
    let mut text = format!("## {title}\n");
    rows(&mut text, 0, bytes);
    text
}

/// Makes a comment of a refusal by the firmware; any other error ends the part.
fn refused(title: &str, error: CommandError) -> std::result::Result<String, CommandError> {
    match error.failure {
        CommandFailure::Status { .. } | CommandFailure::Delivery(_) => {
            Ok(format!("# {title}: refused: {error}\n"))
        }
        _ => Err(error),
    }
}

/// The parts of the init segment whose reading has no side effect: up to the end of the health buffer, the timeouts, the
/// health counter. (The free running counter and clocks say nothing; CLR_INTX is written only.)
const INIT_SEGMENT: [(usize, usize); 3] = [
    (FW_REV, HEALTH + HealthBuffer::SIZE),
    (0xff0, 0x1000),
    (HEALTH_COUNTER, HEALTH_COUNTER + 4),
];

fn registers<P: Platform>(platform: &P, from: usize, to: usize) -> Vec<u8> {
    let dwords = (from..to).step_by(4);
    dwords
        .flat_map(|at| platform.read_be32(at).to_be_bytes())
        .collect()
}

/// The registers at the start of the BAR.
pub(crate) fn init_segment<P: Platform>(platform: &P, collection: &Collection) -> Result<()> {
    let mut text = "## init segment\n".to_owned();
    for (from, to) in INIT_SEGMENT {
        rows(&mut text, from, &registers(platform, from, to));
    }
    collection.append("init-segment.txt", &text);
    match platform.read_be32(FW_REV) {
        VANISHED => Err("the registers read all ones: the function has left the bus".into()),
        _ => Ok(()),
    }
}

/// Reads all of the health buffer. `when` names the place in the report.
pub(crate) fn health<P: Platform>(platform: &P, when: &str, collection: &Collection) -> Result<()> {
    let buffer = read_health(platform);
    let mut text = dump(&format!("health buffer, {when}"), &buffer.0);
    for (at, variable) in buffer.assert_var().chunks(4).enumerate() {
        let hex: String = variable.iter().map(|byte| format!("{byte:02x}")).collect();
        let _ = writeln!(text, "# assert_var[{at}] 0x{hex}");
    }
    for (name, value) in [
        ("assert_exit_ptr", buffer.assert_existptr()),
        ("assert_callra", buffer.assert_callra()),
        ("time", buffer.time()),
        ("fw_ver", buffer.fw_version()),
        ("hw_id", buffer.hw_id()),
        ("rfr", buffer.rfr().into()),
        ("crr", buffer.crr().into()),
        ("valid", buffer.valid().into()),
        ("severity", buffer.severity().into()),
        ("irisc_index", buffer.irisc_index().into()),
        ("synd", buffer.synd().into()),
        ("ext_synd", buffer.ext_synd().into()),
    ] {
        let _ = writeln!(text, "# {name} {value:#x}");
    }
    let _ = writeln!(text, "# in words: {buffer}");
    collection.append("health.txt", &text);
    match buffer.is_gone() {
        true => Err("the registers read all ones: the function has left the bus".into()),
        false => Ok(()),
    }
}

/// Types of capabilities that are asked for.
const CAPABILITY_TYPES: u16 = 0x40;

/// Asks for every group of capabilities, those of unknown types as well.
pub(crate) fn capabilities<P: Platform>(
    device: &Device<'_, P>,
    collection: &Collection,
) -> Result<()> {
    for number in 0..CAPABILITY_TYPES {
        let name = CapabilityGroup::from_number(number);
        let name = name.map_or("unknown".into(), |group| group.name().to_lowercase());
        for (current, mode) in [(1, "current"), (0, "maximum")] {
            let title = format!("QUERY_HCA_CAP {name} (capability type {number}), {mode}");
            let mut query = QueryHcaCapIn::new();
            query.set_op_mod(number << 1 | current);
            let mut image = vec![0; CAPABILITY_GROUP_SIZE];
            let text = match device.execute_with(&query, TailIn::None, &mut image) {
                Ok(_) => dump(&title, &image),
                Err(error) => refused(&title, error)?,
            };
            collection.append("capabilities.txt", &text);
        }
    }
    Ok(())
}

/// Asks a command, and dumps the whole answer.
fn ask<P: Platform, C: Command>(
    device: &Device<'_, P>,
    title: &str,
    command: &C,
    tail: usize,
) -> std::result::Result<String, CommandError> {
    let mut rest = vec![0; tail];
    match device.execute_with(command, TailIn::None, &mut rest) {
        Ok(answer) => Ok(dump(title, &[answer.as_bytes(), &rest].concat())),
        Err(error) => refused(title, error),
    }
}

/// Asks for the function's universal identifier, where the card offers it (`cmd_hca_cap_2.query_vuid`).
fn vuid<P: Platform>(device: &Device<'_, P>) -> std::result::Result<Option<String>, CommandError> {
    let general = device.capabilities().hca;
    if !general.hca_cap_2() {
        return Ok(None);
    }
    let mut query = QueryHcaCapIn::new();
    query.set_op_mod(CapabilityGroup::General2.query(CapabilityMode::Current));
    let mut image = HcaCap2::ZERO;
    match device.execute_with(&query, TailIn::None, &mut image.0) {
        Ok(_) if image.query_vuid() => {
            let mut query = QueryVuidIn::new();
            query.set_vhca_id(general.vhca_id());
            ask(device, "QUERY_VUID", &query, QueryVuidOut::ENTRY).map(Some)
        }
        Ok(_) => Ok(None),
        Err(error) => refused("QUERY_HCA_CAP general_2", error).map(Some),
    }
}

/// Asks for the special contexts, the interface's version, the function's universal identifier, and the board.
pub(crate) fn contexts<P: Platform>(device: &Device<'_, P>, collection: &Collection) -> Result<()> {
    let issi = ask(device, "QUERY_ISSI", &QueryIssiIn::new(), 0)?;
    collection.append("contexts.txt", &issi);
    let special = QuerySpecialContextsIn::new();
    let special = ask(device, "QUERY_SPECIAL_CONTEXTS", &special, 0)?;
    collection.append("contexts.txt", &special);
    if let Some(vuid) = vuid(device)? {
        collection.append("contexts.txt", &vuid);
    }
    let board = match device.query_adapter() {
        Ok(adapter) => format!(
            "# board {}, vendor {:#x}\n",
            adapter.board_id().escape_debug(),
            adapter.ieee_vendor_id
        ),
        Err(error) => refused("QUERY_ADAPTER", error)?,
    };
    collection.append("contexts.txt", &board);
    Ok(())
}

/// Asks for the port's contexts, and adds the driver's reading of them.
pub(crate) fn port<P: Platform>(device: &Device<'_, P>, collection: &Collection) -> Result<()> {
    let append = |text: &str| collection.append("port.txt", text);
    let state = QueryVportStateIn::new();
    append(&ask(device, "QUERY_VPORT_STATE", &state, 0)?);
    match device.capabilities().link_layer() {
        LinkLayer::Ethernet => {
            let context = QueryNicVportContextIn::new();
            append(&ask(device, "QUERY_NIC_VPORT_CONTEXT", &context, 0)?);
        }
        LinkLayer::InfiniBand => {
            let mut context = QueryHcaVportContextIn::new();
            context.set_port_num(1);
            append(&ask(device, "QUERY_HCA_VPORT_CONTEXT", &context, 0)?);
            let gid = device.query_infiniband_gid(0)?;
            append(&format!("# GID 0 {gid}\n"));
        }
    }
    append(&ask(
        device,
        "QUERY_VPORT_COUNTER",
        &QueryVportCounterIn::new(),
        0,
    )?);
    let port = device.query_port()?;
    let (state, rate, link) = (port.state, port.rate_mbps, device.query_link()?);
    let (active, max) = (port.active_mtu.bytes(), port.max_mtu.bytes());
    append(&format!(
        "# state: {state:?}, {rate} Mb/s, path MTU {active} of {max}\n# link: {link}\n"
    ));
    Ok(())
}

/// A register to be read: its name and number, the bytes that it has, and those to be set in the query.
struct Asked {
    name: &'static str,
    id: u16,
    len: usize,
    set: Vec<(usize, u8)>,
}

/// The place of the port's number in its registers, and the number.
const LOCAL_PORT: (usize, u8) = (1, 1);

fn asked_registers() -> Vec<Asked> {
    let port = |id: RegisterId, len| (id.name(), id.number(), len, vec![LOCAL_PORT]);
    let plain =
        |id: RegisterId, len, set: &[(usize, u8)]| (id.name(), id.number(), len, set.to_vec());
    let mut all = vec![
        port(RegisterId::Paos, 0x10),
        port(RegisterId::Pmtu, 0x10),
        port(RegisterId::Pcap, 0x14),
        port(RegisterId::Pmlp, 0x40),
        port(RegisterId::Pvlc, 0x10),
        port(RegisterId::Pfcc, 0x20),
        port(RegisterId::Pplm, 0x50),
        ("PLIB", 0x500a, 0x10, vec![LOCAL_PORT]),
        ("PPTB", 0x500b, 0xc, vec![LOCAL_PORT]),
        ("PBMC", 0x500c, 0x6c, vec![LOCAL_PORT]),
        plain(RegisterId::Pcam, 0x50, &[]),
        plain(RegisterId::Mcam, 0x48, &[]),
        plain(RegisterId::Mcam, 0x48, &[(3, 1)]),
        plain(RegisterId::Mcam, 0x48, &[(3, 2)]),
        plain(RegisterId::Qcam, 0x48, &[]),
        plain(RegisterId::HostEndianness, 0x10, &[]),
        plain(RegisterId::Mtcap, 0x10, &[]),
        plain(RegisterId::Mfrl, 0x8, &[]),
        plain(RegisterId::Dtor, 0x40, &[]),
        ("MPEIN", 0x9050, 0x30, vec![]),
        ("MRTC", 0x902d, 0x10, vec![]),
        plain(RegisterId::Qpts, 0x8, &[LOCAL_PORT]),
        plain(RegisterId::Qpdpm, 0x84, &[LOCAL_PORT]),
        plain(RegisterId::Qetcr, 0x50, &[LOCAL_PORT]),
        plain(RegisterId::Mtmp, 0x20, &[]),
    ];
    // PTYS for each kind of port.
    for proto in [1, 4] {
        all.push(plain(RegisterId::Ptys, 0x40, &[LOCAL_PORT, (3, proto)]));
    }
    // PDDR has the port's activity, and the reason if there is no link.
    for page in [0, 1] {
        all.push(("PDDR", 0x5031, 0x100, vec![LOCAL_PORT, (7, page)]));
    }
    for group in [0x00, 0x01, 0x02, 0x05, 0x12, 0x13, 0x16, 0x20] {
        all.push(plain(RegisterId::Ppcnt, 0x100, &[LOCAL_PORT, (3, group)]));
    }
    for priority in 0..8 {
        let set = [LOCAL_PORT, (3, 0x10), (7, priority)];
        all.push(plain(RegisterId::Ppcnt, 0x100, &set));
        all.push(plain(RegisterId::Qtct, 0x8, &[LOCAL_PORT, (3, priority)]));
    }
    all.push(plain(RegisterId::Mpcnt, 0x100, &[]));
    let all = all.into_iter();
    all.map(|(name, id, len, set)| Asked { name, id, len, set })
        .collect()
}

/// Reads registers. The firmware refuses those that this function does not have.
pub(crate) fn access_registers<P: Platform>(
    device: &Device<'_, P>,
    collection: &Collection,
) -> Result<()> {
    for Asked { name, id, len, set } in asked_registers() {
        let mut title = format!("{name} (register {id:#x})");
        let mut register = vec![0; len];
        for (at, value) in set {
            register[at] = value;
            let _ = write!(title, ", byte {at:#x} = {value:#x}");
        }
        let mut read = AccessRegisterIn::new();
        read.set_op_mod(AccessRegister::Read.number())
            .set_register_id(id);
        let mut answer = vec![0; len];
        let text = match device.execute_with(&read, TailIn::Bytes(&register), &mut answer) {
            Ok(_) => dump(&title, &answer),
            Err(error) => refused(&title, error)?,
        };
        collection.append("registers.txt", &text);
    }
    Ok(())
}

/// Bytes of a module's memory that are read at once: where serial numbers lie, none crosses two of these.
const MODULE_STEP: usize = 32;

/// Reads the pages of the module's or cable's memory that describe it.
pub(crate) fn module<P: Platform>(
    device: &Device<'_, P>,
    collection: &Collection,
    identify: impl Fn(&[u8]),
) -> Result<()> {
    let read = |address, title: &str| -> std::result::Result<[u8; 256], RegisterError> {
        let mut page = [0; 256];
        for (at, part) in page.chunks_mut(MODULE_STEP).enumerate() {
            device.read_module(address, 0, (MODULE_STEP * at) as u8, part)?;
        }
        collection.append("module.txt", &dump(title, &page));
        Ok(page)
    };
    let page = read(ModuleAddress::Low, "module memory, address 0x50, page 0")?;
    let module = device.query_module()?;
    identify(module.serial.bytes());
    let text = format!(
        "# {}: {} {} {}\n",
        module.kind, module.vendor, module.part, module.serial
    );
    collection.append("module.txt", &text);
    // Bit 6 says that the module measures.
    if module.kind == ModuleKind::Sfp && page[92] & 0x40 != 0 {
        read(ModuleAddress::High, "module memory, address 0x51, page 0")?;
    }
    Ok(())
}

/// Measurements of the sensors.
pub(crate) fn temperature<P: Platform>(
    device: &Device<'_, P>,
    collection: &Collection,
) -> Result<()> {
    for it in settings::temperatures(device)? {
        let (name, now, highest) = (it.name, it.now, it.highest);
        let text = format!(
            "sensor {} {name}: {now} C, highest {highest}, warning from {}\n",
            it.sensor, it.threshold
        );
        collection.append("temperature.txt", &text);
    }
    Ok(())
}
