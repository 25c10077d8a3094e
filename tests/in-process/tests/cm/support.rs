//! Shared parts of these tests: random numbers, a wire whose other end the test is, and a REQ made by hand.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bareverbs_cm::mad::*;
use bareverbs_core::Gid;
use connectx_model::link::Link;

pub(crate) const PORT: u16 = 7174;
pub(crate) const SERVICE: u64 = 0x0106_0000 | PORT as u64;

/// Random numbers of a seed (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// The frames on the wire of one card.
#[derive(Default)]
struct Frames {
    to_card: VecDeque<Vec<u8>>,
    from_card: Vec<Vec<u8>>,
}

/// The wire of one card: the test sends and receives at its other end.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Frames>>);

impl Wire {
    /// Puts a frame on the wire.
    pub(crate) fn put(&self, frame: Vec<u8>) {
        self.0.lock().unwrap().to_card.push_back(frame);
    }

    /// Takes the frames that the card sent since.
    pub(crate) fn take(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.0.lock().unwrap().from_card)
    }
}

impl Link for Wire {
    fn send(&mut self, _: usize, frame: &[u8], _: Duration) {
        self.0.lock().unwrap().from_card.push(frame.to_vec());
    }

    fn receive(&mut self, _: usize, _: Duration, frame: &mut Vec<u8>) -> bool {
        let next = self.0.lock().unwrap().to_card.pop_front();
        next.map(|next| *frame = next).is_some()
    }

    fn next_arrival(&self) -> Option<Duration> {
        let waits = !self.0.lock().unwrap().to_card.is_empty();
        waits.then_some(Duration::ZERO)
    }
}

/// The RDMA CM's header of a request.
pub(crate) fn header(source: IpAddr, destination: IpAddr) -> [u8; CmaHeader::LEN] {
    let mut bytes = [0; CmaHeader::LEN];
    let header = CmaHeader {
        source_port: 4000,
        source,
        destination,
    };
    header.emit(&mut bytes).unwrap();
    bytes
}

/// A REQ for [`SERVICE`], with a header or with what is to be one.
pub(crate) fn req(source: IpAddr, destination: IpAddr, comm_id: u32, header: &[u8]) -> Req<'_> {
    Req {
        local_comm_id: comm_id,
        service_id: SERVICE,
        local_ca_guid: 0x1234_5678_9abc_def0,
        local_qpn: 0x77,
        starting_psn: 0x1234,
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
        primary_local_gid: Gid::from(source).0,
        primary_remote_gid: Gid::from(destination).0,
        primary_hop_limit: 64,
        primary_ack_timeout: 19,
        private_data: header,
        ..Req::ZERO
    }
}
