//! The negotiation of a reset of the firmware with all functions.

use crate::numbered::numbered;

values! {
    /// The answer of a function to a request for a reset, in [`crate::register::MfrlReg`].
    ResetResponse: u8 {
        /// No answer.
        Nothing = 0, "NONE";
        /// The function agrees.
        Acknowledge = 1, "ACK";
        /// The function refuses.
        Refuse = 2, "NACK";
    }

    /// The state of a reset of the firmware, in [`crate::register::MfrlReg`].
    ResetState: u8 {
        /// There is none.
        Idle = 0, "IDLE";
        /// All functions are asked.
        InNegotiation = 1, "IN_NEGOTIATION";
        /// All have agreed.
        InProgress = 2, "RESET_IN_PROGRESS";
        /// A function did not answer.
        NegotiationTimeout = 3, "NEG_TIMEOUT";
        /// A function refused.
        Refused = 4, "NACK";
        /// A driver did not let go.
        UnloadTimeout = 5, "UNLOAD_TIMEOUT";
    }
}
