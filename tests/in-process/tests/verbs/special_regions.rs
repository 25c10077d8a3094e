//! Regions that are not simply a piece of memory: null regions, zero-based ones, and those that the driver refuses.

use std::ptr::NonNull;

use bareverbs_core::{
    Access, LKey, MrError, MwBind, MwType, RKey, Rc, Remote, Sge, WcOpcode, WcStatus,
};
use connectx_model::Config as Card;
use connectx_model::link::rng::Rng;

use crate::lab::{ALL, CAP, SIGNALED, lab, lab_with, ok, pattern};

fn with_caps(
    change: impl Fn(&mut bareverbs_core::firmware_cmds::caps::HcaCap),
) -> impl Fn(Card) -> Card {
    move |mut card| {
        change(&mut card.general);
        change(&mut card.general_max);
        card
    }
}

/// A drawn list of pieces, some of them of the null region, as the place from which bytes are taken and to which they
/// are put: what must have moved is worked out on a byte array.
#[test]
fn a_null_region_gives_zeros_and_keeps_nothing() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        let null = lab.sides[0].pd.alloc_null_mr().expect("a null region");
        let mut random = Rng::new(16);
        for round in 0..200_u64 {
            a.fill(0, 8192, round);
            b.fill(0, 8192, round + 1000);
            let mut mine = pattern(8192, round);
            let mut theirs = pattern(8192, round + 1000);
            let reads = random.chance(500);
            let (mut list, mut at, mut moved) = (Vec::<Sge>::new(), 0, 0);
            for _ in 0..1 + random.below(CAP.max_send_sge) {
                let len = 1 + random.below(1500) as usize;
                if random.chance(500) {
                    list.push(null.sge(len as u32));
                    if !reads {
                        theirs[moved..moved + len].fill(0);
                    }
                } else {
                    at += random.below(100) as usize;
                    list.push(a.sge(at, len));
                    match reads {
                        true => mine[at..at + len].copy_from_slice(&theirs[moved..moved + len]),
                        false => theirs[moved..moved + len].copy_from_slice(&mine[at..at + len]),
                    }
                    at += len;
                }
                moved += len;
            }
            let remote = b.remote(0);
            let queue = a.qp.send_queue();
            if reads {
                queue.batch().read(round, SIGNALED, remote, &list).unwrap();
                ok(lab.wait(&mut a.cq), round, WcOpcode::RdmaRead);
            } else {
                queue
                    .batch()
                    .write(round, SIGNALED, remote, &list[..])
                    .unwrap();
                ok(lab.wait(&mut a.cq), round, WcOpcode::RdmaWrite);
            }
            for (end, wanted) in [(&a, mine), (&b, theirs)] {
                let mut found = vec![0; wanted.len()];
                end.buffer.copy_out(0, &mut found).unwrap();
                assert!(found == wanted, "round {round}: {list:?}");
            }
        }
        // Peers do not reach it.
        let remote = Remote {
            addr: 0,
            rkey: RKey(null.lkey().0),
        };
        let sge = b.sge(0, 8);
        let queue = b.qp.send_queue();
        queue.batch().write(1, SIGNALED, remote, sge).unwrap();
        assert_eq!(lab.wait(&mut b.cq).status, WcStatus::RemAccessErr);
    });
}

#[test]
fn a_device_without_null_regions_has_none() {
    lab_with(
        with_caps(|caps| {
            caps.set_dump_fill_mkey(false);
        }),
        |lab| {
            let refused = lab.sides[0].pd.alloc_null_mr().unwrap_err();
            assert!(matches!(refused, MrError::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().contains("dump_fill_mkey"), "{refused}");
            // Its device knows no such key either.
            let [mut a, b] = lab.pair::<Rc>();
            let (remote, sge) = (b.remote(0), Sge::new(0, 8, LKey(0x500)));
            let queue = a.qp.send_queue();
            queue.batch().write(1, SIGNALED, remote, sge).unwrap();
            assert_eq!(lab.wait(&mut a.cq).status, WcStatus::LocProtErr);
        },
    );
}

/// Peers name offsets, in the region and in a window.
#[test]
fn a_zero_based_region_is_named_by_offsets() {
    #![expect(unsafe_code)]
    lab(|lab| {
        let [mut a, mut b] = lab.pair::<Rc>();
        // UNSAFETY: the memory outlives its regions, and no reference to it is held while they exist.
        let mut memory = vec![0_u8; 4 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let page = NonNull::from(&mut memory[start..start + 2 * 4096]);
        let access = ALL | Access::ZERO_BASED;
        // SAFETY: as above.
        let mr = unsafe { lab.sides[0].pd.reg_mr(page, access) }.expect("registered");
        assert_eq!((mr.addr(), mr.len()), (0, 8192));
        b.fill(0, 100, 3);
        let sge = b.sge(0, 100);
        let rkey = mr.rkey();
        let queue = b.qp.send_queue();
        let remote = Remote { addr: 8092, rkey };
        queue.batch().write(1, SIGNALED, remote, sge).unwrap();
        ok(lab.wait(&mut b.cq), 1, WcOpcode::RdmaWrite);
        // The same through a window, whose offsets are its own.
        let window = lab.sides[0].pd.alloc_mw(MwType::Type1).expect("a window");
        let bind = MwBind {
            kind: MwType::Type1,
            rkey: window.rkey(),
            lkey: mr.lkey(),
            addr: 4096,
            len: 64,
            access: Access::REMOTE_WRITE | Access::ZERO_BASED,
        };
        a.qp.send_queue()
            .batch()
            .bind_mw(2, SIGNALED, &bind)
            .unwrap();
        ok(lab.wait(&mut a.cq), 2, WcOpcode::BindMw);
        let remote = Remote {
            addr: 0,
            rkey: window.rkey(),
        };
        let sge = b.sge(0, 64);
        b.qp.send_queue()
            .batch()
            .write(3, SIGNALED, remote, sge)
            .unwrap();
        ok(lab.wait(&mut b.cq), 3, WcOpcode::RdmaWrite);
        let remote = Remote {
            addr: 4096,
            rkey: window.rkey(),
        };
        b.qp.send_queue()
            .batch()
            .write(4, SIGNALED, remote, sge)
            .unwrap();
        assert_eq!(lab.wait(&mut b.cq).status, WcStatus::RemAccessErr);
        drop((window, mr));
        assert!(memory[start + 8092..start + 8192] == pattern(100, 3));
        assert!(memory[start + 4096..start + 4160] == pattern(100, 3)[..64]);

        let inside = NonNull::from(&mut memory[start + 16..start + 4096]);
        // SAFETY: as above.
        let refused = unsafe { lab.sides[0].pd.reg_mr(inside, access) }.unwrap_err();
        assert!(
            matches!(refused, MrError::IovaOffset { iova: 0, .. }),
            "{refused}"
        );
    });
}

#[test]
fn memory_on_demand_is_refused_by_the_name_of_the_capability() {
    for offered in [false, true] {
        lab_with(
            with_caps(move |caps| {
                caps.set_pg(offered);
            }),
            |lab| {
                let refused = lab.sides[0]
                    .pd
                    .alloc_buffer(64, ALL | Access::ON_DEMAND)
                    .unwrap_err();
                assert_eq!(refused, MrError::NoOnDemandPaging { offered });
                assert!(refused.to_string().contains("cmd_hca_cap.pg"), "{refused}");
            },
        );
    }
}
