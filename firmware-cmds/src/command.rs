//! The definition of commands: the header and the status that all share, and the link from an input to its output.

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

/// Defines the structures of commands in the form of [`layout`](crate::layout::layout): the input, with the variant of
/// [`Opcode`] behind its name, and the output, unless the answer is [`EmptyOut`]. Comments in front belong to the input.
///
/// The header is implied. An input has `opcode` and `op_mod`, and if `, uid` stands behind its size, the number of a user
/// context beside the opcode; an output has `status` and `syndrome`.
macro_rules! commands {
    ($(
        $(#[$meta:meta])*
        input $In:ident of $opcode:ident: $in_ifc:literal, $in_size:literal $(, $uid:ident)? { $($in_fields:tt)* }
        $(
            output $Out:ident: $out_ifc:literal, $out_size:literal { $($out_fields:tt)* }
        )?
    )*) => { $(
        $crate::layout::layout! {
            #[doc = concat!("Input of [`", stringify!($opcode), "`](crate::opcode::Opcode::", stringify!($opcode), ").")]
            $(#[$meta])*
            pub struct $In: $in_ifc, $in_size {
                bits opcode, set_opcode: u16 @ 0x00 [31:16];
                $( bits $uid, set_uid: u16 @ 0x00 [15:0]; )?
                bits op_mod, set_op_mod: u16 @ 0x04 [15:0];
                $($in_fields)*
            }
        }
        $(
            $crate::layout::layout! {
                #[doc = concat!("Output of [`", stringify!($opcode), "`](crate::opcode::Opcode::", stringify!($opcode), ").")]
                pub struct $Out: $out_ifc, $out_size {
                    bits status, set_status: u8 @ 0x00 [31:24];
                    bits syndrome, set_syndrome: u32 @ 0x04 [31:0];
                    $($out_fields)*
                }
            }
            impl $crate::command::CommandOutput for $Out {}
        )?
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
            type Output = $crate::command::commands!(@output $($Out)?);
            #[cfg(test)]
            fn fresh() -> Self {
                Self::new()
            }
        }
    )* };
    (@output) => { $crate::command::EmptyOut };
    (@output $Out:ident) => { $Out };
}
pub(crate) use commands;
