//! Sizes of a QP's queues: the arithmetic of libmlx5, with less room for what stands before the data. At least the requested
//! sizes are granted.
//!
//! ```text
//! size     = gathered(type) + 16 * max_send_sge                     for connections at least one entry
//! inline   = inlined(type) + align16(4 + max_inline_data)           if max_inline_data > 0
//! wqe      = align64(max(size, inline))                             size and inline must fit max_wqe_sz_sq, and 1008
//! ring     = next_power_of_two(max_send_wr * wqe)                   ring / 64 blocks, at most max_send_wqebb
//! returned: max_send_wr = ring / wqe, max_inline_data = min(wqe, 1008) - inlined - 4, max_send_sge as asked
//!
//! stride   = next_power_of_two(16 * max(max_recv_sge, 1))           must fit max_wqe_sz_rq
//! ring     = max(64, next_power_of_two(max_recv_wr) * stride)
//! returned: max_recv_wr = ring / stride, max_recv_sge = stride / 16; 0 and 0 with an SRQ
//! ```
//!
//! `gathered` and `inlined` are the segments before the data in the largest operation of each kind: an atomic and a
//! write. libmlx5 reckons with the bind of a memory window, 192 bytes, in every QP. Here a QP has space for binds if it is
//! asked for ([`MwBind::SPACE`](crate::qp::MwBind::SPACE)), so that an RC work request of one entry takes one block, and a
//! queue of 16 a quarter of the memory.
//!
//! libmlx5 gives 988 bytes inline where 972 are the most here: a WQE with these has 64 segments of 16 bytes, of which the six
//! bits of a control segment's `ds` cannot tell. Linux's driver keeps to 63 for that reason (`mlx5e_get_max_sq_wqebbs`).

use core::fmt;

pub use crate::types::qp::QpKind;

/// Size of a basic block of a send queue, `MLX5_SEND_WQE_BB`.
pub const SEND_BLOCK: u32 = 64;

/// Capacities of a QP, requested or granted: `struct ibv_qp_cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QpCap {
    /// Send work requests outstanding.
    pub max_send_wr: u32,
    /// Receive work requests outstanding; ignored with an SRQ.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send work request.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive work request; ignored with an SRQ.
    pub max_recv_sge: u32,
    /// Bytes that a send work request can carry inline.
    pub max_inline_data: u32,
}

impl QpKind {
    /// Bytes of a send WQE before its data segments, at most.
    const fn gathered(self) -> u32 {
        match self {
            // Control, remote address, operands of an atomic.
            Self::Rc => 16 + 16 + 16,
            // Control, remote address.
            Self::Uc => 16 + 16,
            // Those of RC, and the number of the SRQ.
            Self::XrcSend => 16 + 16 + 16 + 16,
            Self::XrcRecv | Self::Dct => 0,
            // Those of RC, and the address vector.
            Self::Dci => 16 + 48 + 16 + 16,
            // Control and address vector.
            Self::Ud | Self::Gsi => 16 + 48,
            // Control, Ethernet. Headers that have to be inline count as entries.
            Self::RawPacket => 16 + 16,
        }
    }

    /// Bytes of a send WQE before its inline data, at most. An atomic has none.
    const fn inlined(self) -> u32 {
        match self {
            Self::Rc => 16 + 16,
            Self::XrcSend => 16 + 16 + 16,
            Self::Dci => 16 + 48 + 16,
            Self::Uc | Self::XrcRecv | Self::Dct | Self::Ud | Self::Gsi | Self::RawPacket => {
                self.gathered()
            }
        }
    }

    /// Entries that a send WQE has room for if fewer are asked for. Those of connections take one without a check.
    const fn least_sge(self) -> u32 {
        match self {
            Self::Rc | Self::Uc | Self::XrcSend | Self::Dci => 1,
            Self::XrcRecv | Self::Dct | Self::Ud | Self::Gsi | Self::RawPacket => 0,
        }
    }
}

/// The device's limits on queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Largest send WQE in bytes: `max_wqe_sz_sq`, or what a control segment can say.
    pub max_send_wqe: u32,
    /// Largest receive WQE in bytes (`max_wqe_sz_rq`).
    pub max_recv_wqe: u32,
    /// Most basic blocks of a send queue, and most entries of a receive queue (`1 << log_max_qp_sz`).
    pub max_entries: u32,
}

impl QueueLimits {
    /// From the capabilities; `log_sq_size` and `log_rq_size` of the QP context have four bits.
    #[must_use]
    pub const fn new(max_wqe_sz_sq: u16, max_wqe_sz_rq: u16, log_max_qp_sz: u8) -> Self {
        let log = if log_max_qp_sz > 15 {
            15
        } else {
            log_max_qp_sz
        };
        // `log_rq_stride` has three bits and counts from 16 bytes.
        let recv = if max_wqe_sz_rq > 2048 {
            2048
        } else {
            max_wqe_sz_rq as u32
        };
        // A WQE is a whole number of blocks, so the device's largest one is rounded down to them. `ds` of a control segment has
        // six bits and counts 16 bytes, so that the last 16 of 16 blocks are never used.
        let send = max_wqe_sz_sq as u32 / SEND_BLOCK * SEND_BLOCK;
        let send = if send > 1008 { 1008 } else { send };
        Self {
            max_send_wqe: send,
            max_recv_wqe: recv,
            max_entries: 1 << log,
        }
    }
}

/// The sizes that follow from a [`QpCap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueSizes {
    /// Basic blocks of the send ring, a power of two, or 0 for no send queue.
    pub sq_blocks: u32,
    /// Largest send WQE in bytes.
    pub sq_wqe: u32,
    /// Receive WQEs, a power of two, or 0 for no receive queue.
    pub rq_entries: u32,
    /// Bytes of a receive WQE, a power of two.
    pub rq_stride: u32,
    /// The granted capacities.
    pub cap: QpCap,
}

/// A capability that cannot be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapError {
    /// Name of the field of [`QpCap`].
    pub field: &'static str,
    /// The requested value.
    pub asked: u32,
    /// The most that the device gives, the other fields being as they are.
    pub limit: u32,
}

impl fmt::Display for CapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = {} is more than the device gives here, {}",
            self.field, self.asked, self.limit
        )
    }
}

impl core::error::Error for CapError {}

/// Works out the queues of a QP, as `ibv_create_qp` does (see the module's documentation). `with_srq`: the QP has no
/// receive queue of its own.
pub const fn queue_sizes(
    kind: QpKind,
    asked: &QpCap,
    with_srq: bool,
    limits: &QueueLimits,
) -> Result<QueueSizes, CapError> {
    let mut sizes = QueueSizes {
        sq_blocks: 0,
        sq_wqe: 0,
        rq_entries: 0,
        rq_stride: 0,
        cap: *asked,
    };
    if asked.max_send_wr > 0 && !matches!(kind, QpKind::XrcRecv | QpKind::Dct) {
        let (gathered, inlined) = (kind.gathered(), kind.inlined());
        let max_sge = limits.max_send_wqe.saturating_sub(gathered) / 16;
        if asked.max_send_sge > max_sge {
            return Err(CapError {
                field: "max_send_sge",
                asked: asked.max_send_sge,
                limit: max_sge,
            });
        }
        let max_inline = limits.max_send_wqe.saturating_sub(inlined + 4);
        if asked.max_inline_data > max_inline {
            return Err(CapError {
                field: "max_inline_data",
                asked: asked.max_inline_data,
                limit: max_inline,
            });
        }
        let sge = if asked.max_send_sge < kind.least_sge() {
            kind.least_sge()
        } else {
            asked.max_send_sge
        };
        let plain = gathered + 16 * sge;
        let inline = if asked.max_inline_data > 0 {
            inlined + align(4 + asked.max_inline_data, 16)
        } else {
            0
        };
        if plain > limits.max_send_wqe {
            return Err(CapError {
                field: "max_send_sge",
                asked: asked.max_send_sge,
                limit: max_sge,
            });
        }
        let wqe = align(if plain > inline { plain } else { inline }, SEND_BLOCK);
        let max_ring = limits.max_entries as u64 * SEND_BLOCK as u64;
        let ring = (asked.max_send_wr as u64 * wqe as u64).next_power_of_two();
        if ring > max_ring {
            let limit = (max_ring / wqe as u64) as u32;
            return Err(CapError {
                field: "max_send_wr",
                asked: asked.max_send_wr,
                limit,
            });
        }
        sizes.sq_blocks = (ring / SEND_BLOCK as u64) as u32;
        sizes.sq_wqe = wqe;
        sizes.cap.max_send_wr = (ring / wqe as u64) as u32;
        // A datagram queue for messages without data has no room for the inline header either.
        let usable = if wqe > limits.max_send_wqe {
            limits.max_send_wqe
        } else {
            wqe
        };
        sizes.cap.max_inline_data = usable.saturating_sub(inlined + 4);
    } else {
        sizes.cap.max_send_wr = 0;
        sizes.cap.max_send_sge = 0;
        sizes.cap.max_inline_data = 0;
    }
    if with_srq || asked.max_recv_wr == 0 {
        sizes.cap.max_recv_wr = 0;
        sizes.cap.max_recv_sge = 0;
        return Ok(sizes);
    }
    let max_sge = previous_power_of_two(limits.max_recv_wqe) / 16;
    if asked.max_recv_sge > max_sge {
        return Err(CapError {
            field: "max_recv_sge",
            asked: asked.max_recv_sge,
            limit: max_sge,
        });
    }
    if asked.max_recv_wr > limits.max_entries {
        return Err(CapError {
            field: "max_recv_wr",
            asked: asked.max_recv_wr,
            limit: limits.max_entries,
        });
    }
    let sge = if asked.max_recv_sge == 0 {
        1
    } else {
        asked.max_recv_sge
    };
    let stride = (16 * sge).next_power_of_two();
    let ring = asked.max_recv_wr.next_power_of_two() * stride;
    let ring = if ring < SEND_BLOCK { SEND_BLOCK } else { ring };
    sizes.rq_entries = ring / stride;
    sizes.rq_stride = stride;
    sizes.cap.max_recv_wr = sizes.rq_entries;
    sizes.cap.max_recv_sge = stride / 16;
    Ok(sizes)
}

const fn align(value: u32, to: u32) -> u32 {
    value.div_ceil(to) * to
}

const fn previous_power_of_two(value: u32) -> u32 {
    match value.checked_ilog2() {
        Some(log) => 1 << log,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: QueueLimits = QueueLimits::new(1024, 512, 15);

    fn cap(send_wr: u32, send_sge: u32, inline: u32) -> QpCap {
        QpCap {
            max_send_wr: send_wr,
            max_send_sge: send_sge,
            max_inline_data: inline,
            ..QpCap::default()
        }
    }

    fn send(kind: QpKind, asked: QpCap) -> (u32, u32, u32) {
        let sizes = queue_sizes(kind, &asked, false, &LIMITS).unwrap();
        (
            sizes.sq_wqe,
            sizes.cap.max_inline_data,
            sizes.cap.max_send_wr,
        )
    }

    #[test]
    fn known_examples() {
        // One block: control 16, remote address 16, atomic 16, one entry 16; or 28 bytes inline instead of the last two.
        assert_eq!(send(QpKind::Rc, cap(1, 1, 0)), (64, 28, 1));
        assert_eq!(send(QpKind::Rc, cap(1, 1, 28)), (64, 28, 1));
        assert_eq!(send(QpKind::Rc, cap(1, 1, 29)), (128, 92, 1));
        assert_eq!(send(QpKind::Rc, cap(1, 1, 220)), (256, 220, 1));
        assert_eq!(send(QpKind::Uc, cap(1, 2, 0)), (64, 28, 1));
        // 10 * 256 = 2560, rounded to 4096, which holds 16.
        assert_eq!(send(QpKind::Rc, cap(10, 1, 220)), (256, 220, 16));
        // The largest: 63 times 16 bytes in 16 blocks, with 36 bytes before the data.
        assert_eq!(send(QpKind::Rc, cap(1, 1, 925)), (1024, 972, 1));
        assert_eq!(send(QpKind::Rc, cap(1, 60, 0)), (1024, 972, 1));
        // Datagrams as in libmlx5, against which these were checked.
        assert_eq!(send(QpKind::Ud, cap(1, 1, 0)), (128, 60, 1));
        assert_eq!(send(QpKind::XrcSend, cap(1, 1, 0)), (128, 76, 1));
    }

    /// Every operation fits: the largest with as many entries as are asked for, and with the inline data that is given.
    #[test]
    fn every_operation_fits() {
        for kind in QpKind::ALL {
            for sge in 0..30 {
                for inline in 0..600 {
                    let asked = cap(1, sge, inline);
                    let sizes = queue_sizes(kind, &asked, false, &LIMITS).unwrap();
                    let (before, address) = match kind {
                        QpKind::Rc | QpKind::Uc => (16, 16),
                        QpKind::XrcSend => (16 + 16, 16),
                        QpKind::Dci => (16 + 48, 16),
                        QpKind::Ud | QpKind::Gsi => (16 + 48, 0),
                        QpKind::RawPacket => (16 + 16, 0),
                        QpKind::XrcRecv | QpKind::Dct => continue,
                    };
                    let operands = match kind {
                        QpKind::Rc | QpKind::XrcSend | QpKind::Dci => 16,
                        _ => 0,
                    };
                    // The queues of connections take one entry without a check.
                    let entries = match kind {
                        QpKind::Ud | QpKind::Gsi | QpKind::RawPacket => sge,
                        _ => sge.max(1),
                    };
                    assert!(before + address + operands + 16 * entries <= sizes.sq_wqe);
                    let data = sizes.cap.max_inline_data;
                    assert!(data == 0 || before + address + 4 + data <= sizes.sq_wqe);
                    assert!(data >= inline);
                }
            }
        }
    }

    #[test]
    fn receive_queue_is_at_least_a_block() {
        let asked = QpCap {
            max_recv_wr: 1,
            max_recv_sge: 1,
            ..QpCap::default()
        };
        let sizes = queue_sizes(QpKind::Rc, &asked, false, &LIMITS).unwrap();
        assert_eq!((sizes.rq_entries, sizes.rq_stride), (4, 16));
        assert_eq!((sizes.cap.max_recv_wr, sizes.cap.max_recv_sge), (4, 1));
        let asked = QpCap {
            max_recv_wr: 5,
            max_recv_sge: 3,
            ..QpCap::default()
        };
        let sizes = queue_sizes(QpKind::Rc, &asked, false, &LIMITS).unwrap();
        assert_eq!((sizes.rq_entries, sizes.rq_stride), (8, 64));
        assert_eq!(sizes.cap.max_recv_sge, 4);
        let with_srq = queue_sizes(QpKind::Rc, &asked, true, &LIMITS).unwrap();
        assert_eq!(
            (with_srq.cap.max_recv_wr, with_srq.cap.max_recv_sge),
            (0, 0)
        );
    }

    /// Refusals name the field, and the limit that they name is accepted.
    #[test]
    fn limits_are_exact() {
        for kind in [
            QpKind::Rc,
            QpKind::Uc,
            QpKind::Ud,
            QpKind::Gsi,
            QpKind::XrcSend,
        ] {
            let asked = [
                QpCap {
                    max_send_wr: u32::MAX,
                    ..cap(1, 1, 0)
                },
                QpCap {
                    max_send_sge: u32::MAX,
                    ..cap(1, 1, 0)
                },
                cap(1, 1, u32::MAX),
                QpCap {
                    max_recv_wr: u32::MAX,
                    max_recv_sge: 1,
                    ..cap(1, 1, 0)
                },
                QpCap {
                    max_recv_wr: 1,
                    max_recv_sge: u32::MAX,
                    ..cap(1, 1, 0)
                },
            ];
            for mut asked in asked {
                let error = queue_sizes(kind, &asked, false, &LIMITS).unwrap_err();
                let field = match error.field {
                    "max_send_wr" => &mut asked.max_send_wr,
                    "max_send_sge" => &mut asked.max_send_sge,
                    "max_inline_data" => &mut asked.max_inline_data,
                    "max_recv_wr" => &mut asked.max_recv_wr,
                    "max_recv_sge" => &mut asked.max_recv_sge,
                    other => panic!("unknown field {other}"),
                };
                assert_eq!(*field, error.asked);
                *field = error.limit;
                if let Err(again) = queue_sizes(kind, &asked, false, &LIMITS) {
                    // The largest gather list may need a narrower limit, which is then final.
                    assert_eq!(again.field, error.field);
                    match again.field {
                        "max_send_wr" => asked.max_send_wr = again.limit,
                        _ => asked.max_send_sge = again.limit,
                    }
                    queue_sizes(kind, &asked, false, &LIMITS).unwrap();
                }
            }
        }
    }

    #[test]
    fn given_is_at_least_asked() {
        for kind in [QpKind::Rc, QpKind::Ud, QpKind::XrcSend] {
            for wr in [1, 2, 3, 7, 8, 100, 1000] {
                for sge in [0, 1, 2, 5, 16] {
                    for inline in [0, 1, 28, 60, 61, 220] {
                        let asked = QpCap {
                            max_recv_wr: wr,
                            max_recv_sge: sge,
                            ..cap(wr, sge, inline)
                        };
                        let given = queue_sizes(kind, &asked, false, &LIMITS).unwrap();
                        assert!(given.cap.max_send_wr >= wr && given.cap.max_recv_wr >= wr);
                        assert!(
                            given.cap.max_inline_data >= inline && given.cap.max_recv_sge >= sge
                        );
                        assert_eq!(given.cap.max_send_sge, sge);
                        assert!(
                            given.cap.max_send_wr * given.sq_wqe <= given.sq_blocks * SEND_BLOCK
                        );
                        assert!(
                            given.sq_blocks.is_power_of_two() && given.rq_entries.is_power_of_two()
                        );
                    }
                }
            }
        }
    }
}
