//! The transitions as the firmware has them: the command of each, and which optional attributes it takes.

use bareverbs_firmware_cmds::command::Command;
use bareverbs_firmware_cmds::opcode::Opcode;
use bareverbs_firmware_cmds::qp::{
    Init2initQpIn, Init2rtrQpIn, Rst2initQpIn, Rtr2rtsQpIn, Rts2rtsQpIn, Sqd2rtsQpIn, Sqerr2rtsQpIn,
};
use bareverbs_firmware_cmds::values::OptParamMask as Opt;

use crate::types::qp::{QpKind, QpState};
use crate::verbs::qp::control::states::QpAttrMask;

/// The command that makes a transition. All of them are laid out as [`Rst2initQpIn`] is.
pub(in crate::verbs::qp) const fn transition_command(from: QpState, to: QpState) -> Option<Opcode> {
    Some(match (from, to) {
        (QpState::Reset, QpState::Init) => Rst2initQpIn::OPCODE,
        (QpState::Init, QpState::Init) => Init2initQpIn::OPCODE,
        (QpState::Init, QpState::Rtr) => Init2rtrQpIn::OPCODE,
        (QpState::Rtr, QpState::Rts) => Rtr2rtsQpIn::OPCODE,
        (QpState::Rts, QpState::Rts) => Rts2rtsQpIn::OPCODE,
        (QpState::Sqe, QpState::Rts) => Sqerr2rtsQpIn::OPCODE,
        (QpState::Sqd, QpState::Rts) => Sqd2rtsQpIn::OPCODE,
        _ => return None,
    })
}

/// Optional bits that a transition takes.
pub(in crate::verbs::qp) fn optional_bits(kind: QpKind, from: QpState, to: QpState) -> Opt {
    use QpState::{Init, Rtr, Rts, Sqd, Sqe};
    match (kind, from, to) {
        (QpKind::Rc | QpKind::XrcSend | QpKind::XrcRecv, Init, Init) => {
            Opt::ACCESS | Opt::PKEY_INDEX | Opt::PRI_PORT
        }
        (QpKind::Dci, Init, Init) => Opt::PKEY_INDEX | Opt::PRI_PORT,
        (QpKind::Dci, Init, Rtr) => Opt::PKEY_INDEX,
        (QpKind::Uc, Init, Init) => Opt::RWE | Opt::PKEY_INDEX | Opt::PRI_PORT,
        (QpKind::Ud | QpKind::Gsi, Init, Init) => Opt::PKEY_INDEX | Opt::Q_KEY | Opt::PRI_PORT,
        (QpKind::Rc | QpKind::XrcSend | QpKind::XrcRecv, Init, Rtr) => {
            Opt::ALT_ADDR_PATH | Opt::ACCESS | Opt::PKEY_INDEX
        }
        (QpKind::Uc, Init, Rtr) => Opt::ALT_ADDR_PATH | Opt::RWE | Opt::PKEY_INDEX,
        (QpKind::Ud | QpKind::Gsi, Init, Rtr) => Opt::PKEY_INDEX | Opt::Q_KEY,
        (QpKind::Rc | QpKind::XrcRecv, Rtr | Rts | Sqd, Rts) => {
            Opt::ALT_ADDR_PATH | Opt::ACCESS | Opt::PM_STATE | Opt::RNR_TIMEOUT
        }
        (QpKind::XrcSend, Rtr | Rts | Sqd, Rts) => Opt::ALT_ADDR_PATH | Opt::ACCESS | Opt::PM_STATE,
        (QpKind::Uc, Rtr | Rts | Sqd, Rts) => Opt::ALT_ADDR_PATH | Opt::RWE | Opt::PM_STATE,
        (QpKind::Uc, Sqe, Rts) => Opt::RWE,
        (QpKind::Ud | QpKind::Gsi, Rtr | Rts | Sqd | Sqe, Rts) => Opt::Q_KEY,
        _ => Opt::empty(),
    }
}

/// The bits that go with the attributes given.
pub(in crate::verbs::qp) fn given_bits(mask: QpAttrMask) -> Opt {
    let table = [
        (QpAttrMask::ACCESS_FLAGS, Opt::ACCESS),
        (QpAttrMask::MAX_DEST_RD_ATOMIC, Opt::ACCESS),
        (QpAttrMask::PKEY_INDEX, Opt::PKEY_INDEX),
        (QpAttrMask::QKEY, Opt::Q_KEY),
        (QpAttrMask::MIN_RNR_TIMER, Opt::RNR_TIMEOUT),
        (QpAttrMask::PATH_MIG_STATE, Opt::PM_STATE),
        (QpAttrMask::ALT_PATH, Opt::ALT_ADDR_PATH),
        (QpAttrMask::PORT, Opt::PRI_PORT),
    ];
    table
        .iter()
        .filter(|(attribute, _)| mask.contains(*attribute))
        .fold(Opt::empty(), |bits, (_, bit)| bits | *bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::qp::control::states;
    use bareverbs_firmware_cmds::command::EmptyOut;
    use bareverbs_firmware_cmds::layout::Layout;

    #[test]
    fn transition_commands_are_laid_out_alike() {
        fn same<C: Command>() {
            let (one, all) = (C::DESCRIPTOR, Rst2initQpIn::DESCRIPTOR);
            assert_eq!(one.size, all.size);
            // Behind what all have, RTS2RTS_QP can change a stream of an initiator.
            let own = ["qpc_ext", "opt_param_mask_95_32", "qpc_data_ext"];
            for field in one.fields.iter().filter(|it| !own.contains(&it.name)) {
                let there = all.fields.iter().find(|there| there.name == field.name);
                let there = there.map(|there| (there.offset, there.width));
                assert_eq!(there, Some((field.offset, field.width)), "{}", one.name);
            }
            assert_eq!(size_of::<C::Output>(), EmptyOut::SIZE);
        }
        same::<Init2initQpIn>();
        same::<Init2rtrQpIn>();
        same::<Rtr2rtsQpIn>();
        same::<Rts2rtsQpIn>();
        same::<Sqerr2rtsQpIn>();
        same::<Sqd2rtsQpIn>();
    }

    /// Optional bits go out only for attributes that the verbs table lets through on this transition.
    #[test]
    fn optional_bits_follow_the_table() {
        for kind in QpKind::ALL {
            for from in QpState::ALL {
                for to in QpState::ALL {
                    let bits = optional_bits(kind, from, to);
                    let Some(row) = states::transition(kind, from, to) else {
                        assert_eq!(bits, Opt::empty(), "{kind:?} {from} {to}");
                        continue;
                    };
                    let possible = given_bits(row.required | row.optional);
                    // The kernel's masks name the port for GSI QPs as for all UD ones.
                    let extra = if kind == QpKind::Gsi {
                        Opt::PRI_PORT
                    } else {
                        Opt::empty()
                    };
                    assert!((possible | extra).contains(bits), "{kind:?} {from} {to}");
                }
            }
        }
    }
}
