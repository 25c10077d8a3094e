//! What all commands share: the header, the status, and the link from an input to its output.

use crate::layout::{Layout, layout};
use crate::opcode::Opcode;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The input of a firmware command: its type names the opcode and the type of the answer.
pub trait Command: Layout + IntoBytes + FromBytes + Immutable + KnownLayout {
    /// Its opcode, which a new input already carries.
    const OPCODE: Opcode;
    /// The fixed part of the answer.
    type Output: CommandOutput;
    /// A new input.
    #[cfg(test)]
    fn fresh() -> Self;
}

/// The answer to a firmware command; every one starts with a status and a syndrome.
pub trait CommandOutput: Layout + IntoBytes + FromBytes + Immutable + KnownLayout + Copy {}

layout! {
    /// The answer that carries nothing but its status.
    pub struct EmptyOut: "destroy_qp_out", 0x10 {
        bits status, set_status: u8 @ 0x00 [31:24];
        bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
    }
}

impl CommandOutput for EmptyOut {}

/// Ties an input structure to its opcode (the variant of [`Opcode`]) and its output structure.
macro_rules! command {
    ($In:ident => EmptyOut, $opcode:ident) => {
        $crate::command::command!(@input $In => EmptyOut, $opcode);
    };
    ($In:ident => $Out:ident, $opcode:ident) => {
        $crate::command::command!(@input $In => $Out, $opcode);
        impl $crate::command::CommandOutput for $Out {}
    };
    (@input $In:ident => $Out:ident, $opcode:ident) => {
        impl $In {
            /// An input with its opcode in place and everything else zero.
            #[must_use]
            pub const fn new() -> Self {
                let mut input = Self::ZERO;
                input.set_opcode($crate::opcode::Opcode::$opcode.number());
                input
            }
        }
        impl $crate::command::Command for $In {
            const OPCODE: $crate::opcode::Opcode = $crate::opcode::Opcode::$opcode;
            type Output = $Out;
            #[cfg(test)]
            fn fresh() -> Self {
                Self::new()
            }
        }
    };
}
pub(crate) use command;
