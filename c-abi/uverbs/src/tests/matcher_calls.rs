//! Matchers and rules of them: errors as `mlx5_ib`'s `fs.c` has them.

use libc::c_int;
use zerocopy::{FromZeros, IntoBytes};

use super::program::{attr, method, plain};
use crate::abi::*;
use crate::raw_abi::ExDestroyIn;

/// `MLX5_MATCH_OUTER_HEADERS` and `MLX5_MATCH_MISC_PARAMETERS`.
const OUTER: u64 = 1 << 0;
const MISC: u64 = 1 << 1;

/// The parts of a matcher.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    mask: &'a [u8],
    criteria: u64,
    kind: u16,
    priority: u64,
    /// Type of the table, or flags by the other attribute.
    table: (u16, u64),
}

fn create(fd: c_int, wanted: Wanted<'_>) -> Result<u32, c_int> {
    let mut kind = attr(matcher::TYPE, 2, wanted.priority);
    kind.element = wanted.kind;
    let attrs = [
        attr(matcher::HANDLE, 0, 0),
        attr(
            matcher::MASK,
            wanted.mask.len(),
            wanted.mask.as_ptr() as u64,
        ),
        kind,
        attr(matcher::CRITERIA, 1, wanted.criteria),
        attr(wanted.table.0, 8, wanted.table.1),
    ];
    let made = method(fd, (matcher::OBJECT, matcher::CREATE), attrs)?;
    Ok(made[0].data as u32)
}

/// Makes a rule, with one attribute more.
fn rule(fd: c_int, by: u32, value: &[u8], more: (u16, u64)) -> Result<u32, c_int> {
    let len = match more.0 {
        matcher::RULE_FLAGS => 4,
        _ => 0,
    };
    let attrs = [
        attr(matcher::HANDLE, 0, 0),
        attr(matcher::VALUE, value.len(), value.as_ptr() as u64),
        attr(matcher::BY, 0, by.into()),
        attr(more.0, len, more.1),
    ];
    let made = method(fd, (matcher::RULE, matcher::CREATE), attrs)?;
    Ok(made[0].data as u32)
}

fn destroy(fd: c_int, object: u16, handle: u32) -> Result<(), c_int> {
    let attrs = [attr(matcher::HANDLE, 0, handle.into())];
    method(fd, (object, matcher::DESTROY), attrs).map(drop)
}

/// `qp` receives frames, and `other` is an object that does not.
pub(super) fn rules(fd: c_int, qp: u32, other: u32) {
    let mask = [0xff; 64];
    let source = &mask[..16];
    let wanted = Wanted {
        mask: source,
        criteria: OUTER,
        kind: 0,
        priority: 3,
        table: (matcher::TABLE, 0),
    };
    let table = |id, value| Wanted {
        table: (id, value),
        ..wanted
    };
    assert_eq!(create(fd, table(matcher::TABLE, 7)), Err(libc::EINVAL));
    assert_eq!(create(fd, table(matcher::TABLE, 1)), Err(libc::EOPNOTSUPP));
    assert_eq!(create(fd, table(matcher::FLAGS, 1)), Err(libc::EINVAL));
    assert_eq!(create(fd, table(matcher::FLAGS, 4)), Err(libc::EOPNOTSUPP));
    let sniffer = Wanted { kind: 1, ..wanted };
    assert_eq!(create(fd, sniffer), Err(libc::EOPNOTSUPP));

    let by = create(fd, wanted).unwrap();
    let value = [2; 16];
    let to = |id, handle: u32| rule(fd, by, &value, (id, handle.into()));
    assert_eq!(to(matcher::TO_QP, other + 1000), Err(libc::ENOENT));
    assert_eq!(to(matcher::TO_QP, other), Err(libc::EINVAL));
    assert_eq!(to(matcher::TO_DEVX, qp), Err(libc::EINVAL));
    let flags = |flags| rule(fd, by, &value, (matcher::RULE_FLAGS, flags));
    assert_eq!(flags(0), Err(libc::EINVAL));
    assert_eq!(flags(matcher::DEFAULT_MISS), Err(libc::EOPNOTSUPP));
    assert_eq!(flags(4), Err(libc::EINVAL));
    assert_eq!(
        rule(fd, qp, &value, (matcher::TO_QP, qp.into())),
        Err(libc::EINVAL)
    );

    // A rule keeps its matcher and its QP, and goes by either way.
    let first = to(matcher::TO_QP, qp).unwrap();
    let second = flags(matcher::DROP).unwrap();
    assert_eq!(destroy(fd, matcher::OBJECT, by), Err(libc::EBUSY));
    let mut busy = DestroyIn::new_zeroed();
    busy.handle = qp;
    let gone = plain::<u32>(fd, command::DESTROY_QP, &busy);
    assert_eq!(gone, Err(libc::EBUSY));
    assert_eq!(destroy(fd, matcher::RULE, first), Ok(()));
    assert_eq!(destroy(fd, matcher::RULE, first), Err(libc::ENOENT));
    let second = ExDestroyIn {
        comp_mask: 0,
        handle: second,
    };
    plain::<[u32; 4]>(fd, command::DESTROY_FLOW, &second).unwrap();
    assert_eq!(destroy(fd, matcher::OBJECT, by), Ok(()));

    // Other headers than the outer ones count if they are looked at.
    let mut long = [0; 128];
    long[64] = 1;
    let misc = |criteria| {
        let by = create(
            fd,
            Wanted {
                mask: &long,
                criteria,
                ..wanted
            },
        )
        .unwrap();
        let made = rule(fd, by, long.as_bytes(), (matcher::TO_QP, qp.into()));
        if let Ok(made) = made {
            destroy(fd, matcher::RULE, made).unwrap();
        }
        destroy(fd, matcher::OBJECT, by).unwrap();
        made.err()
    };
    assert_eq!(misc(MISC), Some(libc::EOPNOTSUPP));
    assert_eq!(misc(0), None);
    let last = create(
        fd,
        Wanted {
            priority: 300,
            ..wanted
        },
    )
    .unwrap();
    let to_qp = (matcher::TO_QP, qp.into());
    assert_eq!(rule(fd, last, &value, to_qp), Err(libc::ENOMEM));
    assert_eq!(destroy(fd, matcher::OBJECT, last), Ok(()));
}
