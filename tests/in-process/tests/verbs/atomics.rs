//! Cards without atomics whose results are in the host's byte order.

use bareverbs_core::{
    Access, ModifyError, MrError, PostError, QpAttr, QpAttrMask, QpState, Rc, SendFlags,
};
use connectx_model::Config as Card;

use crate::lab::{ALL, CAP, lab_with};

/// It works on big-endian numbers only.
fn without_endianness_mode(mut card: Card) -> Card {
    card.atomic
        .set_supported_atomic_req_8B_endianness_mode_1(false);
    card
}

fn without_fetch_and_add(mut card: Card) -> Card {
    card.atomic.set_atomic_operations(1);
    card
}

fn without_8_bytes(mut card: Card) -> Card {
    card.atomic.set_atomic_size_qp(4);
    card
}

fn without_atomics(mut card: Card) -> Card {
    for caps in [&mut card.general, &mut card.general_max] {
        caps.set_atomic(false);
    }
    card
}

/// Neither posted nor granted to the other side: the sums would come back with their bytes swapped.
#[test]
fn atomics_in_another_byte_order_are_refused_by_name() {
    for card in [
        without_endianness_mode,
        without_fetch_and_add,
        without_8_bytes,
        without_atomics,
    ] {
        lab_with(card, |lab| {
            assert!(!lab.sides[0].device.capabilities().has_atomics());
            let pd = &lab.sides[0].pd;
            assert_eq!(
                pd.alloc_buffer(64, ALL).map(drop).unwrap_err(),
                MrError::NoAtomics
            );
            let mut ends = [lab.end::<Rc>(0, CAP), lab.end::<Rc>(1, CAP)];
            lab.connect(&mut ends, &|_| {});
            let [end, other] = &mut ends;
            let remote = other.remote(0);
            let sge = end.sge(0, 8);
            let flags = SendFlags::SIGNALED;
            let mut batch = end.qp.send_queue().batch();
            let refused = [
                batch.fetch_add(1, flags, remote, 1, sge),
                batch.compare_swap(2, flags, remote, 0, 1, sge),
            ];
            assert_eq!(refused, [Err(PostError::NoAtomics); 2]);
            drop(batch);
            let granting = QpAttr {
                qp_state: QpState::Rts,
                qp_access_flags: Access::REMOTE_ATOMIC,
                ..QpAttr::DEFAULT
            };
            let attribute = QpAttrMask::ACCESS_FLAGS;
            assert_eq!(
                end.qp.modify(&granting, attribute),
                Err(ModifyError::Unsupported { attribute })
            );
        });
    }
}
