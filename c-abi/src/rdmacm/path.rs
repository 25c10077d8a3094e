//! Path records in C: packed, as subnet administration has them (`struct ibv_path_record`), and unpacked for programs to read
//! (`struct ibv_sa_path_rec`).

use std::mem::offset_of;

use bareverbs_node::cm::mad::MAD_LEN;
use bareverbs_node::cm::mad::sa::{PathRecord, SA_DATA, SaHeader, SaMethod};

use crate::abi::cma::{ibv_path_data, ibv_path_record, ibv_sa_path_rec};
use crate::abi::numbers::*;
use crate::abi::objects::ibv_gid;
use crate::process::failure::{Errno, Result};

/// "Exactly", in front of MTU, rate and packet lifetime.
const EXACTLY: u8 = 2;
/// A path for the messages of the connection manager and the connection itself, both ways: Linux takes no other one.
const USABLE: u32 = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;

pub(crate) const DATA: usize = size_of::<ibv_path_data>();
const RECORD: usize = size_of::<ibv_path_record>();

/// The most bytes of paths that are looked at.
pub(crate) const MOST_PATHS: usize = 64 * DATA;

/// The first usable path of `struct ibv_path_data[]`.
///
/// # Errors
/// EINVAL if it is not so many whole structures, and if none of them is usable.
pub(crate) fn usable(paths: &[u8]) -> Result<PathRecord> {
    let (paths, rest) = paths.as_chunks::<DATA>();
    if !rest.is_empty() {
        return Err(Errno::EINVAL);
    }
    let is_usable = |path: &&[u8; DATA]| {
        let flags: [u8; 4] = at(*path, offset_of!(ibv_path_data, flags));
        u32::from_ne_bytes(flags) == USABLE
    };
    let path = paths.iter().find(is_usable).ok_or(Errno::EINVAL)?;
    Ok(unpack(&at(path, offset_of!(ibv_path_data, path))))
}

/// Bytes at a place, which the caller knows to be there.
fn at<const N: usize>(bytes: &[u8], place: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&bytes[place..place + N]);
    found
}

/// A packed record, of which every field is in network order.
fn unpack(record: &[u8; RECORD]) -> PathRecord {
    let half = |place| u16::from_be_bytes(at(record, place));
    let label_and_hops =
        u32::from_be_bytes(at(record, offset_of!(ibv_path_record, flowlabel_hoplimit)));
    let reversible_numpath = record[offset_of!(ibv_path_record, reversible_numpath)];
    let qosclass_sl = half(offset_of!(ibv_path_record, qosclass_sl));
    // A selector in the upper two bits.
    let split = |place: usize| (record[place] >> 6, record[place] & 0x3f);
    let (mtu_selector, mtu) = split(offset_of!(ibv_path_record, mtu));
    let (rate_selector, rate) = split(offset_of!(ibv_path_record, rate));
    let (packet_life_time_selector, packet_life_time) =
        split(offset_of!(ibv_path_record, packetlifetime));
    PathRecord {
        service_id: u64::from_be_bytes(at(record, offset_of!(ibv_path_record, service_id))),
        dgid: at(record, offset_of!(ibv_path_record, dgid)),
        sgid: at(record, offset_of!(ibv_path_record, sgid)),
        dlid: half(offset_of!(ibv_path_record, dlid)),
        slid: half(offset_of!(ibv_path_record, slid)),
        raw_traffic: (label_and_hops >> 31) as u8,
        flow_label: label_and_hops >> 8 & 0xf_ffff,
        hop_limit: label_and_hops as u8,
        traffic_class: record[offset_of!(ibv_path_record, tclass)],
        reversible: reversible_numpath >> 7,
        numb_path: reversible_numpath & 0x7f,
        pkey: half(offset_of!(ibv_path_record, pkey)),
        qos_class: qosclass_sl >> 4,
        sl: (qosclass_sl & 0xf) as u8,
        mtu_selector,
        mtu,
        rate_selector,
        rate,
        packet_life_time_selector,
        packet_life_time,
        preference: record[offset_of!(ibv_path_record, preference)],
    }
}

/// The path of an id as `struct ibv_path_data`, without flags, as librdmacm says it (`rs_convert_sa_path` of rsocket.c).
pub(crate) fn packed(path: &PathRecord) -> Result<[u8; DATA]> {
    let path = PathRecord {
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        packet_life_time_selector: EXACTLY,
        preference: 0,
        ..*path
    };
    let mut mad = [0; MAD_LEN];
    path.emit(&SaHeader::request(SaMethod::Get, 0, 0), &mut mad)
        .map_err(|_| Errno::EINVAL)?;
    let mut data = [0; DATA];
    data[offset_of!(ibv_path_data, path)..].copy_from_slice(&mad[SA_DATA..][..RECORD]);
    Ok(data)
}

/// The path of an id for a program to read.
pub(super) fn to_c(path: &PathRecord) -> ibv_sa_path_rec {
    ibv_sa_path_rec {
        dgid: ibv_gid { raw: path.dgid },
        sgid: ibv_gid { raw: path.sgid },
        dlid: path.dlid.to_be(),
        slid: path.slid.to_be(),
        raw_traffic: path.raw_traffic.into(),
        flow_label: path.flow_label.to_be(),
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        reversible: path.reversible.into(),
        numb_path: path.numb_path,
        pkey: path.pkey.to_be(),
        sl: path.sl,
        mtu_selector: EXACTLY,
        mtu: path.mtu,
        rate_selector: EXACTLY,
        rate: path.rate,
        packet_life_time_selector: EXACTLY,
        packet_life_time: path.packet_life_time,
        preference: path.preference,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags, four reserved bytes, and the record as the Rust crate writes it into a MAD.
    fn data(flags: u32, path: &PathRecord) -> Vec<u8> {
        let header = SaHeader::request(SaMethod::Get, 1, 0);
        let mut mad = [0; 256];
        path.emit(&header, &mut mad).unwrap();
        [&flags.to_ne_bytes()[..], &[0; 4], &mad[56..120]].concat()
    }

    fn path() -> PathRecord {
        PathRecord {
            service_id: 0x0106_1c06,
            dgid: [7; 16],
            sgid: [9; 16],
            dlid: 0x1234,
            slid: 0x4321,
            raw_traffic: 1,
            flow_label: 0xabcde,
            hop_limit: 0x55,
            traffic_class: 0x66,
            reversible: 1,
            numb_path: 0x2a,
            pkey: 0x8001,
            qos_class: 0x123,
            sl: 5,
            mtu_selector: 2,
            mtu: 4,
            rate_selector: 1,
            rate: 16,
            packet_life_time_selector: 3,
            packet_life_time: 12,
            preference: 8,
        }
    }

    #[test]
    fn records_are_read_as_subnet_administration_writes_them() {
        assert_eq!(usable(&data(USABLE, &path())), Ok(path()));
    }

    #[test]
    fn paths_are_read_as_they_are_written() {
        let exactly = PathRecord {
            rate_selector: EXACTLY,
            packet_life_time_selector: EXACTLY,
            preference: 0,
            ..path()
        };
        let mut data = packed(&path()).unwrap();
        data[..4].copy_from_slice(&USABLE.to_ne_bytes());
        assert_eq!(usable(&data), Ok(exactly));
    }

    #[test]
    fn the_first_usable_path_is_taken() {
        let other = PathRecord { dlid: 3, ..path() };
        let outbound = 1 << 3;
        let flags = [0, USABLE & !IBV_PATH_FLAG_GMP, USABLE | 1 << 2, outbound];
        let mut all: Vec<u8> = flags
            .iter()
            .flat_map(|&flags| data(flags, &other))
            .collect();
        assert_eq!(usable(&all), Err(Errno::EINVAL));
        all.extend(data(USABLE, &path()));
        all.extend(data(USABLE, &other));
        assert_eq!(usable(&all), Ok(path()));
    }

    #[test]
    fn what_is_not_whole_structures_is_refused() {
        let all = [data(USABLE, &path()), data(USABLE, &path())].concat();
        for length in 0..all.len() {
            let whole = length == DATA;
            assert_eq!(usable(&all[..length]).is_ok(), whole, "{length}");
        }
    }
}
