//! One error for programs that use the driver and the connection manager.

use core::fmt;

use bareverbs_cm::rdma::{AddrInfoError, RdmaError};
use bareverbs_core::ah::AhError;
use bareverbs_core::conformance::ConformanceError;
use bareverbs_core::mr::OutOfRange;
use bareverbs_core::qp::{CapError, DestroyQpError};
use bareverbs_core::{
    BadWr, CloseError, CommandError, CqError, CreateQpError, DciError, DctError, DeviceError,
    EthernetError, EthernetReceiveError, EthernetSendError, FlowError, ForwardError, GidError,
    ModifyError, MrError, OpenError, PostError, RawPacketError, RegisterError, RssError, SrqError,
    WcError,
};

macro_rules! errors {
    ($($(#[doc = $doc:literal])* $variant:ident($error:ty),)*) => {
        /// Any error of the driver or of the connection manager: for programs that pass errors on, on any platform.
        ///
        /// `?` makes it of each of theirs. Its `Display` says what failed and why, and so does its `Debug`, which a `main` that
        /// returns an error prints.
        ///
        /// ```
        /// use bareverbs::platform::Platform;
        /// use bareverbs::verbs::{Access, Device, PortState};
        ///
        /// fn is_up<P: Platform>(device: &Device<'_, P>) -> Result<bool, bareverbs::Error> {
        ///     let pd = device.alloc_pd()?;
        ///     let buffer = pd.alloc_buffer(64, Access::LOCAL_WRITE)?;
        ///     buffer.copy_in(0, b"hello")?;
        ///     Ok(device.query_port()?.state == PortState::Active)
        /// }
        /// ```
        #[derive(Clone, PartialEq)]
        #[non_exhaustive]
        pub enum Error {
            $($(#[doc = $doc])* $variant($error),)*
        }

        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*

        impl Error {
            fn inner(&self) -> &(dyn core::error::Error + 'static) {
                match self {
                    $(Self::$variant(error) => error,)*
                }
            }
        }
    };
}

errors! {
    /// The device did not come up.
    Open(OpenError),
    /// The device did not go down in order.
    Close(CloseError),
    /// The platform does not do what it has to.
    Conformance(ConformanceError),
    /// A call of the connection manager failed, or one of the verbs that it uses itself.
    Rdma(RdmaError),
    /// A text is no address.
    AddrInfo(AddrInfoError),
    /// An address handle was refused.
    Ah(AhError),
    /// A queue pair cannot have such queues.
    Cap(CapError),
    /// A queue pair was not destroyed.
    DestroyQp(DestroyQpError),
    /// An initiator of dynamic connections was refused.
    Dci(DciError),
    /// A target of dynamic connections was refused.
    Dct(DctError),
    /// A raw packet QP was refused.
    RawPacket(RawPacketError),
    /// A rule for packets was refused.
    Flow(FlowError),
    /// Queues that share packets by a hash were refused.
    Rss(RssError),
    /// A frame was not sent.
    EthernetSend(EthernetSendError),
    /// Frames were not received.
    EthernetReceive(EthernetReceiveError),
    /// Forwarding between two ports failed.
    Forward(ForwardError),
    /// A register of the card was not read or written.
    Register(RegisterError),
}

/// These are errors of the connection manager, too.
macro_rules! of_the_manager {
    ($($error:ty),* $(,)?) => {
        $(impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Self::Rdma(error.into())
            }
        })*
    };
}

of_the_manager!(
    BadWr,
    CommandError,
    CqError,
    CreateQpError,
    DeviceError,
    EthernetError,
    GidError,
    ModifyError,
    MrError,
    OutOfRange,
    PostError,
    SrqError,
    WcError,
);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.inner(), f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        // The error itself is shown already.
        self.inner().source()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;
    use std::string::ToString;

    /// Returns what a program's `main` would.
    fn fails(with: impl Into<Error>) -> Result<(), Error> {
        Err(with.into())
    }

    #[test]
    fn a_main_that_returns_it_prints_words() {
        let range = OutOfRange {
            offset: 60,
            len: 8,
            size: 64,
        };
        let error = fails(range).unwrap_err();
        // `Termination` prints it so.
        assert_eq!(format!("Error: {error:?}"), format!("Error: {range}"));
        assert_eq!(error, Error::Rdma(RdmaError::OutOfRange(range)));
        let timeout = fails(RdmaError::TimedOut).unwrap_err();
        assert_eq!(timeout.to_string(), RdmaError::TimedOut.to_string());
    }
}
