//! Counting: what the device did, and the queue counters that drivers query.

use crate::memory::pages::Place;
use crate::roce::env::Counter;
use bareverbs_firmware_cmds::counter::QueryQCounterOut;
use core::ops::{Deref, DerefMut};

/// Where a counter is in the answer of QUERY_Q_COUNTER.
const REQ_RNR_RETRIES_EXCEEDED: usize = 0x70;

/// One number per [`Counter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts([u64; Counter::COUNT]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; Counter::COUNT])
    }
}

impl Deref for Counts {
    type Target = [u64; Counter::COUNT];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Counts {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The counts of the device's work since power-on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commands completed.
    pub commands: u64,
    /// Commands completed with a status other than 0 or a delivery error.
    pub commands_failed: u64,
    /// Doorbells of send queues.
    pub doorbells: u64,
    /// WQEs that were executed as they came through a BlueFlame register.
    pub blue_flame: u64,
    /// WQEs that came through a BlueFlame register, and had to be fetched: not all of them came, or not when it was their
    /// turn.
    pub blue_flame_missed: u64,
    /// Doorbells that named nothing, or came through another queue's UAR, or made no sense.
    pub bad_doorbells: u64,
    /// Completions written.
    pub completions: u64,
    /// Sessions of compressed completions written.
    pub compressed_sessions: u64,
    /// Completions in them.
    pub compressed: u64,
    /// Completions with the message's data in them.
    pub scattered_to_cqe: u64,
    /// Those of them whose data lie in front of the CQE, in an entry of 128 bytes.
    pub scattered_before_cqe: u64,
    /// Event queue entries written.
    pub events: u64,
    /// Interrupts that went to INTx, as MSI-X was off and the command register's interrupt disable bit not set.
    pub intx: u64,
    /// Completion queues that overran.
    pub cq_overruns: u64,
    /// DMA accesses that faulted.
    pub dma_faults: u64,
    /// Frames that came in.
    pub frames_received: u64,
    /// Frames that went out.
    pub frames_sent: u64,
    /// Frames that were for no queue here.
    pub frames_dropped: u64,
    /// Requests that no driver in the field makes, so that what a card answers is not known.
    pub unknown_answers: u64,
    /// BAR accesses of a size or at a place that means nothing.
    pub bad_accesses: u64,
    /// Transport counters of all QPs, by [`Counter`].
    pub transport: Counts,
}

/// A queue counter set.
#[derive(Debug)]
pub(crate) struct CounterSet {
    pub(crate) values: Counts,
    pub(crate) users: u32,
    pub(crate) place: Place,
}

impl CounterSet {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            values: Counts::default(),
            users: 0,
            place,
        }
    }

    /// Fills the answer of QUERY_Q_COUNTER.
    pub(crate) fn show(&self, out: &mut QueryQCounterOut) {
        // The hardware's counters are 32 bits wide and wrap.
        let get = |counter: Counter| self.values[counter as usize] as u32;
        out.set_rx_write_requests(get(Counter::WriteRequests))
            .set_rx_read_requests(get(Counter::ReadRequests))
            .set_rx_atomic_requests(get(Counter::AtomicRequests))
            .set_out_of_buffer(get(Counter::OutOfBuffer))
            .set_out_of_sequence(get(Counter::OutOfSequence))
            .set_duplicate_request(get(Counter::DuplicateRequest))
            .set_rnr_nak_retry_err(get(Counter::RnrNakRetryErr))
            .set_packet_seq_err(get(Counter::PacketSeqErr))
            .set_implied_nak_seq_err(get(Counter::ImpliedNakSeqErr))
            .set_local_ack_timeout_err(get(Counter::LocalAckTimeoutErr))
            .set_resp_local_length_error(get(Counter::RespLocalLengthError))
            .set_resp_cqe_error(get(Counter::RespCqeError))
            .set_req_cqe_error(get(Counter::ReqCqeError))
            .set_resp_cqe_flush_error(get(Counter::RespCqeFlushError))
            .set_req_cqe_flush_error(get(Counter::ReqCqeFlushError))
            .set_req_remote_invalid_request(get(Counter::ReqRemoteInvalidRequest))
            .set_req_remote_access_errors(get(Counter::ReqRemoteAccessErrors))
            .set_resp_remote_access_errors(get(Counter::RespRemoteAccessErrors))
            .set_resp_local_qp_error(get(Counter::RespLocalQpError))
            .set_resp_local_protection(get(Counter::RespLocalProtection))
            .set_resp_remote_invalid_request(get(Counter::RespRemoteInvalidRequest))
            .set_req_local_length_error(get(Counter::ReqLocalLengthError))
            .set_local_operation_error(get(Counter::LocalOperationError))
            .set_req_local_protection(get(Counter::ReqLocalProtection))
            .set_req_mw_binding(get(Counter::ReqMwBinding))
            .set_req_bad_response(get(Counter::ReqBadResponse))
            .set_req_remote_operation_errors(get(Counter::ReqRemoteOperationErrors))
            .set_req_transport_retries_exceeded(get(Counter::ReqTransportRetriesExceeded))
            .set_cq_overflow(get(Counter::CqOverflow));
        // Newer than the structure, which calls this word reserved.
        out.0[REQ_RNR_RETRIES_EXCEEDED..][..4]
            .copy_from_slice(&get(Counter::ReqRnrRetriesExceeded).to_be_bytes());
    }
}
