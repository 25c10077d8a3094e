//! The language of the scripts, as language.c has it: the words of a line, and the numbers behind names.

/// The reason why a call has no counterpart in Rust's API.
pub(super) type Left = &'static str;

pub(super) const NO_VALUE: Left = "a value that Rust's types do not have";

/// A line, without its number.
pub(super) struct Line<'l> {
    /// The name of what it makes.
    pub(super) name: Option<&'l str>,
    pub(super) call: &'l str,
    words: Vec<&'l str>,
}

impl<'l> Line<'l> {
    pub(super) fn read(line: &'l str) -> Self {
        let words: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let (name, words) = match words[..] {
            [name, "=", ..] => (Some(name), &words[2..]),
            _ => (None, &words[..]),
        };
        let (call, words) = words.split_first().unwrap_or((&"", &[]));
        Self {
            name,
            call,
            words: words.to_vec(),
        }
    }

    /// The argument at a place, of those without a key.
    pub(super) fn at(&self, place: usize) -> Result<&'l str, Left> {
        let mut words = self.words.iter().filter(|word| !word.contains('='));
        words.nth(place).copied().ok_or("too few arguments")
    }

    pub(super) fn key(&self, name: &str) -> Option<&'l str> {
        let mut words = self.words.iter().filter_map(|word| word.split_once('='));
        words.find_map(|(key, value)| (key == name).then_some(value))
    }

    /// The number of a key, or what it is without.
    pub(super) fn number<T: TryFrom<i64>>(&self, name: &str, otherwise: T) -> Result<T, Left> {
        match self.key(name) {
            Some(word) => narrow(number(word)?),
            None => Ok(otherwise),
        }
    }

    pub(super) fn number_at<T: TryFrom<i64>>(&self, place: usize) -> Result<T, Left> {
        narrow(number(self.at(place)?)?)
    }

    /// Refuses a line that has one of these keys.
    pub(super) fn without(&self, keys: &[&str]) -> Result<(), Left> {
        match keys.iter().any(|name| self.key(name).is_some()) {
            true => Err("an argument that Rust's call does not have"),
            false => Ok(()),
        }
    }
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T, Left> {
    T::try_from(number).map_err(|_| NO_VALUE)
}

/// The value of terms joined by `|` or `+`.
pub(super) fn number(word: &str) -> Result<i64, Left> {
    if let Some(word) = word.strip_prefix('-') {
        return Ok(-number(word)?);
    }
    word.split(['|', '+']).try_fold(0, |sum, term| {
        let known = || NUMBERS.iter().find(|(name, _)| *name == term);
        let number = match term.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => term.parse().ok(),
        };
        let number = number.or_else(|| known().map(|(_, number)| *number));
        Ok(sum + number.ok_or("a number that only C has a name for")?)
    })
}

/// Constants of the headers, without their IBV_.
const NUMBERS: &[(&str, i64)] = &[
    ("null", 0),
    ("QPT_RC", 2),
    ("QPT_UC", 3),
    ("QPT_UD", 4),
    ("QPT_XRC_SEND", 9),
    ("QPT_XRC_RECV", 10),
    ("QPS_RESET", 0),
    ("QPS_INIT", 1),
    ("QPS_RTR", 2),
    ("QPS_RTS", 3),
    ("QPS_SQD", 4),
    ("QPS_SQE", 5),
    ("QPS_ERR", 6),
    ("MTU_256", 1),
    ("MTU_512", 2),
    ("MTU_1024", 3),
    ("MTU_2048", 4),
    ("MTU_4096", 5),
    ("ACCESS_LOCAL_WRITE", 1),
    ("ACCESS_REMOTE_WRITE", 2),
    ("ACCESS_REMOTE_READ", 4),
    ("ACCESS_REMOTE_ATOMIC", 8),
    ("ACCESS_MW_BIND", 16),
    ("ACCESS_ZERO_BASED", 32),
    ("ACCESS_ON_DEMAND", 64),
    ("ACCESS_RELAXED_ORDERING", 1 << 20),
    ("PROT_READ", 1),
    ("PROT_WRITE", 2),
    ("SRQ_LIMIT", 2),
    ("SRQT_BASIC", 0),
    ("SRQT_XRC", 1),
    ("MW_TYPE_1", 1),
    ("MW_TYPE_2", 2),
    ("WR_RDMA_WRITE", 0),
    ("WR_RDMA_WRITE_WITH_IMM", 1),
    ("WR_SEND", 2),
    ("WR_SEND_WITH_IMM", 3),
    ("WR_RDMA_READ", 4),
    ("WR_ATOMIC_CMP_AND_SWP", 5),
    ("WR_ATOMIC_FETCH_AND_ADD", 6),
    ("WR_LOCAL_INV", 7),
    ("WR_BIND_MW", 8),
    ("WR_SEND_WITH_INV", 9),
    ("SEND_FENCE", 1),
    ("SEND_SIGNALED", 2),
    ("SEND_SOLICITED", 4),
    ("SEND_INLINE", 8),
    ("QP_STATE", 1),
    ("MIG_MIGRATED", 0),
    ("MIG_REARM", 1),
    ("MIG_ARMED", 2),
    ("RDMA_PS_IPOIB", 0x0002),
    ("RDMA_PS_TCP", 0x0106),
    ("RDMA_PS_UDP", 0x0111),
    ("RDMA_PS_IB", 0x013f),
    ("RDMA_OPTION_ID", 0),
    ("RDMA_OPTION_ID_TOS", 0),
    ("RDMA_OPTION_ID_REUSEADDR", 1),
    ("RDMA_OPTION_ID_AFONLY", 2),
    ("RDMA_OPTION_ID_ACK_TIMEOUT", 3),
];

/// The name of an errno.
pub(super) fn error_name(number: i32) -> &'static str {
    use bareverbs_cm::rdma::errno::*;
    match number {
        EPERM => "EPERM",
        ENOENT => "ENOENT",
        EIO => "EIO",
        EAGAIN => "EAGAIN",
        ENOMEM => "ENOMEM",
        EBUSY => "EBUSY",
        ENODEV => "ENODEV",
        EINVAL => "EINVAL",
        ENOSYS => "ENOSYS",
        EPROTONOSUPPORT => "EPROTONOSUPPORT",
        EOPNOTSUPP => "EOPNOTSUPP",
        EAFNOSUPPORT => "EAFNOSUPPORT",
        EADDRINUSE => "EADDRINUSE",
        EADDRNOTAVAIL => "EADDRNOTAVAIL",
        ENETUNREACH => "ENETUNREACH",
        EISCONN => "EISCONN",
        ETIMEDOUT => "ETIMEDOUT",
        ECONNREFUSED => "ECONNREFUSED",
        EHOSTUNREACH => "EHOSTUNREACH",
        _ => "no-such-error",
    }
}
