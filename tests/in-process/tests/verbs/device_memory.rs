//! Memory on the device: copies by the host, work requests of both sides, and what is refused.

use bareverbs_core::firmware_cmds::status::Status;
use bareverbs_core::mr::OutOfRange;
use bareverbs_core::{
    Access, AllocDmAttr, Dm, MkeyInitAttr, MrError, QpCap, Rc, Remote, WcOpcode, WcStatus,
};
use connectx_model::Config as Card;
use connectx_model::link::rng::Rng;

use crate::lab::{ALL, CAP, Lab, SIGNALED, lab, lab_with, ok};
use crate::seam::Seam;

const ZERO_BASED: Access = ALL.union(Access::ZERO_BASED);

fn alloc<'d>(lab: &Lab<'d>, length: usize) -> Dm<'d, Seam> {
    let attr = AllocDmAttr {
        length,
        log_align_req: 0,
    };
    lab.sides[0].device.alloc_dm(attr).expect("device memory")
}

/// Drawn accesses by the host, the owner's and the peer's work requests, against a byte array; two memories, so that one that
/// reaches into the other is seen.
#[test]
fn drawn_accesses_do_what_a_byte_array_says() {
    lab(|lab| {
        let mut random = Rng::new(5);
        let [mut a, mut b] = lab.pair::<Rc>();
        let pd = &lab.sides[0].pd;
        let sizes = [4100, 6400];
        let dms = sizes.map(|size| alloc(lab, size));
        let mut arrays = sizes.map(|size| vec![0_u8; size]);
        for (dm, array) in dms.iter().zip(&arrays) {
            dm.copy_in(0, array).unwrap();
        }
        // Parts that do not start at the beginning.
        let parts = [(64_usize, 4000_usize), (1001, 5000)];
        let mrs = [0, 1].map(|n| {
            let (offset, len) = parts[n];
            pd.reg_dm_mr(&dms[n], offset, len, ZERO_BASED).unwrap()
        });
        let mut wire = vec![0; 1 << 16];
        b.buffer.copy_in(0, &wire).unwrap();
        for round in 0..400_u64 {
            let n = random.below(2) as usize;
            if random.chance(400) {
                let words = sizes[n] as u32 / 4;
                let at = random.below(words) as usize * 4;
                let len = random.below(words - at as u32 / 4 + 1).min(40) as usize * 4;
                let data: Vec<u8> = (0..len).map(|_| random.next_u32() as u8).collect();
                dms[n].copy_in(at, &data).unwrap();
                arrays[n][at..at + len].copy_from_slice(&data);
            } else {
                let (offset, size) = parts[n];
                let at = random.below(size as u32) as usize;
                let len = 1 + random.below((size - at) as u32) as usize;
                let place = offset + at;
                let other = random.below(1 << 15) as usize;
                let remote = Remote {
                    addr: at as u64,
                    rkey: mrs[n].rkey(),
                };
                let own = mrs[n].sge(at, len).unwrap();
                let (theirs, back) = (b.sge(other, len), b.remote(other));
                let into = random.chance(500);
                let wc = if random.chance(500) {
                    let mut batch = b.qp.send_queue().batch();
                    match into {
                        true => batch.write(round, SIGNALED, remote, theirs),
                        false => batch.read(round, SIGNALED, remote, &[theirs]),
                    }
                    .unwrap();
                    drop(batch);
                    lab.wait(&mut b.cq)
                } else {
                    let mut batch = a.qp.send_queue().batch();
                    match into {
                        true => batch.read(round, SIGNALED, back, &[own]),
                        false => batch.write(round, SIGNALED, back, own),
                    }
                    .unwrap();
                    drop(batch);
                    lab.wait(&mut a.cq)
                };
                assert_eq!(wc.status, WcStatus::Success, "round {round}");
                match into {
                    true => {
                        arrays[n][place..place + len].copy_from_slice(&wire[other..other + len])
                    }
                    false => {
                        wire[other..other + len].copy_from_slice(&arrays[n][place..place + len])
                    }
                }
            }
            for (dm, array) in dms.iter().zip(&arrays) {
                let mut found = vec![0; array.len()];
                dm.copy_out(0, &mut found).unwrap();
                assert!(&found == array, "round {round}");
            }
        }
        let mut found = vec![0; wire.len()];
        b.buffer.copy_out(0, &mut found).unwrap();
        assert!(found == wire);
    });
}

/// An atomic on device memory, and the memory as a piece of an indirect key.
#[test]
fn atomics_and_indirect_keys_reach_it() {
    let wide = QpCap {
        max_inline_data: MkeyInitAttr::space(4),
        ..CAP
    };
    lab(|lab| {
        let [mut a, mut b] = lab.pair_with::<Rc>(wide, &|_| {});
        let pd = &lab.sides[0].pd;
        let dm = alloc(lab, 64);
        dm.copy_in(0, &[0; 64]).unwrap();
        let mr = pd.reg_dm_mr(&dm, 0, 64, ZERO_BASED).unwrap();
        let remote = Remote {
            addr: 8,
            rkey: mr.rkey(),
        };
        let result = b.sge(0, 8);
        b.qp.send_queue()
            .batch()
            .fetch_add(1, SIGNALED, remote, 77, result)
            .unwrap();
        ok(lab.wait(&mut b.cq), 1, WcOpcode::FetchAdd);
        let mut found = [0; 64];
        dm.copy_out(0, &mut found).unwrap();
        assert_eq!(found[8..16], 77_u64.to_ne_bytes());
        let key = pd.create_mkey(MkeyInitAttr::klm(4)).unwrap();
        let pieces = [a.sge(0, 10), mr.sge(32, 12).unwrap(), a.sge(10, 10)];
        a.qp.send_queue()
            .batch()
            .mr_list(2, SIGNALED, &key, ALL, &pieces)
            .unwrap();
        ok(lab.wait(&mut a.cq), 2, WcOpcode::BindMw);
        b.fill(0, 32, 9);
        let remote = Remote {
            addr: 0,
            rkey: key.rkey(),
        };
        let from = b.sge(0, 32);
        b.qp.send_queue()
            .batch()
            .write(3, SIGNALED, remote, from)
            .unwrap();
        ok(lab.wait(&mut b.cq), 3, WcOpcode::RdmaWrite);
        dm.copy_out(0, &mut found).unwrap();
        assert_eq!(found[32..44], crate::lab::pattern(32, 9)[10..22]);
    });
}

#[test]
fn what_lies_outside_is_refused() {
    lab(|lab| {
        let (device, pd) = (lab.sides[0].device, &lab.sides[0].pd);
        let caps = device.query_device_memory().unwrap().expect("some");
        let limit = u64::from(caps.max_memic_size());
        let ask = |length, log_align_req| {
            device
                .alloc_dm(AllocDmAttr {
                    length,
                    log_align_req,
                })
                .map(|dm| dm.len())
        };
        assert_eq!(ask(0, 0), Err(MrError::Empty));
        let len = limit as usize + 1;
        assert_eq!(ask(len, 0), Err(MrError::TooLong { len, limit }));
        let len = usize::MAX;
        assert_eq!(ask(len, 0), Err(MrError::TooLong { len, limit }));
        // The device counts alignments from 64 bytes on.
        let most = caps.log_max_memic_addr_alignment() + 6;
        let refused = MrError::Size {
            field: "log_align_req",
            asked: u64::from(most) + 1,
            limit: most.into(),
        };
        assert_eq!(ask(64, most + 1), Err(refused));
        for log in 0..=most {
            let log_align_req = log;
            match device.alloc_dm(AllocDmAttr {
                length: 100,
                log_align_req,
            }) {
                Ok(dm) => assert_eq!(dm.len(), 100),
                // Such a place need not be in its part of the BAR.
                Err(error) => assert!(log > 12, "{log}: {error}"),
            }
        }
        // All of it, and no more.
        let all = alloc(lab, limit as usize);
        assert!(ask(64, 0).is_err());
        drop(all);

        let dm = alloc(lab, 128);
        let range = |offset, len| OutOfRange {
            offset,
            len,
            size: 128,
        };
        for (offset, len) in [(2, 4), (0, 2), (128, 4), (124, 8), (usize::MAX - 3, 8)] {
            let refused = dm.copy_in(offset, &vec![0; len]);
            assert_eq!(refused, Err(range(offset, len)));
            let refused = dm.copy_out(offset, &mut vec![0; len]);
            assert_eq!(refused, Err(range(offset, len)));
        }
        let reg = |offset, len, access| pd.reg_dm_mr(&dm, offset, len, access).map(|mr| mr.len());
        assert_eq!(reg(0, 128, ALL), Err(MrError::NotZeroBased));
        let outside = |offset, len| Err(MrError::OutsideDm(range(offset, len)));
        assert_eq!(reg(1, 128, ZERO_BASED), outside(1, 128));
        assert_eq!(reg(usize::MAX, 2, ZERO_BASED), outside(usize::MAX, 2));
        assert_eq!(reg(128, 0, ZERO_BASED), Ok(0));
        // The peer does not reach beyond the registered part, and not what it may not write.
        for (len, access, size) in [
            (64, ZERO_BASED, 65),
            (64, Access::ZERO_BASED | Access::REMOTE_READ, 64),
        ] {
            let mr = pd.reg_dm_mr(&dm, 0, len, access).unwrap();
            let [_a, mut b] = lab.pair::<Rc>();
            let remote = Remote {
                addr: 0,
                rkey: mr.rkey(),
            };
            let from = b.sge(0, size);
            b.qp.send_queue()
                .batch()
                .write(1, SIGNALED, remote, from)
                .unwrap();
            assert_eq!(lab.wait(&mut b.cq).status, WcStatus::RemAccessErr);
        }
    });
}

/// Functions of a card share its memory: where another one has something, the firmware has nothing, and the next place is
/// tried (`mlx5_cmd_alloc_memic`). What is freed can be had again.
#[test]
fn places_that_others_hold_are_passed_over() {
    let card = |mut card: Card| {
        card.memic_held = 5;
        card
    };
    lab_with(card, |lab| {
        let device = lab.sides[0].device;
        let caps = device.query_device_memory().unwrap().expect("some");
        let pages = caps.memic_bar_size() as usize / 4096;
        let ask = |length| {
            device.alloc_dm(AllocDmAttr {
                length,
                log_align_req: 0,
            })
        };
        for _ in 0..2 {
            let mut all: Vec<_> = (5..pages).map(|_| ask(64).unwrap()).collect();
            for (n, dm) in all.iter().enumerate() {
                dm.copy_in(0, &[n as u8; 64]).unwrap();
            }
            for (n, dm) in all.iter().enumerate() {
                let mut found = [0; 64];
                dm.copy_out(0, &mut found).unwrap();
                assert_eq!(found, [n as u8; 64]);
            }
            let refused = ask(64).unwrap_err();
            assert!(
                matches!(refused, MrError::Command(error) if error.is_status(Status::NoResources)),
                "{refused}"
            );
            // One free page in the middle is not enough for two.
            all.swap_remove(20);
            assert!(ask(4097).is_err());
            all.push(ask(4096).unwrap());
        }
    });
}

#[test]
fn a_full_memory_is_said_to_be_full() {
    lab(|lab| {
        let device = lab.sides[0].device;
        let caps = device.query_device_memory().unwrap().expect("some");
        let all: Vec<_> = (0..caps.memic_bar_size() / 4096)
            .map(|_| alloc(lab, 64))
            .collect();
        let attr = AllocDmAttr {
            length: 64,
            log_align_req: 0,
        };
        assert_eq!(
            device.alloc_dm(attr).map(|dm| dm.len()),
            Err(MrError::DmExhausted)
        );
        drop(all);
        alloc(lab, 64);
    });
}

#[test]
fn devices_without_it_have_none() {
    let without: [fn(&mut Card); 2] = [
        |card| {
            for caps in [&mut card.general, &mut card.general_max] {
                caps.set_device_memory(false);
            }
        },
        |card| {
            card.device_memory.set_memic(false);
        },
    ];
    for change in without {
        let card = move |mut card: Card| {
            change(&mut card);
            card
        };
        lab_with(card, |lab| {
            let attr = AllocDmAttr {
                length: 64,
                log_align_req: 0,
            };
            let refused = lab.sides[0].device.alloc_dm(attr).unwrap_err();
            assert!(matches!(refused, MrError::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().contains("device_memory"), "{refused}");
        });
    }
    // A device that shows it where the platform does not reach.
    let card = |mut card: Card| {
        card.device_memory.set_memic_bar_start_addr(card.bar_size);
        card
    };
    lab_with(card, |lab| {
        let attr = AllocDmAttr {
            length: 64,
            log_align_req: 0,
        };
        let refused = lab.sides[0].device.alloc_dm(attr).unwrap_err();
        assert!(matches!(refused, MrError::DmOutsideBar { .. }), "{refused}");
    });
}
