//! The messages that end a connection: DREQ and DREP (IBTA volume 1, chapter 12.6).

use super::fields::message;

message! {
    /// Disconnection request (IBTA table 112).
    Dreq, attribute Dreq, private 12,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
        /// The receiver's QP number, so that a wrong connection is not torn down.
        remote_qpn: u32 = 8, 0, 24;
    }
    bytes {}
}

message! {
    /// Reply to a disconnection request (IBTA table 113).
    Drep, attribute Drep, private 8,
    bits {
        /// The sender's name for the connection.
        local_comm_id: u32 = 0, 0, 32;
        /// The receiver's name for the connection.
        remote_comm_id: u32 = 4, 0, 32;
    }
    bytes {}
}
