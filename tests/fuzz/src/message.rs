//! Messages that are nearly right.

use bareverbs_cm::mad::*;

use crate::input::Input;

/// The service that is listened to: TCP port 7174, of rping.
pub const SERVICE: u64 = 0x0106_1c06;

fn gid(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

/// A MAD of any kind to one of our connections, or to none, with some bytes changed.
///
/// # Panics
/// If the codec refuses what is right.
pub fn any(input: &mut Input<'_>, ours: u32) -> [u8; MAD_LEN] {
    let kind = input.byte();
    let theirs = u32::from(input.byte() % 8);
    let detail = input.byte();
    let (local_comm_id, remote_comm_id) = (theirs, ours);
    let message = match kind % 12 {
        0 => Message::Req(Req {
            local_comm_id,
            service_id: SERVICE,
            local_ca_guid: 0x5054_00ff_fe00_0002,
            local_qpn: 0x11 + u32::from(detail % 4),
            responder_resources: 1,
            initiator_depth: 1,
            remote_cm_response_timeout: 20,
            local_cm_response_timeout: 20,
            retry_count: 7,
            pkey: 0xffff,
            path_mtu: 3,
            rnr_retry_count: 7,
            max_cm_retries: 15,
            primary_local_lid: 0xffff,
            primary_remote_lid: 0xffff,
            primary_local_gid: gid(2),
            primary_remote_gid: gid(1),
            primary_hop_limit: 64,
            primary_ack_timeout: 19,
            // The RDMA CM's header: IPv4, from port 47534, 10.0.0.2 to 10.0.0.1.
            private_data: &[
                0, 0x40, 0xb9, 0xae, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2, 0, 0, 0, 0,
                0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1,
            ],
            ..Req::ZERO
        }),
        1 => Message::Rep(Rep {
            local_comm_id,
            remote_comm_id,
            local_qpn: 0x11 + u32::from(detail % 4),
            local_ca_guid: 0x5054_00ff_fe00_0002,
            responder_resources: 1,
            initiator_depth: 1,
            ..Rep::ZERO
        }),
        2 => Message::Rtu(Rtu {
            local_comm_id,
            remote_comm_id,
            ..Rtu::ZERO
        }),
        3 => Message::Mra(Mra {
            local_comm_id,
            remote_comm_id,
            message: detail % 4,
            service_timeout: detail >> 3,
            ..Mra::ZERO
        }),
        4 => Message::Rej(Rej {
            local_comm_id,
            remote_comm_id,
            message: detail >> 6,
            reason: u16::from(detail % 64),
            info_len: 8,
            ..Rej::ZERO
        }),
        5 => Message::Dreq(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: 0x11,
            ..Dreq::ZERO
        }),
        6 => Message::Drep(Drep {
            local_comm_id,
            remote_comm_id,
            ..Drep::ZERO
        }),
        7 => Message::SidrReq(SidrReq {
            request_id: theirs,
            service_id: SERVICE,
            pkey: 0xffff,
            ..SidrReq::ZERO
        }),
        8 => Message::SidrRep(SidrRep {
            request_id: ours,
            status: detail % 8,
            info_len: detail,
            ..SidrRep::ZERO
        }),
        9 => Message::Lap(Lap {
            local_comm_id,
            remote_comm_id,
            remote_qpn: 0x11,
            alternate_local_lid: u16::from(detail),
            ..Lap::ZERO
        }),
        10 => Message::Apr(Apr {
            local_comm_id,
            remote_comm_id,
            status: detail % 8,
            ..Apr::ZERO
        }),
        _ => {
            let get = Header {
                method: 1,
                ..Header::send(Attribute::ClassPortInfo, 3)
            };
            let mut mad = [0; MAD_LEN];
            get.emit(&mut mad);
            return damaged(input, mad);
        }
    };
    let header = Header::send(message.attribute(), u64::from(detail) << 32);
    let mut mad = [0; MAD_LEN];
    message.emit(&header, &mut mad).expect("a good message");
    damaged(input, mad)
}

fn damaged(input: &mut Input<'_>, mut mad: [u8; MAD_LEN]) -> [u8; MAD_LEN] {
    for _ in 0..input.byte() % 8 {
        let at = usize::from(input.byte());
        mad[at] = input.byte();
    }
    mad
}
