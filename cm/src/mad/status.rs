//! Codes that say why: reject reasons, APR and SIDR status, each with its text.

use core::fmt;

macro_rules! codes {
    ($(#[$doc:meta])* $name:ident($raw:ty) { $( $value:literal $constant:ident $text:literal; )* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub $raw);

        impl $name {
            $( #[doc = $text] pub const $constant: Self = Self($value); )*

            /// The IBTA's words for the code; `None` for a reserved one.
            pub const fn text(self) -> Option<&'static str> {
                match self.0 {
                    $( $value => Some($text), )*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.text() {
                    Some(text) => write!(f, "{} ({text})", self.0),
                    None => write!(f, "{} (reserved)", self.0),
                }
            }
        }
    };
}

codes! {
    /// Why a REJ was sent (IBTA volume 1, table 109).
    RejectReason(u16) {
        1 NO_QP "no QP available";
        2 NO_EEC "no end-to-end context available";
        3 NO_RESOURCES "no resources available";
        4 TIMEOUT "timeout";
        5 UNSUPPORTED_REQUEST "unsupported request";
        6 INVALID_COMM_ID "invalid communication ID";
        7 INVALID_COMM_INSTANCE "invalid communication instance";
        8 INVALID_SERVICE_ID "invalid service ID: no listener there";
        9 INVALID_TRANSPORT_TYPE "invalid transport service type";
        10 STALE_CONNECTION "stale connection";
        11 RDC_DOES_NOT_EXIST "reliable datagram channel does not exist";
        12 INVALID_GID "primary remote port GID rejected";
        13 INVALID_LID "primary remote port LID rejected";
        14 INVALID_SL "invalid primary service level";
        15 INVALID_TRAFFIC_CLASS "invalid primary traffic class";
        16 INVALID_HOP_LIMIT "invalid primary hop limit";
        17 INVALID_PACKET_RATE "invalid primary packet rate";
        18 INVALID_ALT_GID "alternate remote port GID rejected";
        19 INVALID_ALT_LID "alternate remote port LID rejected";
        20 INVALID_ALT_SL "invalid alternate service level";
        21 INVALID_ALT_TRAFFIC_CLASS "invalid alternate traffic class";
        22 INVALID_ALT_HOP_LIMIT "invalid alternate hop limit";
        23 INVALID_ALT_PACKET_RATE "invalid alternate packet rate";
        24 PORT_AND_CM_REDIRECT "port and CM redirection";
        25 PORT_REDIRECT "port redirection";
        26 INVALID_MTU "invalid path MTU";
        27 INSUFFICIENT_RESPONDER_RESOURCES "insufficient responder resources";
        28 CONSUMER_DEFINED "rejected by the consumer";
        29 INVALID_RNR_RETRY "invalid RNR retry count";
        30 DUPLICATE_LOCAL_COMM_ID "duplicate local communication ID";
        31 INVALID_CLASS_VERSION "invalid class version";
        32 INVALID_FLOW_LABEL "invalid primary flow label";
        33 INVALID_ALT_FLOW_LABEL "invalid alternate flow label";
        35 VENDOR_OPTION_NOT_SUPPORTED "vendor option not supported";
    }
}

codes! {
    /// The answer to a LAP (IBTA volume 1, table 116).
    AprStatus(u8) {
        0 SUCCESS "alternate path loaded";
        1 INVALID_COMM_ID "invalid communication ID";
        2 UNSUPPORTED "alternate paths are not supported";
        3 REJECTED "alternate path rejected";
        4 REDIRECT "redirected";
        5 IS_CURRENT "proposed path is the current one";
        6 INVALID_QPN "invalid QP or end-to-end context number";
        7 INVALID_LID "invalid LID";
        8 INVALID_GID "invalid GID";
        9 INVALID_FLOW_LABEL "invalid flow label";
        10 INVALID_TRAFFIC_CLASS "invalid traffic class";
        11 INVALID_HOP_LIMIT "invalid hop limit";
        12 INVALID_PACKET_RATE "invalid packet rate";
        13 INVALID_SL "invalid service level";
    }
}

codes! {
    /// The answer to a SIDR_REQ (IBTA volume 1, table 121).
    SidrStatus(u8) {
        0 SUCCESS "QP found";
        1 UNSUPPORTED_SERVICE "service ID not supported";
        2 REJECTED "rejected by the service";
        3 NO_QP "no QP available";
        4 REDIRECT "redirected";
        5 UNSUPPORTED_VERSION "version not supported";
    }
}

impl super::Rej<'_> {
    /// Why, with its text.
    pub const fn reason(&self) -> RejectReason {
        RejectReason(self.reason)
    }

    /// The additional information that counts.
    pub fn additional_info(&self) -> &[u8] {
        &self.info[..usize::from(self.info_len).min(self.info.len())]
    }
}
