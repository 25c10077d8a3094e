//! The counters of transport and device: most of them are a queue counter set's, under the hardware's names.

/// Counted occurrences; the device sums them per port and per Q counter set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Counter {
    /// Packets sent.
    PacketsSent,
    /// Packets of this QP received.
    PacketsReceived,
    /// Packets dropped because they made no sense for this QP: type, state, P_Key, addresses.
    PacketsDropped,
    /// Datagrams dropped for a wrong Q_Key.
    QkeyViolations,
    /// WRITE requests received (`rx_write_requests`).
    WriteRequests,
    /// READ requests received (`rx_read_requests`).
    ReadRequests,
    /// Atomic requests received (`rx_atomic_requests`).
    AtomicRequests,
    /// Packets that found no receive WQE (`out_of_buffer`).
    OutOfBuffer,
    /// Packets that came ahead of their turn (`out_of_sequence`).
    OutOfSequence,
    /// Requests that had been executed before (`duplicate_request`).
    DuplicateRequest,
    /// RNR NAKs sent.
    RnrNakSent,
    /// RNR NAKs received, whether or not retries are left (`rnr_nak_retry_err`).
    RnrNakRetryErr,
    /// Sequence NAKs received (`packet_seq_err`).
    PacketSeqErr,
    /// Responses that skipped one (`implied_nak_seq_err`).
    ImpliedNakSeqErr,
    /// ACK timeouts (`local_ack_timeout_err`).
    LocalAckTimeoutErr,
    /// Packets sent again.
    Retransmissions,
    /// Receive buffers too short (`resp_local_length_error`).
    RespLocalLengthError,
    /// NAK "invalid request" received (`req_remote_invalid_request`).
    ReqRemoteInvalidRequest,
    /// NAK "remote access" received (`req_remote_access_errors`).
    ReqRemoteAccessErrors,
    /// Own NAKs "remote access" (`resp_remote_access_errors`).
    RespRemoteAccessErrors,
    /// Congestion notification packets received and ignored (`rp_cnp_handled`).
    CnpHandled,
    /// Packets marked "congestion experienced" (`np_ecn_marked_roce_packets`).
    EcnMarked,
    // The others are the device's to count, by how the WQEs ended.
    /// Receive WQEs completed in error, flushed ones not among them (`resp_cqe_error`).
    RespCqeError,
    /// Receive WQEs flushed (`resp_cqe_flush_error`).
    RespCqeFlushError,
    /// Receive WQEs that made no sense (`resp_local_qp_error`).
    RespLocalQpError,
    /// Receive buffers that may not be written (`resp_local_protection`).
    RespLocalProtection,
    /// Receive WQEs in use when the peer's request was invalid (`resp_remote_invalid_request`).
    RespRemoteInvalidRequest,
    /// Send WQEs completed in error, flushed ones not among them (`req_cqe_error`).
    ReqCqeError,
    /// Send WQEs flushed (`req_cqe_flush_error`).
    ReqCqeFlushError,
    /// Messages too long to be sent (`req_local_length_error`).
    ReqLocalLengthError,
    /// Send WQEs that made no sense (`local_operation_error`).
    LocalOperationError,
    /// Memory of send WQEs that may not be reached (`req_local_protection`).
    ReqLocalProtection,
    /// Bindings of memory windows and other changes of keys that failed (`req_mw_binding`).
    ReqMwBinding,
    /// Responses that made no sense (`req_bad_response`).
    ReqBadResponse,
    /// NAK "remote operational error" received (`req_remote_operation_errors`).
    ReqRemoteOperationErrors,
    /// Retries exhausted (`req_transport_retries_exceeded`).
    ReqTransportRetriesExceeded,
    /// RNR retries exhausted (`req_rnr_retries_exceeded`).
    ReqRnrRetriesExceeded,
    /// Completions for which there was no space (`cq_overflow`).
    CqOverflow,
}

impl Counter {
    /// The number of counters.
    pub const COUNT: usize = Counter::CqOverflow as usize + 1;
}
