//! Finds identifiers in recorded commands and their answers.

use bareverbs::verbs::firmware_cmds::dump::Direction;
use bareverbs::verbs::firmware_cmds::hca::QueryVuidOut;
use bareverbs::verbs::firmware_cmds::opcode::Opcode;
use bareverbs::verbs::firmware_cmds::vport::{QueryHcaVportContextOut, QueryNicVportContextOut};
use zerocopy::FromBytes;

use super::dumps;
use super::hide::Identifiers;

/// The letters behind the serial number in a function's universal identifier, as `lspci -vv` of cards shows it (`[VU]`).
const VUID_MAKER: &[u8] = b"MLNX";

/// Adds the identifiers that commands carried, in either direction.
pub(crate) fn find(commands: &str, known: &mut Identifiers) {
    for dump in dumps::read(commands) {
        let message = dump.message();
        match (Opcode::from_number(dump.opcode), dump.direction) {
            (Some(Opcode::QueryNicVportContext), Direction::Output) => {
                let Ok((answer, _)) = QueryNicVportContextOut::read_from_prefix(&message) else {
                    continue;
                };
                let context = answer.nic_vport_context();
                let [_, _, mac @ ..] = context.permanent_address().to_be_bytes();
                known.mac(mac);
                for guid in [
                    context.system_image_guid(),
                    context.port_guid(),
                    context.node_guid(),
                ] {
                    known.guid(guid.to_be_bytes());
                }
            }
            (Some(Opcode::QueryHcaVportContext), Direction::Output) => {
                let Ok((answer, _)) = QueryHcaVportContextOut::read_from_prefix(&message) else {
                    continue;
                };
                let context = answer.hca_vport_context();
                for guid in [
                    context.system_image_guid(),
                    context.port_guid(),
                    context.node_guid(),
                ] {
                    known.guid(guid.to_be_bytes());
                }
            }
            (Some(Opcode::QueryVuid), Direction::Output) => {
                // Behind the fixed part: the serial number, then the maker's letters and the function's place.
                let vuid = message.get(size_of::<QueryVuidOut>()..).unwrap_or_default();
                let maker = vuid
                    .windows(VUID_MAKER.len())
                    .position(|part| part == VUID_MAKER);
                known.serial(&vuid[..maker.unwrap_or(vuid.len())]);
            }
            (Some(Opcode::QueryHcaVportGid), Direction::Output) => {
                // Behind status and syndrome: the subnet's prefix, then the port's GUID.
                if let Some(guid) = message.get(0x18..).and_then(|rest| rest.first_chunk()) {
                    known.guid(*guid);
                }
            }
            _ => {}
        }
    }
}
