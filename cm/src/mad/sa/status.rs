//! The result of a question to subnet administration (IBTA volume 1, chapters 13.4.7 and 15.2.2).

use core::fmt;

/// Status of an answer: bits that all classes share, and a code of the class in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SaStatus(pub u16);

/// The code of the shared bits.
const CODE: u16 = 0x1c;

impl SaStatus {
    /// The request succeeded.
    pub const SUCCESS: Self = Self(0);
    /// Too much to do: ask again later.
    pub const BUSY: Self = Self(0x0001);
    /// Another port answers such questions.
    pub const REDIRECT: Self = Self(0x0002);
    /// The class or its version is not supported.
    pub const BAD_VERSION: Self = Self(0x0004);
    /// The method is not supported.
    pub const METHOD: Self = Self(0x0008);
    /// The method is not supported with this attribute.
    pub const METHOD_AND_ATTRIBUTE: Self = Self(0x000c);
    /// A value in the attribute or its modifier is not valid.
    pub const INVALID_VALUE: Self = Self(0x001c);
    /// Too little memory.
    pub const NO_RESOURCES: Self = Self(0x0100);
    /// The question makes no sense.
    pub const REQUEST_INVALID: Self = Self(0x0200);
    /// No record matches.
    pub const NO_RECORDS: Self = Self(0x0300);
    /// More than one record fits where one was asked for.
    pub const TOO_MANY_RECORDS: Self = Self(0x0400);
    /// A GID is not valid.
    pub const INVALID_GID: Self = Self(0x0500);
    /// Too few components to go by.
    pub const INSUFFICIENT_COMPONENTS: Self = Self(0x0600);
    /// The requester has no right to this.
    pub const DENIED: Self = Self(0x0700);

    /// Returns `true` if it worked.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }

    /// Returns `true` if the question may be asked again later.
    pub const fn is_busy(self) -> bool {
        self.0 & Self::BUSY.0 != 0
    }

    /// The meaning of the status: of the class's code, or else of the code that all classes share.
    pub const fn text(self) -> &'static str {
        match self.0 >> 8 {
            0 => {}
            1 => return "no resources",
            2 => return "invalid request",
            3 => return "no records",
            4 => return "too many records",
            5 => return "invalid GID",
            6 => return "insufficient components",
            7 => return "denied",
            _ => return "reserved",
        }
        match self.0 & CODE {
            _ if self.is_busy() => "busy",
            _ if self.0 & Self::REDIRECT.0 != 0 => "redirection",
            0 if self.is_success() => "success",
            0x04 => "version not supported",
            0x08 => "method not supported",
            0x0c => "method not supported with this attribute",
            0x1c => "invalid value",
            _ => "reserved",
        }
    }
}

impl fmt::Display for SaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x} ({})", self.0, self.text())
    }
}
