//! The states of a QP and the table of `ibv_modify_qp`: which attributes each transition requires, and which it takes.
//!
//! Source: IBTA vol. 1, 11.2.4 (modify queue pair), in the form that Linux enforces (`qp_state_table`); anything that is
//! neither required nor optional is refused, by name.

use core::fmt;

use bitflags::bitflags;

use crate::types::qp::QpKind;
pub use crate::types::qp::QpState;

bitflags! {
    /// Attributes of a QP: `enum ibv_qp_attr_mask`, with its values.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct QpAttrMask: u32 {
        /// The next state.
        const STATE = 1 << 0;
        /// The state that the caller believes to be current.
        const CUR_STATE = 1 << 1;
        /// Ask for an event when the send queue has drained.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// Rights of the peer.
        const ACCESS_FLAGS = 1 << 3;
        /// Index into the P_Key table.
        const PKEY_INDEX = 1 << 4;
        /// Physical port.
        const PORT = 1 << 5;
        /// Q_Key.
        const QKEY = 1 << 6;
        /// Address vector of the peer.
        const AV = 1 << 7;
        /// Path MTU.
        const PATH_MTU = 1 << 8;
        /// Local ACK timeout.
        const TIMEOUT = 1 << 9;
        /// Transport retries.
        const RETRY_CNT = 1 << 10;
        /// Retries when the receiver is not ready.
        const RNR_RETRY = 1 << 11;
        /// First expected packet sequence number.
        const RQ_PSN = 1 << 12;
        /// READs and atomics outstanding as requester (initiator depth).
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// Alternate path.
        const ALT_PATH = 1 << 14;
        /// RNR NAK timer.
        const MIN_RNR_TIMER = 1 << 15;
        /// First packet sequence number sent.
        const SQ_PSN = 1 << 16;
        /// READs and atomics outstanding as responder (responder resources).
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Path migration state.
        const PATH_MIG_STATE = 1 << 18;
        /// Queue sizes; mlx5 cannot change them.
        const CAP = 1 << 19;
        /// QP number of the peer.
        const DEST_QPN = 1 << 20;
        /// Packet pacing; raw packet QPs only.
        const RATE_LIMIT = 1 << 25;
    }
}

impl fmt::Display for QpAttrMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

/// Attributes that a transition requires, and those that it takes besides ([`QpAttrMask::STATE`] is always allowed and never
/// listed).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transition {
    /// All of these have to be given.
    pub required: QpAttrMask,
    /// These may be given.
    pub optional: QpAttrMask,
}

/// The row of the table for `from` → `to`, if there is such a transition.
#[must_use]
pub const fn transition(kind: QpKind, from: QpState, to: QpState) -> Option<Transition> {
    use QpAttrMask as M;
    use QpKind::{Dci, Dct, Gsi, RawPacket, Rc, Uc, Ud, XrcRecv, XrcSend};
    use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};

    const NONE: QpAttrMask = M::empty();
    const INIT: QpAttrMask = M::PKEY_INDEX.union(M::PORT).union(M::ACCESS_FLAGS);
    const INIT_UD: QpAttrMask = M::PKEY_INDEX.union(M::PORT).union(M::QKEY);
    // As Linux's `modify_dci_qp_is_ok` has them.
    const INIT_DCI: QpAttrMask = M::PKEY_INDEX.union(M::PORT);
    const INIT_GSI: QpAttrMask = M::PKEY_INDEX.union(M::QKEY);
    const RTR_UC: QpAttrMask = M::AV.union(M::PATH_MTU).union(M::DEST_QPN).union(M::RQ_PSN);
    const RTR_RC: QpAttrMask = RTR_UC.union(M::MAX_DEST_RD_ATOMIC).union(M::MIN_RNR_TIMER);
    const RTR_OPT: QpAttrMask = M::ALT_PATH.union(M::ACCESS_FLAGS).union(M::PKEY_INDEX);
    const RTS_RC: QpAttrMask = M::TIMEOUT
        .union(M::RETRY_CNT)
        .union(M::RNR_RETRY)
        .union(M::SQ_PSN)
        .union(M::MAX_QP_RD_ATOMIC);
    const LIVE_UC: QpAttrMask = M::CUR_STATE
        .union(M::ALT_PATH)
        .union(M::ACCESS_FLAGS)
        .union(M::PATH_MIG_STATE);
    const LIVE_RC: QpAttrMask = LIVE_UC.union(M::MIN_RNR_TIMER);
    const RTS_TARGET: QpAttrMask = M::TIMEOUT.union(M::SQ_PSN);
    const LIVE_UD: QpAttrMask = M::CUR_STATE.union(M::QKEY);
    const SQD_UC: QpAttrMask = M::AV
        .union(M::ALT_PATH)
        .union(M::ACCESS_FLAGS)
        .union(M::PKEY_INDEX)
        .union(M::PATH_MIG_STATE);
    const SQD_RC: QpAttrMask = SQD_UC
        .union(M::PORT)
        .union(M::TIMEOUT)
        .union(M::RETRY_CNT)
        .union(M::RNR_RETRY)
        .union(M::MAX_QP_RD_ATOMIC)
        .union(M::MAX_DEST_RD_ATOMIC)
        .union(M::MIN_RNR_TIMER);
    const SQD_INITIATOR: QpAttrMask =
        SQD_RC.difference(M::MAX_DEST_RD_ATOMIC.union(M::MIN_RNR_TIMER));
    const SQD_TARGET: QpAttrMask =
        SQD_RC.difference(M::RETRY_CNT.union(M::RNR_RETRY).union(M::MAX_QP_RD_ATOMIC));

    // Apart from the others, with which they have no row in common: arms between theirs take several times the code.
    if matches!(kind, RawPacket | Dci | Dct) && !matches!(to, Reset | Err) {
        let (required, optional) = match (kind, from, to) {
            (RawPacket, Reset, Init) => (M::PORT, NONE),
            (RawPacket, Init, Init | Rtr) => (NONE, NONE),
            (RawPacket, Rtr | Rts, Rts) => (NONE, M::RATE_LIMIT),
            (Dci, Reset, Init) => (INIT_DCI, NONE),
            (Dci, Init, Init) => (NONE, INIT_DCI),
            (Dci, Init, Rtr) => (M::PATH_MTU, M::PKEY_INDEX.union(M::AV)),
            (Dci, Rtr, Rts) => (RTS_RC, M::MIN_RNR_TIMER),
            (Dci, Rts, Rts) => (NONE, M::MIN_RNR_TIMER),
            _ => return None,
        };
        return Some(Transition { required, optional });
    }
    let (required, optional) = match (from, to, kind) {
        (_, Reset, _) => (NONE, NONE),
        (Reset, Err, _) => return None,
        (_, Err, _) => (NONE, NONE),

        (Reset, Init, Rc | Uc | XrcSend | XrcRecv) => (INIT, NONE),
        (Reset, Init, Ud) => (INIT_UD, NONE),
        (Reset, Init, Gsi) => (INIT_GSI, NONE),
        (Init, Init, Rc | Uc | XrcSend | XrcRecv) => (NONE, INIT),
        (Init, Init, Ud) => (NONE, INIT_UD),
        (Init, Init, Gsi) => (NONE, INIT_GSI),

        (Init, Rtr, Rc | XrcRecv) => (RTR_RC, RTR_OPT),
        (Init, Rtr, Uc | XrcSend) => (RTR_UC, RTR_OPT),
        (Init, Rtr, Ud | Gsi) => (NONE, INIT_GSI),

        (Rtr, Rts, Rc) => (RTS_RC, LIVE_RC),
        (Rtr, Rts, XrcSend) => (RTS_RC, LIVE_UC),
        (Rtr, Rts, XrcRecv) => (RTS_TARGET, LIVE_RC),
        (Rtr, Rts, Uc) => (M::SQ_PSN, LIVE_UC),
        (Rtr, Rts, Ud | Gsi) => (M::SQ_PSN, LIVE_UD),
        (Rts | Sqd, Rts, Rc | XrcRecv) => (NONE, LIVE_RC),
        (Rts | Sqd, Rts, Uc | XrcSend) => (NONE, LIVE_UC),
        (Rts, Rts, Ud | Gsi) | (Sqd, Rts, Ud | Gsi) => (NONE, LIVE_UD),

        (Rts, Sqd, _) => (NONE, M::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd, Rc) => (NONE, SQD_RC),
        (Sqd, Sqd, XrcSend) => (NONE, SQD_INITIATOR),
        (Sqd, Sqd, XrcRecv) => (NONE, SQD_TARGET),
        (Sqd, Sqd, Uc) => (NONE, SQD_UC),
        (Sqd, Sqd, Ud | Gsi) => (NONE, INIT_GSI),

        (Sqe, Rts, Rc | XrcSend | XrcRecv) => (NONE, NONE),
        (Sqe, Rts, Uc) => (NONE, M::CUR_STATE.union(M::ACCESS_FLAGS)),
        (Sqe, Rts, Ud | Gsi) => (NONE, LIVE_UD),
        _ => return None,
    };
    Some(Transition { required, optional })
}

/// Why a set of attributes does not make a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransitionError {
    /// There is no way from this state to that one.
    NoSuchTransition {
        /// Current state.
        from: QpState,
        /// The requested state.
        to: QpState,
    },
    /// Required attributes are missing.
    Missing {
        /// Current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The missing attributes.
        attributes: QpAttrMask,
    },
    /// Attributes that this transition does not take.
    Forbidden {
        /// Current state.
        from: QpState,
        /// The requested state.
        to: QpState,
        /// The attributes that were given nevertheless.
        attributes: QpAttrMask,
    },
}

impl fmt::Display for TransitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchTransition { from, to } => write!(f, "a QP cannot go from {from} to {to}"),
            Self::Missing {
                from,
                to,
                attributes,
            } => write!(f, "{from} to {to} needs {attributes}"),
            Self::Forbidden {
                from,
                to,
                attributes,
            } => write!(f, "{from} to {to} does not take {attributes}"),
        }
    }
}

impl core::error::Error for TransitionError {}

/// Checks `mask` against the table.
pub const fn check(
    kind: QpKind,
    from: QpState,
    to: QpState,
    mask: QpAttrMask,
) -> Result<(), TransitionError> {
    let Some(row) = transition(kind, from, to) else {
        return Err(TransitionError::NoSuchTransition { from, to });
    };
    let missing = row.required.difference(mask);
    if !missing.is_empty() {
        return Err(TransitionError::Missing {
            from,
            to,
            attributes: missing,
        });
    }
    let extra = mask.difference(row.required.union(row.optional).union(QpAttrMask::STATE));
    if !extra.is_empty() {
        return Err(TransitionError::Forbidden {
            from,
            to,
            attributes: extra,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::format;
    use std::vec::Vec;

    fn parse(list: &str) -> QpAttrMask {
        let mut mask = QpAttrMask::empty();
        for word in list.split_whitespace() {
            mask |= match word {
                "PK" => QpAttrMask::PKEY_INDEX,
                "PT" => QpAttrMask::PORT,
                "QK" => QpAttrMask::QKEY,
                "AF" => QpAttrMask::ACCESS_FLAGS,
                "AV" => QpAttrMask::AV,
                "MT" => QpAttrMask::PATH_MTU,
                "DQ" => QpAttrMask::DEST_QPN,
                "RP" => QpAttrMask::RQ_PSN,
                "SP" => QpAttrMask::SQ_PSN,
                "MD" => QpAttrMask::MAX_DEST_RD_ATOMIC,
                "MR" => QpAttrMask::MAX_QP_RD_ATOMIC,
                "RN" => QpAttrMask::MIN_RNR_TIMER,
                "TO" => QpAttrMask::TIMEOUT,
                "RC" => QpAttrMask::RETRY_CNT,
                "RR" => QpAttrMask::RNR_RETRY,
                "AP" => QpAttrMask::ALT_PATH,
                "PM" => QpAttrMask::PATH_MIG_STATE,
                "CS" => QpAttrMask::CUR_STATE,
                "RL" => QpAttrMask::RATE_LIMIT,
                "EN" => QpAttrMask::EN_SQD_ASYNC_NOTIFY,
                other => panic!("{other}"),
            };
        }
        mask
    }

    /// The table once more, in the shorthand of its source: type, from, to, required, optional.
    const TABLE: &str = "
        rc RESET INIT: PK PT AF |
        uc RESET INIT: PK PT AF |
        ud RESET INIT: PK PT QK |
        gsi RESET INIT: PK QK |
        rc INIT INIT: | PK PT AF
        uc INIT INIT: | PK PT AF
        ud INIT INIT: | PK PT QK
        gsi INIT INIT: | PK QK
        rc INIT RTR: AV MT DQ RP MD RN | AP AF PK
        uc INIT RTR: AV MT DQ RP | AP AF PK
        ud INIT RTR: | PK QK
        gsi INIT RTR: | PK QK
        rc RTR RTS: TO RC RR SP MR | CS AP AF RN PM
        uc RTR RTS: SP | CS AP AF PM
        ud RTR RTS: SP | CS QK
        gsi RTR RTS: SP | CS QK
        rc RTS RTS: | CS AF AP PM RN
        uc RTS RTS: | CS AF AP PM
        ud RTS RTS: | CS QK
        gsi RTS RTS: | CS QK
        rc RTS SQD: | EN
        uc RTS SQD: | EN
        ud RTS SQD: | EN
        gsi RTS SQD: | EN
        rc SQD RTS: | CS AP AF RN PM
        uc SQD RTS: | CS AP AF PM
        ud SQD RTS: | CS QK
        gsi SQD RTS: | CS QK
        rc SQD SQD: | PT AV TO RC RR MR MD AP AF PK RN PM
        uc SQD SQD: | AV AP AF PK PM
        ud SQD SQD: | PK QK
        gsi SQD SQD: | PK QK
        rc SQE RTS: |
        uc SQE RTS: | CS AF
        ud SQE RTS: | CS QK
        gsi SQE RTS: | CS QK
        ini RESET INIT: PK PT AF |
        tgt RESET INIT: PK PT AF |
        ini INIT INIT: | PK PT AF
        tgt INIT INIT: | PK PT AF
        ini INIT RTR: AV MT DQ RP | AP AF PK
        tgt INIT RTR: AV MT DQ RP MD RN | AP AF PK
        ini RTR RTS: TO RC RR SP MR | CS AP AF PM
        tgt RTR RTS: TO SP | CS AP AF RN PM
        ini RTS RTS: | CS AF AP PM
        tgt RTS RTS: | CS AF AP PM RN
        ini RTS SQD: | EN
        tgt RTS SQD: | EN
        ini SQD RTS: | CS AP AF PM
        tgt SQD RTS: | CS AP AF RN PM
        ini SQD SQD: | PT AV TO RC RR MR AP AF PK PM
        tgt SQD SQD: | PT AV TO MD AP AF PK RN PM
        ini SQE RTS: |
        tgt SQE RTS: |
        dci RESET INIT: PK PT |
        dci INIT INIT: | PK PT
        dci INIT RTR: MT | PK AV
        dci RTR RTS: TO RC RR SP MR | RN
        dci RTS RTS: | RN
        raw RESET INIT: PT |
        raw INIT INIT: |
        raw INIT RTR: |
        raw RTR RTS: | RL
        raw RTS RTS: | RL";

    fn written_down() -> Vec<(QpKind, QpState, QpState, Transition)> {
        let mut rows = Vec::new();
        for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (head, attributes) = line.split_once(':').unwrap();
            let mut words = head.split_whitespace();
            let kind = match words.next().unwrap() {
                "rc" => QpKind::Rc,
                "uc" => QpKind::Uc,
                "ud" => QpKind::Ud,
                "ini" => QpKind::XrcSend,
                "tgt" => QpKind::XrcRecv,
                "dci" => QpKind::Dci,
                "raw" => QpKind::RawPacket,
                _ => QpKind::Gsi,
            };
            let mut state = || {
                let name = words.next().unwrap();
                QpState::ALL
                    .into_iter()
                    .find(|state| format!("{state}") == name)
                    .unwrap()
            };
            let (from, to) = (state(), state());
            let (required, optional) = attributes.split_once('|').unwrap();
            rows.push((
                kind,
                from,
                to,
                Transition {
                    required: parse(required),
                    optional: parse(optional),
                },
            ));
        }
        rows
    }

    /// Every (type, from, to), both ways: what the written table has is allowed with exactly these attributes, and
    /// what it has not is refused.
    #[test]
    fn table_is_complete() {
        let rows = written_down();
        for kind in QpKind::ALL {
            for from in QpState::ALL {
                for to in QpState::ALL {
                    let empty = Transition {
                        required: QpAttrMask::empty(),
                        optional: QpAttrMask::empty(),
                    };
                    let expected = match to {
                        QpState::Reset => Some(empty),
                        QpState::Err if from != QpState::Reset => Some(empty),
                        _ => rows
                            .iter()
                            .find(|r| (r.0, r.1, r.2) == (kind, from, to))
                            .map(|r| r.3),
                    };
                    assert_eq!(transition(kind, from, to), expected, "{kind:?} {from} {to}");
                    let Some(row) = expected else {
                        let error = check(kind, from, to, QpAttrMask::STATE);
                        assert_eq!(error, Err(TransitionError::NoSuchTransition { from, to }));
                        continue;
                    };
                    assert_eq!(
                        check(
                            kind,
                            from,
                            to,
                            row.required | row.optional | QpAttrMask::STATE
                        ),
                        Ok(())
                    );
                    assert_eq!(check(kind, from, to, row.required), Ok(()));
                    for attribute in QpAttrMask::all().iter() {
                        let without =
                            check(kind, from, to, (row.required | row.optional) - attribute);
                        let with = check(kind, from, to, row.required | attribute);
                        if row.required.contains(attribute) {
                            assert_eq!(
                                without,
                                Err(TransitionError::Missing {
                                    from,
                                    to,
                                    attributes: attribute
                                })
                            );
                        } else if row.optional.contains(attribute) || attribute == QpAttrMask::STATE
                        {
                            assert_eq!(with, Ok(()));
                        } else {
                            assert_eq!(
                                with,
                                Err(TransitionError::Forbidden {
                                    from,
                                    to,
                                    attributes: attribute
                                })
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn errors_name_the_attributes() {
        let error = check(
            QpKind::Rc,
            QpState::Init,
            QpState::Rtr,
            QpAttrMask::AV | QpAttrMask::PATH_MTU,
        )
        .unwrap_err();
        let text = format!("{error}");
        assert!(
            text.contains("DEST_QPN")
                && text.contains("MIN_RNR_TIMER")
                && !text.contains("PATH_MTU"),
            "{text}"
        );
    }
}
