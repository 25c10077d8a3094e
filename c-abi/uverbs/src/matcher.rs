//! The mask and the priority of a matcher, of which `matchers.rs` has rules.

use bareverbs_node::verbs::firmware_cmds::flow::FteMatchSetLyr24;

use crate::abi::matcher::*;
use crate::attrs::{Args, Result};

/// Length of the outer headers, with which masks and values begin.
const OUTER: usize = size_of::<FteMatchSetLyr24>();
/// `MLX5_MATCH_OUTER_HEADERS`: the bit of the outer headers in the parts that count.
const OUTER_COUNTS: u8 = 1 << 0;

/// The frames that a matcher's rules look at.
pub(crate) struct Matcher {
    pub(crate) mask: FteMatchSetLyr24,
    /// It looks at headers that the port's table does not know.
    pub(crate) is_unknown: bool,
    pub(crate) priority: u16,
}

/// The outer headers, zero behind what there is.
pub(crate) fn outer(bytes: &[u8]) -> FteMatchSetLyr24 {
    let mut set = FteMatchSetLyr24::ZERO;
    let len = bytes.len().min(OUTER);
    set.0[..len].copy_from_slice(&bytes[..len]);
    set
}

/// `MLX5_IB_METHOD_FLOW_MATCHER_CREATE`, without what it takes for its handle.
pub(crate) fn matcher(args: &Args) -> Result<Matcher> {
    let mask = args.bytes(MASK)?;
    let criteria = args.number(CRITERIA)? as u8;
    // `MLX5_IB_FLOW_TYPE_NORMAL`; rules of the other types have no place here.
    if args.element(TYPE)? != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    let priority = args.number(TYPE)? as u16;
    let table = match (args.has(TABLE), args.has(FLAGS)) {
        (true, true) => return Err(libc::EINVAL),
        (true, false) => args.number(TABLE)?,
        // `IB_FLOW_ATTR_FLAGS_EGRESS`.
        (false, _) => args.flags(FLAGS, 1 << 2)?,
    };
    match table {
        // `MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_RX`.
        0 => {}
        1..=4 => return Err(libc::EOPNOTSUPP),
        _ => return Err(libc::EINVAL),
    }
    let counts = criteria & OUTER_COUNTS != 0;
    let rest = mask.get(OUTER..).unwrap_or_default();
    Ok(Matcher {
        mask: match counts {
            true => outer(&mask),
            false => FteMatchSetLyr24::ZERO,
        },
        is_unknown: criteria & !OUTER_COUNTS != 0 && rest.iter().any(|byte| *byte != 0),
        priority,
    })
}
