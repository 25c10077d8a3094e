//! The two statuses of a command: the delivery status of the queue entry, and the status in the answer.
//!
//! The two are different layers. The delivery status says whether the device could read the command at all; only when
//! it is [`DeliveryStatus::Ok`] is there an answer, whose first byte is the [`Status`] and whose second dword is a
//! syndrome: a number without public documentation that the vendor's support can read.

use crate::numbered::numbered;
use core::fmt;

/// Linux error numbers, as far as commands end with them.
pub mod errno {
    /// Input/output error.
    pub const EIO: i32 = 5;
    /// Try again.
    pub const EAGAIN: i32 = 11;
    /// Out of memory.
    pub const ENOMEM: i32 = 12;
    /// Bad address.
    pub const EFAULT: i32 = 14;
    /// Device or resource busy.
    pub const EBUSY: i32 = 16;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// No message of the desired type.
    pub const ENOMSG: i32 = 42;
    /// Invalid request descriptor.
    pub const EBADR: i32 = 53;
    /// Timed out.
    pub const ETIMEDOUT: i32 = 110;
}

numbered! {
    /// Outcome of a command that the device could read.
    pub enum Status: u8, code {
        /// Done.
        Ok = 0x00, "OK";
        /// The firmware failed internally.
        InternalError = 0x01, "INT_ERR";
        /// The opcode or its modifier is not supported.
        BadOperation = 0x02, "BAD_OP";
        /// A parameter is out of range or not allowed here.
        BadParameter = 0x03, "BAD_PARAM";
        /// The device is not in a state in which this command is possible.
        BadSystemState = 0x04, "BAD_SYS_STATE";
        /// The object that the command refers to does not exist.
        BadResource = 0x05, "BAD_RES";
        /// The object is in use by others.
        ResourceBusy = 0x06, "RES_BUSY";
        /// The answer is not there yet.
        NotReady = 0x07, "NOT_READY";
        /// A limit of the device would be exceeded.
        LimitExceeded = 0x08, "LIM_ERR";
        /// The object is not in a state in which this command is possible.
        BadResourceState = 0x09, "BAD_RES_STATE";
        /// An index is out of range.
        BadIndex = 0x0a, "IX_ERR";
        /// The firmware has run out of something.
        NoResources = 0x0f, "NO_RES";
        /// The queue pair is in the wrong state for this transition.
        BadQpState = 0x10, "BAD_QP_STATE";
        /// The packet in the command is malformed.
        BadPacket = 0x30, "BAD_PKT";
        /// The completion queue holds more entries than its new size can hold.
        BadSizeOutstandingCqes = 0x40, "BAD_SIZE_OUTS_CQES";
        /// The input has the wrong length.
        BadInputLength = 0x50, "BAD_INP_LEN";
        /// There is no space for the output.
        BadOutputLength = 0x51, "BAD_OUTP_LEN";
        _ = Unknown, "UNKNOWN";
    }
    /// Every code that has a name.
    const ALL;
    /// The code with this number.
    fn from_number;
    /// Name, as vendor tools print it.
    fn name;
    /// The number that the device writes.
    fn number;
}

impl Status {
    /// `true` if the command was done.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// The error number that Linux makes of it; 0 for [`Status::Ok`].
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::BadOperation
            | Self::BadParameter
            | Self::BadResource
            | Self::BadResourceState
            | Self::BadIndex
            | Self::BadQpState
            | Self::BadPacket
            | Self::BadSizeOutstandingCqes => errno::EINVAL,
            Self::ResourceBusy => errno::EBUSY,
            Self::LimitExceeded => errno::ENOMEM,
            Self::NotReady | Self::NoResources => errno::EAGAIN,
            Self::InternalError
            | Self::BadSystemState
            | Self::BadInputLength
            | Self::BadOutputLength
            | Self::Unknown(_) => errno::EIO,
        }
    }

    /// Its meaning, in words.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Ok => "done",
            Self::InternalError => "internal firmware error",
            Self::BadOperation => "unknown or unsupported opcode or modifier",
            Self::BadParameter => "bad parameter",
            Self::BadSystemState => "the device is not in a state for this command",
            Self::BadResource => "no such object, or no more of them to be had",
            Self::ResourceBusy => "the object is in use",
            Self::NotReady => "not ready yet",
            Self::LimitExceeded => "a limit would be exceeded",
            Self::BadResourceState => "the object is not in a state for this command",
            Self::BadIndex => "index out of range",
            Self::NoResources => "the firmware has run out of resources",
            Self::BadQpState => "the queue pair is not in a state for this transition",
            Self::BadPacket => "malformed management packet",
            Self::BadSizeOutstandingCqes => "more completions outstanding than the new size holds",
            Self::BadInputLength => "bad input length",
            Self::BadOutputLength => "bad output length",
            Self::Unknown(_) => "status without a name",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}({:#04x}): {}",
            self.name(),
            self.number(),
            self.description()
        )
    }
}

numbered! {
    /// The delivery status: the device could take a command from its queue entry, or not (bits 7:1 of the entry's last byte).
    pub enum DeliveryStatus: u8, code {
        /// Taken and answered; the answer has its own [`Status`].
        Ok = 0x00, "OK";
        /// A signature is wrong.
        Signature = 0x01, "SIGNATURE_ERR";
        /// The token of a mailbox block is not that of the entry.
        Token = 0x02, "TOKEN_ERR";
        /// The mailbox blocks are not numbered in sequence.
        BadBlockNumber = 0x03, "BAD_BLK_NUM_ERR";
        /// The output mailbox pointer is not aligned.
        BadOutputPointer = 0x04, "OUT_PTR_ALIGN_ERR";
        /// The input mailbox pointer is not aligned.
        BadInputPointer = 0x05, "IN_PTR_ALIGN_ERR";
        /// The firmware failed internally.
        Firmware = 0x06, "FW_ERR";
        /// The input length is wrong.
        InputLength = 0x07, "IN_LEN_ERR";
        /// The output length is wrong.
        OutputLength = 0x08, "OUT_LEN_ERR";
        /// A reserved field of the entry is not zero.
        ReservedNotZero = 0x09, "RES_FLD_NOT_CLR_ERR";
        /// The entry's type is not 7.
        BadCommandType = 0x10, "BAD_CMD_TYPE_ERR";
        _ = Unknown, "UNKNOWN";
    }
    /// Every code that has a name.
    const ALL;
    /// The code with this number.
    fn from_number;
    /// Name, as vendor tools print it.
    fn name;
    /// The number that the device writes.
    fn number;
}

impl DeliveryStatus {
    /// The error number that Linux makes of it; 0 for [`DeliveryStatus::Ok`].
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Ok => 0,
            Self::Signature | Self::Token => errno::EBADR,
            Self::BadBlockNumber | Self::BadOutputPointer | Self::BadInputPointer => errno::EFAULT,
            Self::Firmware => errno::EIO,
            Self::InputLength
            | Self::OutputLength
            | Self::ReservedNotZero
            | Self::BadCommandType => errno::ENOMSG,
            Self::Unknown(_) => errno::EINVAL,
        }
    }

    /// `true` if there is an answer to look at.
    #[must_use]
    pub const fn is_ok(self) -> bool {
        matches!(self, Self::Ok)
    }

    /// Its meaning, in words.
    #[must_use]
    pub const fn description(self) -> &'static str {
        match self {
            Self::Ok => "delivered",
            Self::Signature => "wrong signature",
            Self::Token => "wrong token in a mailbox block",
            Self::BadBlockNumber => "wrong mailbox block number",
            Self::BadOutputPointer => "output mailbox pointer not aligned",
            Self::BadInputPointer => "input mailbox pointer not aligned",
            Self::Firmware => "internal firmware error",
            Self::InputLength => "wrong input length",
            Self::OutputLength => "wrong output length",
            Self::ReservedNotZero => "reserved field not zero",
            Self::BadCommandType => "wrong type of queue entry",
            Self::Unknown(_) => "delivery status without a name",
        }
    }
}

impl fmt::Display for DeliveryStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}({:#04x}): {}",
            self.name(),
            self.number(),
            self.description()
        )
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::ToString;

    #[test]
    fn every_number_survives_the_round_trip() {
        for number in 0..=u8::MAX {
            assert_eq!(Status::from_number(number).number(), number);
            assert_eq!(DeliveryStatus::from_number(number).number(), number);
        }
        assert_eq!(Status::ALL.len(), 17);
        assert_eq!(DeliveryStatus::ALL.len(), 11);
    }

    #[test]
    fn errno_is_the_one_of_linux() {
        let expected = [
            (0x00, 0),
            (0x01, 5),
            (0x02, 22),
            (0x03, 22),
            (0x04, 5),
            (0x05, 22),
            (0x06, 16),
            (0x07, 11),
            (0x08, 12),
            (0x09, 22),
            (0x0a, 22),
            (0x0f, 11),
            (0x10, 22),
            (0x30, 22),
            (0x40, 22),
            (0x50, 5),
            (0x51, 5),
            (0x77, 5),
        ];
        for (number, errno) in expected {
            assert_eq!(
                Status::from_number(number).errno(),
                errno,
                "status {number:#x}"
            );
        }
    }

    /// `deliv_status_to_err` of Linux's `cmd.c`.
    #[test]
    fn errno_of_the_delivery_is_the_one_of_linux() {
        let expected = [0, 53, 53, 14, 14, 14, 5, 42, 42, 42];
        for (number, errno) in (0..).zip(expected).chain([(0x10, 42), (0x77, 22)]) {
            let found = DeliveryStatus::from_number(number).errno();
            assert_eq!(found, errno, "delivery status {number:#x}");
        }
    }

    #[test]
    fn words_name_and_number() {
        assert_eq!(
            Status::from_number(8).to_string(),
            "LIM_ERR(0x08): a limit would be exceeded"
        );
        assert_eq!(
            Status::from_number(0x77).to_string(),
            "UNKNOWN(0x77): status without a name"
        );
        assert_eq!(
            DeliveryStatus::from_number(2).to_string(),
            "TOKEN_ERR(0x02): wrong token in a mailbox block"
        );
    }
}
