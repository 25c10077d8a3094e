//! Short messages of one length over a connection, between the two ends of a program. They need no operating system:
//! the unikernel has this file too.
#![allow(
    unreachable_pub,
    reason = "in the unikernel this is a module of the program"
)]

use core::fmt;
use core::time::Duration;

use bareverbs::cm::rdma::{CmId, IdState, QpInit, RdmaCm, RdmaError, Resolver, SendFlags};
use bareverbs::verbs::mr::Buffer;
use bareverbs::verbs::qp::QpCap;
use bareverbs::verbs::{Platform, WcError, WcStatus};

type Result<T> = core::result::Result<T, ChannelError>;

/// The longest silence of a peer that has to send.
pub const SILENCE: Duration = Duration::from_secs(30);

/// The longest time from an end's last answer to its DREQ.
pub const DREQ_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a message did not get through.
#[derive(Debug, Clone, Copy)]
pub enum ChannelError {
    /// The connection manager, or a verb.
    Rdma(RdmaError),
    /// A work request failed.
    Completion {
        /// The operation that failed.
        what: &'static str,
        failed: WcError,
    },
    /// The other end disconnected while this was under way.
    Disconnected {
        /// The operation of this end.
        what: &'static str,
    },
    /// A message has another length than all messages have.
    Length { found: u32, due: usize },
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rdma(error) => error.fmt(f),
            Self::Completion { what, failed } => write!(
                f,
                "{what} failed: {} (vendor error {:#x})",
                failed.status, failed.vendor_err
            ),
            Self::Disconnected { what } => {
                write!(f, "the other end disconnected during this end's {what}")
            }
            Self::Length { found, due } => {
                write!(f, "a message of {found} bytes where {due} are due")
            }
        }
    }
}

impl core::error::Error for ChannelError {}

impl From<RdmaError> for ChannelError {
    #[cold]
    #[inline(never)]
    fn from(error: RdmaError) -> Self {
        Self::Rdma(error)
    }
}

/// The result of waiting for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received<const LEN: usize> {
    Message([u8; LEN]),
    /// Nothing came in time.
    Nothing,
    /// The other end has disconnected.
    Disconnected,
}

/// One end's messages of `LEN` bytes. Each end waits for an answer before it sends again.
pub struct Channel<'d, P: Platform, const LEN: usize> {
    pub id: CmId,
    /// Messages arrive here.
    inbox: Buffer<'d, P>,
    /// The longest time that a posted request takes.
    silence: Duration,
}

impl<'d, P: Platform, const LEN: usize> Channel<'d, P, LEN> {
    /// The capabilities of the connection's QP.
    pub fn queues<'a>() -> QpInit<'a, 'd, P> {
        QpInit {
            cap: QpCap {
                max_send_wr: 4,
                max_recv_wr: 2,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: LEN as u32,
            },
            ..QpInit::default()
        }
    }

    /// Posts a receive for a message, which has to be done before there is a connection. The peer may be silent for so
    /// long where it has to send.
    pub fn new<R: Resolver>(
        cm: &mut RdmaCm<'_, 'd, P, R>,
        id: CmId,
        silence: Duration,
    ) -> Result<Self> {
        let inbox = cm.reg_msgs(id, LEN)?;
        let channel = Self { id, inbox, silence };
        channel.expect_message(cm)?;
        Ok(channel)
    }

    /// Posts the receive for a message.
    fn expect_message<R: Resolver>(&self, cm: &mut RdmaCm<'_, 'd, P, R>) -> Result<()> {
        let inbox = self.inbox.slice(..LEN).map_err(RdmaError::from)?;
        Ok(cm.post_recv(self.id, 0, inbox)?)
    }

    /// Waits for the completion of what was sent.
    pub fn sent<R: Resolver>(
        &self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        what: &'static str,
    ) -> Result<()> {
        let deadline = cm.now() + self.silence;
        let Some(failed) = failure(cm.get_send_comp_until(self.id, deadline))?.err() else {
            return Ok(());
        };
        // What was posted comes back when the other end disconnects. That end's queue pair answers no more before it says so,
        // and the retries may be over when it does.
        let timeout = match failed.status {
            WcStatus::WrFlushErr => Duration::ZERO,
            WcStatus::RetryExcErr => DREQ_TIMEOUT,
            _ => return Err(ChannelError::Completion { what, failed }),
        };
        let end = cm.now() + timeout;
        loop {
            if cm.state(self.id)? == IdState::Disconnect {
                return Err(ChannelError::Disconnected { what });
            }
            if cm.now() >= end {
                return Err(ChannelError::Completion { what, failed });
            }
            cm.wait(end)?;
        }
    }

    /// Waits for the peer's message and posts the receive for the next one.
    pub fn message<R: Resolver>(
        &self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        timeout: Duration,
    ) -> Result<Received<LEN>> {
        let end = cm.now().saturating_add(timeout);
        let completion = loop {
            if let Some(completion) = cm.try_get_recv_comp(self.id).transpose() {
                break failure(completion)?;
            }
            if cm.state(self.id)? == IdState::Disconnect {
                return Ok(Received::Disconnected);
            }
            if cm.now() >= end {
                return Ok(Received::Nothing);
            }
            // For either.
            cm.wait(end)?;
        };
        let wc = match completion {
            Ok(wc) => wc,
            // What was posted comes back when the other end disconnects.
            Err(failed)
                if failed.status == WcStatus::WrFlushErr
                    && cm.state(self.id)? == IdState::Disconnect =>
            {
                return Ok(Received::Disconnected);
            }
            Err(failed) => {
                let what = "receive";
                return Err(ChannelError::Completion { what, failed });
            }
        };
        if wc.byte_len as usize != LEN {
            return Err(ChannelError::Length {
                found: wc.byte_len,
                due: LEN,
            });
        }
        let mut bytes = [0; LEN];
        self.inbox
            .copy_out(0, &mut bytes)
            .map_err(RdmaError::from)?;
        self.expect_message(cm)?;
        Ok(Received::Message(bytes))
    }

    /// Sends a message.
    pub fn send<R: Resolver>(
        &self,
        cm: &mut RdmaCm<'_, 'd, P, R>,
        message: &[u8; LEN],
    ) -> Result<()> {
        cm.post_send_inline(self.id, 0, message, SendFlags::SIGNALED)?;
        self.sent(cm, "SEND")
    }
}

/// Tells the failure of a work request from other errors.
pub fn failure<T>(
    completion: core::result::Result<T, RdmaError>,
) -> Result<core::result::Result<T, WcError>> {
    match completion {
        Ok(wc) => Ok(Ok(wc)),
        Err(RdmaError::Completion(failed)) => Ok(Err(failed)),
        Err(error) => Err(error.into()),
    }
}
