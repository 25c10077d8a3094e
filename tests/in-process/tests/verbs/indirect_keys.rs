//! Indirect memory keys: lists and strided patterns over regions and over each other, drawn, against an array that says for
//! each byte of a key where it lies; and what must fail.

use bareverbs_core::{
    Access, Buffer, LKey, Mkey, MkeyEntries, MkeyInitAttr, MrError, MrInterleaved, PostError,
    QpCap, RKey, Rc, Remote, SendFlags, Sge, WcOpcode, WcStatus,
};
use connectx_model::Config as Card;
use connectx_model::link::rng::Rng;

use crate::lab::{ALL, CAP, End, Lab, SIGNALED, lab, lab_with, ok};
use crate::seam::Seam;

/// Entries of the longest list within a work request here.
const ENTRIES: u32 = 12;
/// Work requests that may take all of this as inline data.
const WIDE: QpCap = QpCap {
    max_inline_data: MkeyInitAttr::space(ENTRIES),
    ..CAP
};
const SIZE: usize = 1 << 16;
const OPEN: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ);

/// A key with the place in the buffer of each of its bytes.
struct Drawn<'d> {
    mkey: Option<Mkey<'d, Seam>>,
    lkey: LKey,
    /// The first byte's address.
    addr: u64,
    places: Vec<usize>,
    depth: u8,
}

/// The parts that a key is made of.
#[derive(Debug)]
enum Recipe {
    List(Vec<Sge>),
    InMemory(Vec<Sge>),
    Ksm(u8, Vec<Sge>),
    Interleaved(u32, Vec<MrInterleaved>),
}

/// Draws a key's list over the keys that there are, and works out where its bytes lie.
fn draw(random: &mut Rng, known: &[Drawn<'_>], limit: u8) -> (Recipe, Vec<usize>, u8) {
    let usable: Vec<_> = known
        .iter()
        .filter(|key| key.depth < limit && key.places.len() >= 8192)
        .collect();
    let mut places = Vec::new();
    let mut depth = 0;
    let mut pick = |random: &mut Rng| {
        let key = usable[random.below(usable.len() as u32) as usize];
        depth = depth.max(key.depth);
        key
    };
    let mut piece = |random: &mut Rng, len: usize| {
        let key = pick(random);
        let at = random.below((key.places.len() - len) as u32 + 1) as usize;
        places.extend_from_slice(&key.places[at..at + len]);
        Sge::new(key.addr + at as u64, len as u32, key.lkey)
    };
    let recipe = match random.below(4) {
        0 => {
            let count = 1 + random.below(ENTRIES);
            let len = |random: &mut Rng| 1 + random.below(3000) as usize;
            let list = (0..count).map(|_| {
                let len = len(random);
                piece(random, len)
            });
            Recipe::List(list.collect())
        }
        1 => {
            let count = 1 + random.below(60);
            let list = (0..count).map(|_| {
                let len = 1 + random.below(700) as usize;
                piece(random, len)
            });
            Recipe::InMemory(list.collect())
        }
        2 => {
            let count = 1 + random.below(6);
            let list = (0..count).map(|_| piece(random, 4096));
            Recipe::Ksm(12, list.collect())
        }
        _ => {
            let repeat = 1 + random.below(8);
            let count = 1 + random.below(ENTRIES - 1);
            let mut from = Vec::new();
            let list: Vec<_> = (0..count)
                .map(|_| {
                    let key = pick(random);
                    let stride = 1 + random.below(key.places.len() as u32 / repeat - 1).min(900);
                    let bytes = 1 + random.below(stride);
                    let span = (stride * (repeat - 1) + bytes) as usize;
                    let at = random.below((key.places.len() - span) as u32 + 1) as usize;
                    from.push((key, at, bytes as usize, stride as usize));
                    MrInterleaved {
                        addr: key.addr + at as u64,
                        bytes_count: bytes as u16,
                        bytes_skip: (stride - bytes) as u16,
                        lkey: key.lkey,
                    }
                })
                .collect();
            for round in 0..repeat as usize {
                for &(key, at, bytes, stride) in &from {
                    let start = at + round * stride;
                    places.extend_from_slice(&key.places[start..start + bytes]);
                }
            }
            Recipe::Interleaved(repeat, list)
        }
    };
    (recipe, places, depth + 1)
}

/// Makes a key after a recipe.
fn open<'d>(lab: &Lab<'d>, a: &mut End<'d, Rc>, recipe: &Recipe, access: Access) -> Mkey<'d, Seam> {
    let pd = &lab.sides[0].pd;
    let mut memory = pd.alloc_mr_list(64).expect("memory for a list");
    let (entries, kind) = match recipe {
        Recipe::List(list) | Recipe::InMemory(list) => (list.len(), MkeyEntries::Klm),
        Recipe::Ksm(log_size, list) => (
            list.len(),
            MkeyEntries::Ksm {
                log_size: *log_size,
            },
        ),
        Recipe::Interleaved(_, list) => (list.len() + 1, MkeyEntries::Klm),
    };
    let mkey = pd
        .create_mkey(MkeyInitAttr {
            entries: kind,
            ..MkeyInitAttr::klm(entries as u32)
        })
        .expect("a key");
    let mut batch = a.qp.send_queue().batch();
    match recipe {
        Recipe::List(list) | Recipe::Ksm(_, list) => {
            batch.mr_list(7, SIGNALED, &mkey, access, list)
        }
        Recipe::InMemory(list) => {
            memory.set(list).unwrap();
            batch.mr_list_in_memory(7, SIGNALED, &mkey, access, &memory)
        }
        Recipe::Interleaved(repeat, list) => {
            batch.mr_interleaved(7, SIGNALED, &mkey, access, *repeat, list)
        }
    }
    .expect("posted");
    drop(batch);
    ok(lab.wait(&mut a.cq), 7, WcOpcode::BindMw);
    mkey
}

fn plain(buffer: &Buffer<'_, Seam>) -> Drawn<'static> {
    Drawn {
        mkey: None,
        lkey: buffer.lkey(),
        addr: buffer.addr(),
        places: (0..SIZE).collect(),
        depth: 0,
    }
}

fn contents(buffer: &Buffer<'_, Seam>) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    buffer.copy_out(0, &mut bytes).unwrap();
    bytes
}

/// Trees of keys, and reads and writes through them by the peer and by the owner's own work requests, whose effect on a byte
/// array was worked out from the places.
#[test]
fn drawn_trees_of_keys_lead_where_the_array_says() {
    for seed in 0..12 {
        lab(|lab| {
            let mut random = Rng::new(seed);
            let [mut a, mut b] = lab.pair_with::<Rc>(WIDE, &|_| {});
            let limit = lab.sides[0].device.capabilities().max_indirection();
            assert_eq!(limit, 4);
            let mut known = vec![plain(&a.buffer)];
            for _ in 0..12 {
                let (recipe, places, depth) = draw(&mut random, &known, limit);
                let mkey = open(lab, &mut a, &recipe, OPEN);
                known.push(Drawn {
                    lkey: mkey.lkey(),
                    addr: 0,
                    mkey: Some(mkey),
                    places,
                    depth,
                });
            }
            a.fill(0, SIZE, seed);
            b.fill(0, SIZE, seed + 100);
            let (mut mine, mut theirs) = (contents(&a.buffer), contents(&b.buffer));
            for round in 0..120_u64 {
                let key = &known[random.below(known.len() as u32) as usize];
                let most = key.places.len().min(9000) as u32;
                let len = 1 + random.below(most) as usize;
                let at = random.below((key.places.len() - len) as u32 + 1) as usize;
                let places = &key.places[at..at + len];
                let there = random.below((SIZE - len) as u32) as usize;
                let addr = key.addr + at as u64;
                let remote = Remote {
                    addr,
                    rkey: RKey(key.lkey.0),
                };
                let sge = Sge::new(addr, len as u32, key.lkey);
                let (other, back) = (b.sge(there, len), b.remote(there));
                let into_key = random.chance(500);
                if random.chance(500) {
                    let mut batch = b.qp.send_queue().batch();
                    match into_key {
                        true => batch.write(round, SIGNALED, remote, other),
                        false => batch.read(round, SIGNALED, remote, &[other]),
                    }
                    .unwrap();
                    drop(batch);
                    let done = lab.wait(&mut b.cq);
                    assert_eq!(done.status, WcStatus::Success, "seed {seed} round {round}");
                } else {
                    let mut batch = a.qp.send_queue().batch();
                    match into_key {
                        true => batch.read(round, SIGNALED, back, &[sge]),
                        false => batch.write(round, SIGNALED, back, sge),
                    }
                    .unwrap();
                    drop(batch);
                    let done = lab.wait(&mut a.cq);
                    assert_eq!(done.status, WcStatus::Success, "seed {seed} round {round}");
                }
                for (index, &place) in places.iter().enumerate() {
                    match into_key {
                        true => mine[place] = theirs[there + index],
                        false => theirs[there + index] = mine[place],
                    }
                }
                assert!(contents(&a.buffer) == mine, "seed {seed} round {round}");
                assert!(contents(&b.buffer) == theirs, "seed {seed} round {round}");
            }
            // One byte beyond the end, from each side; and a key that has become too deep.
            for key in &known[1..] {
                let [mut a, mut b] = lab.pair::<Rc>();
                let addr = random.below(key.places.len() as u32) as u64;
                let len = key.places.len() as u32 + 1 - addr as u32;
                let remote = Remote {
                    addr,
                    rkey: RKey(key.lkey.0),
                };
                let sge = Sge::new(addr, len, key.lkey);
                if len as usize <= SIZE {
                    let from = b.sge(0, len as usize);
                    let back = b.remote(0);
                    b.qp.send_queue()
                        .batch()
                        .write(1, SIGNALED, remote, from)
                        .unwrap();
                    let status = lab.wait(&mut b.cq).status;
                    assert_eq!(status, WcStatus::RemAccessErr, "seed {seed}");
                    let [mut a2, _b2] = lab.pair::<Rc>();
                    let _ = &mut a;
                    a2.qp
                        .send_queue()
                        .batch()
                        .write(1, SIGNALED, back, sge)
                        .unwrap();
                    let status = lab.wait(&mut a2.cq).status;
                    assert_eq!(status, WcStatus::LocProtErr, "seed {seed}");
                }
            }
            while let Some(key) = known.pop() {
                drop(key.mkey);
            }
        });
    }
}

/// A chain of keys, each over the one before: as deep as the device says, and one deeper.
#[test]
fn keys_nest_as_deep_as_the_device_says() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let limit = lab.sides[0].device.capabilities().max_indirection();
        let mut chain: Vec<Mkey<'_, Seam>> = Vec::new();
        for depth in 1..=limit + 1 {
            let under = match chain.last() {
                Some(key) => key.sge(0, 64),
                None => a.sge(128, 64),
            };
            let key = open(lab, &mut a, &Recipe::List(vec![under]), OPEN);
            let remote = Remote {
                addr: 0,
                rkey: key.rkey(),
            };
            b.fill(0, 64, depth.into());
            let from = b.sge(0, 64);
            b.qp.send_queue()
                .batch()
                .write(1, SIGNALED, remote, from)
                .unwrap();
            let status = lab.wait(&mut b.cq).status;
            if depth <= limit {
                assert_eq!(status, WcStatus::Success, "depth {depth}");
                a.assert_pattern(128, 64, depth.into());
            } else {
                assert_eq!(status, WcStatus::RemAccessErr, "depth {depth}");
            }
            chain.push(key);
        }
    });
}

/// A write of 8 bytes to the key's start by the peer; pairs are new, as an error ends them.
fn reach<'d>(lab: &Lab<'d>, rkey: RKey) -> WcStatus {
    let [_a, mut b] = lab.pair::<Rc>();
    let from = b.sge(0, 8);
    let remote = Remote { addr: 0, rkey };
    b.qp.send_queue()
        .batch()
        .write(1, SIGNALED, remote, from)
        .unwrap();
    lab.wait(&mut b.cq).status
}

#[test]
fn a_key_lets_in_what_it_and_all_under_it_allow() {
    lab(|lab| {
        let [mut a, _b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let pd = &lab.sides[0].pd;
        let list = vec![a.sge(0, 64), a.sge(4096, 64)];
        for (access, expected) in [
            (OPEN, WcStatus::Success),
            (
                Access::LOCAL_WRITE | Access::REMOTE_READ,
                WcStatus::RemAccessErr,
            ),
            (Access::REMOTE_WRITE, WcStatus::Success),
        ] {
            let key = open(lab, &mut a, &Recipe::List(list.clone()), access);
            assert_eq!(reach(lab, key.rkey()), expected, "{access:?}");
        }
        // Memory that may only be read.
        let only = pd.alloc_buffer(64, Access::REMOTE_READ).unwrap();
        let key = open(
            lab,
            &mut a,
            &Recipe::List(vec![only.sge(0, 64).unwrap()]),
            OPEN,
        );
        assert_eq!(reach(lab, key.rkey()), WcStatus::RemAccessErr);
        // Memory of another domain.
        let other = lab.sides[0].device.alloc_pd().unwrap();
        let foreign = other.alloc_buffer(64, ALL).unwrap();
        let key = open(
            lab,
            &mut a,
            &Recipe::List(vec![foreign.sge(0, 64).unwrap()]),
            OPEN,
        );
        assert_eq!(reach(lab, key.rkey()), WcStatus::RemAccessErr);
        // No key at all, and the key itself, round and round.
        let key = open(
            lab,
            &mut a,
            &Recipe::List(vec![Sge::new(0, 64, LKey(0xffff_ff00))]),
            OPEN,
        );
        assert_eq!(reach(lab, key.rkey()), WcStatus::RemAccessErr);
        let own = Sge::new(0, 64, key.lkey());
        a.qp.send_queue()
            .batch()
            .mr_list(1, SIGNALED, &key, OPEN, &[own])
            .unwrap();
        ok(lab.wait(&mut a.cq), 1, WcOpcode::BindMw);
        assert_eq!(reach(lab, key.rkey()), WcStatus::RemAccessErr);
        // Memory that is no longer registered.
        let gone = pd.alloc_buffer(64, ALL).unwrap();
        let key = open(
            lab,
            &mut a,
            &Recipe::List(vec![gone.sge(0, 64).unwrap()]),
            OPEN,
        );
        assert_eq!(reach(lab, key.rkey()), WcStatus::Success);
        drop(gone);
        assert_eq!(reach(lab, key.rkey()), WcStatus::RemAccessErr);
    });
}

#[test]
fn a_key_is_closed_by_either_side_and_opened_again() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let pd = &lab.sides[0].pd;
        let key = pd
            .create_mkey(MkeyInitAttr {
                remote_invalidate: true,
                ..MkeyInitAttr::klm(4)
            })
            .unwrap();
        assert_eq!(
            reach(lab, key.rkey()),
            WcStatus::RemAccessErr,
            "never opened"
        );
        let pieces = [a.sge(0, 100), a.sge(1000, 100)];
        for round in 0..3 {
            let mut batch = a.qp.send_queue().batch();
            batch.mr_list(1, SIGNALED, &key, OPEN, &pieces).unwrap();
            drop(batch);
            ok(lab.wait(&mut a.cq), 1, WcOpcode::BindMw);
            assert_eq!(reach(lab, key.rkey()), WcStatus::Success);
            if round == 1 {
                a.receive(9, 2000, 16);
                let hello = b.sge(0, 16);
                b.qp.send_queue()
                    .batch()
                    .send_inv(2, SIGNALED, key.rkey(), hello)
                    .unwrap();
                ok(lab.wait(&mut b.cq), 2, WcOpcode::Send);
                let wc = lab.wait(&mut a.cq);
                assert_eq!((wc.status, wc.wr_id), (WcStatus::Success, 9));
            } else {
                let mut batch = a.qp.send_queue().batch();
                batch.local_inv_mkey(3, SIGNALED, &key).unwrap();
                drop(batch);
                ok(lab.wait(&mut a.cq), 3, WcOpcode::BindMw);
            }
            assert_eq!(reach(lab, key.rkey()), WcStatus::RemAccessErr, "closed");
        }
        // A QP of another domain does not open it.
        let [mut c, _d] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let other = lab.sides[0].device.alloc_pd().unwrap();
        let theirs = other.create_mkey(MkeyInitAttr::klm(4)).unwrap();
        c.qp.send_queue()
            .batch()
            .mr_list(4, SIGNALED, &theirs, OPEN, &pieces)
            .unwrap();
        assert_eq!(lab.wait(&mut c.cq).status, WcStatus::MwBindErr);
    });
}

/// Atomics through a key, on 8 bytes inside a piece.
#[test]
fn atomics_go_through_keys() {
    lab(|lab| {
        let [mut a, mut b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        a.buffer.copy_in(0, &[0; 8192]).unwrap();
        let list = vec![a.sge(4096, 8), a.sge(64, 16)];
        let key = open(lab, &mut a, &Recipe::List(list), ALL);
        for (addr, place) in [(0, 4096), (8, 64), (16, 72)] {
            let remote = Remote {
                addr,
                rkey: key.rkey(),
            };
            let result = b.sge(0, 8);
            b.qp.send_queue()
                .batch()
                .fetch_add(1, SIGNALED, remote, addr + 5, result)
                .unwrap();
            ok(lab.wait(&mut b.cq), 1, WcOpcode::FetchAdd);
            let mut value = [0; 8];
            a.buffer.copy_out(place, &mut value).unwrap();
            assert_eq!(u64::from_ne_bytes(value), addr + 5);
        }
    });
}

#[test]
fn what_has_no_room_is_refused() {
    lab(|lab| {
        let [mut a, _b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let pd = &lab.sides[0].pd;
        let key = pd.create_mkey(MkeyInitAttr::klm(100)).unwrap();
        let small = pd.create_mkey(MkeyInitAttr::klm(2)).unwrap();
        let ksm = pd
            .create_mkey(MkeyInitAttr {
                entries: MkeyEntries::Ksm { log_size: 12 },
                ..MkeyInitAttr::klm(4)
            })
            .unwrap();
        let piece = a.sge(0, 64);
        let strided = MrInterleaved {
            addr: piece.addr,
            bytes_count: 40_000,
            bytes_skip: 30_000,
            lkey: piece.lkey,
        };
        let fits = MrInterleaved {
            bytes_count: 1,
            ..strided
        };
        let flags = SendFlags::SIGNALED;
        let mut batch = a.qp.send_queue().batch();
        let mut list = |key: &Mkey<'_, Seam>, count: usize| {
            batch.mr_list(1, flags, key, OPEN, &vec![piece; count])
        };
        let many = |given, limit| Err(PostError::TooManySges { given, limit });
        assert_eq!(list(&key, 13), many(16, 12));
        assert_eq!(list(&small, 3), many(3, 2));
        assert_eq!(list(&ksm, 1), Err(PostError::SgeTooLong { length: 64 }));
        let mut pattern = |key: &Mkey<'_, Seam>, pieces: &[MrInterleaved]| {
            batch.mr_interleaved(1, flags, key, OPEN, 3, pieces)
        };
        assert_eq!(pattern(&small, &[fits; 2]), many(3, 2));
        assert_eq!(pattern(&ksm, &[fits]), Err(PostError::Unsupported));
        let refused = pattern(&key, &[strided]);
        assert_eq!(refused, Err(PostError::SgeTooLong { length: 70_000 }));
        drop(batch);
        // A QP without space for lists.
        let [mut thin, _peer] = lab.pair_with::<Rc>(
            QpCap {
                max_inline_data: 0,
                ..CAP
            },
            &|_| {},
        );
        let refused = thin
            .qp
            .send_queue()
            .batch()
            .mr_list(1, flags, &key, OPEN, &[piece]);
        assert!(matches!(refused, Err(PostError::TooManySges { .. })));
        for max_entries in [0, (1 << 16) + 1, u32::MAX] {
            let refused = pd.create_mkey(MkeyInitAttr::klm(max_entries)).unwrap_err();
            let size = MrError::Size {
                field: "max_entries (1 or more)",
                asked: max_entries.into(),
                limit: 1 << 16,
            };
            assert_eq!(refused, size);
        }
    });
}

/// Each capability that is not there is named; and a device that lets no UMR change the right to atomics is not asked to.
#[test]
fn capabilities_that_are_not_there_are_named() {
    type Change = fn(&mut bareverbs_core::firmware_cmds::caps::HcaCap);
    let ksm = MkeyInitAttr {
        entries: MkeyEntries::Ksm { log_size: 12 },
        ..MkeyInitAttr::klm(4)
    };
    let cases: [(&str, Change, MkeyInitAttr); 3] = [
        (
            "log_max_klm_list_size",
            |caps| {
                caps.set_log_max_klm_list_size(0);
            },
            MkeyInitAttr::klm(4),
        ),
        (
            "umr_indirect_mkey_disabled",
            |caps| {
                caps.set_umr_indirect_mkey_disabled(true);
            },
            MkeyInitAttr::klm(4),
        ),
        (
            "fixed_buffer_size",
            |caps| {
                caps.set_fixed_buffer_size(false);
            },
            ksm,
        ),
    ];
    let with = |change: Change| {
        move |mut card: Card| {
            change(&mut card.general);
            change(&mut card.general_max);
            card
        }
    };
    for (capability, change, attr) in cases {
        lab_with(with(change), |lab| {
            let refused = lab.sides[0].pd.create_mkey(attr).unwrap_err();
            assert!(matches!(refused, MrError::Unsupported { .. }), "{refused}");
            assert!(refused.to_string().contains(capability), "{refused}");
        });
    }
    let fixed: Change = |caps| {
        caps.set_umr_modify_atomic_disabled(true);
    };
    lab_with(with(fixed), |lab| {
        let [mut a, _b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let list = vec![a.sge(0, 64)];
        let key = open(lab, &mut a, &Recipe::List(list.clone()), OPEN);
        assert_eq!(reach(lab, key.rkey()), WcStatus::Success);
        let mut batch = a.qp.send_queue().batch();
        let refused = batch.mr_list(1, SIGNALED, &key, ALL, &list);
        assert_eq!(refused, Err(PostError::NoAtomics));
    });
    let orders: Change = |caps| {
        caps.set_relaxed_ordering_write_umr(true)
            .set_relaxed_ordering_read_umr(true);
    };
    lab_with(with(orders), |lab| {
        let [mut a, _b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        let list = vec![a.sge(0, 64)];
        let access = OPEN | Access::RELAXED_ORDERING;
        let key = open(lab, &mut a, &Recipe::List(list), access);
        assert_eq!(reach(lab, key.rkey()), WcStatus::Success);
    });
}

/// The keys stay, and what peers may do changes each time; what was refused was not changed.
#[test]
fn the_rights_of_a_region_change_and_its_keys_stay() {
    #![expect(unsafe_code)]
    lab(|lab| {
        let [mut a, _b] = lab.pair_with::<Rc>(WIDE, &|_| {});
        // UNSAFETY: the memory outlives its region, and no reference to it is held while that exists.
        let mut memory = vec![0_u8; 4096];
        let region = std::ptr::NonNull::from(&mut memory[..]);
        // SAFETY: as above.
        let mut mr =
            unsafe { lab.sides[0].pd.reg_mr(region, Access::LOCAL_WRITE) }.expect("registered");
        let keys = (mr.lkey(), mr.rkey());
        let reach = |mr: &bareverbs_core::Mr<'_, Seam>| {
            let [_a, mut b] = lab.pair::<Rc>();
            let from = b.sge(0, 8);
            let remote = Remote {
                addr: mr.addr(),
                rkey: mr.rkey(),
            };
            b.qp.send_queue()
                .batch()
                .write(1, SIGNALED, remote, from)
                .unwrap();
            lab.wait(&mut b.cq).status
        };
        assert_eq!(reach(&mr), WcStatus::RemAccessErr);
        for (access, expected) in [
            (OPEN, WcStatus::Success),
            (
                Access::LOCAL_WRITE | Access::REMOTE_READ,
                WcStatus::RemAccessErr,
            ),
            (ALL, WcStatus::Success),
            (Access::empty(), WcStatus::RemAccessErr),
        ] {
            a.qp.send_queue()
                .batch()
                .rereg_access(5, SIGNALED, &mut mr, access)
                .unwrap();
            ok(lab.wait(&mut a.cq), 5, WcOpcode::BindMw);
            assert_eq!(
                (mr.lkey(), mr.rkey(), mr.access()),
                (keys.0, keys.1, access)
            );
            assert_eq!(reach(&mr), expected, "{access:?}");
        }
        let refused =
            a.qp.send_queue()
                .batch()
                .rereg_access(5, SIGNALED, &mut mr, Access::REMOTE_WRITE);
        assert_eq!(refused, Err(PostError::Unsupported));
        assert_eq!(mr.access(), Access::empty());
    });
}
