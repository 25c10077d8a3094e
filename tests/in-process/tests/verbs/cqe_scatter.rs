//! Small messages in the entries of their completions: what arrives is what a byte array says, and where it should.

use bareverbs_core::cq::{CqEntries, CqeSize};
use bareverbs_core::qp::{Connected, CqeScatter};
use bareverbs_core::{
    CqInit, CreateQpError, DctError, Inline, QpInitAttr, QpType, Rc, SendFlags, Uc, Ud, WcOpcode,
    WcStatus,
};
use connectx_model::Config as Card;

use crate::dc;
use crate::lab::{ALL, CAP, End, Lab, MS, SIGNALED, SILENT, lab, lab_with, pattern};

const BOTH: CqeScatter = CqeScatter {
    receives: true,
    responses: true,
};

const RECEIVES: CqeScatter = CqeScatter {
    receives: true,
    responses: false,
};

/// A card that does not offer it.
fn lacking(mut card: Card) -> Card {
    card.general.set_sctr_data_cqe(false);
    card.general_max.set_sctr_data_cqe(false);
    card
}

fn end<'d, T: QpType>(lab: &Lab<'d>, node: usize, size: CqeSize, which: CqeScatter) -> End<'d, T> {
    let side = &lab.sides[node];
    let mut plan = CqInit::new(127);
    plan.entries = CqEntries::new(None, size);
    let cq = side.device.create_cq(plan).expect("CQ");
    let mut init = QpInitAttr {
        send_cq: &cq,
        recv_cq: &cq,
        srq: None,
        cap: CAP,
        sq_sig_all: false,
    };
    let made = side.pd.create_qp_with_cqe_scatter::<T>(&mut init, which);
    let qp = made.expect("QP");
    let access = lab.access(node);
    let buffer = side.pd.alloc_buffer(1 << 16, access).expect("buffer");
    End { qp, cq, buffer }
}

/// The next completion's operation, the length of its message, and the part of that in the entry.
fn next<T: QpType>(lab: &Lab<'_>, end: &mut End<'_, T>) -> (WcOpcode, usize, Option<Vec<u8>>) {
    lab.pause(MS);
    let completion = end.cq.poll().expect("the CQ works").expect("a completion");
    assert_eq!(completion.status(), WcStatus::Success);
    let data = completion.inline_data().expect("as asked for");
    let len = completion.byte_len() as usize;
    (completion.opcode(), len, data.map(|data| data.to_vec()))
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Posts a read of what lies at the beginning of one buffer to that of another.
type Read<T> = fn(&mut End<'_, T>, &End<'_, T>, SendFlags, usize);

fn read(a: &mut End<'_, Rc>, b: &End<'_, Rc>, flags: SendFlags, len: usize) {
    let (to, from) = (a.sge(0, len), b.remote(0));
    let mut queue = a.qp.send_queue().batch();
    queue.read(0, flags, from, &[to]).unwrap();
}

/// The longest messages, and the space for them.
const LONGEST: usize = 80;
const SPACE: usize = 96;

/// Drawn sends and reads of up to [`LONGEST`] bytes, in queues of this type.
fn traffic<T: Connected>(seed: u64, size: CqeSize, which: CqeScatter, read: Option<Read<T>>) {
    let most = match size {
        CqeSize::Bytes64 => 32,
        _ => 64,
    };
    lab(|lab| {
        let mut dice = Dice(seed * 2 + 1);
        let mut ends = [end::<T>(lab, 0, size, which), end::<T>(lab, 1, size, which)];
        lab.connect(&mut ends, &|_| {});
        let [mut a, mut b] = ends;
        let mut counts = [0_u64; 3];
        for round in 0..200 {
            let context = format!("seed {seed}, {size:?}, round {round}");
            let drawn = dice.below(LONGEST as u64 + 1) as usize;
            let (id, blank) = (seed << 16 | round, 0xee_u8);
            let read = read.filter(|_| dice.below(2) == 0);
            let len = drawn.max(usize::from(read.is_some()));
            let inside = (1..=most).contains(&len);
            let data = pattern(len, id);
            let expected = inside.then(|| data.clone());
            // An unsignaled request has no entry for its data: they are in memory.
            let silent = read.is_some() && dice.below(4) == 0;
            let to = if let Some(read) = read {
                b.fill(0, SPACE, id);
                a.buffer.fill(0, SPACE, blank).unwrap();
                if silent {
                    read(&mut a, &b, SILENT, len);
                }
                read(&mut a, &b, SIGNALED, len);
                let done = (WcOpcode::RdmaRead, len, expected);
                assert_eq!(next(lab, &mut a), done, "{context}");
                &a
            } else {
                b.buffer.fill(0, SPACE, blank).unwrap();
                b.receive(id, 0, SPACE);
                let mut queue = a.qp.send_queue().batch();
                queue
                    .send(id, SIGNALED | SendFlags::SOLICITED, Inline(&data))
                    .unwrap();
                drop(queue);
                let sent = (WcOpcode::Send, len, None);
                assert_eq!(next(lab, &mut a), sent, "{context}");
                let received = (WcOpcode::Recv, len, expected);
                assert_eq!(next(lab, &mut b), received, "{context}");
                &b
            };
            let mut expected = [blank; SPACE];
            if silent || !inside {
                expected[..len].copy_from_slice(&data);
            }
            let mut memory = [0; SPACE];
            to.buffer.copy_out(0, &mut memory).unwrap();
            assert_eq!(memory, expected, "{context}");
            counts[if !inside { 0 } else { len.div_ceil(32) }] += 1;
        }
        let scattered = [0, 1].map(|node| {
            lab.world
                .with_model(node, |model| model.stats().scattered_to_cqe)
        });
        let [outside, short, long] = counts;
        assert_eq!(scattered[0] + scattered[1], short + long, "seed {seed}");
        assert!(outside > 20 && short > 20, "seed {seed}: {counts:?}");
        assert_eq!(long > 20, most == 64, "seed {seed}: {counts:?}");
    });
}

#[test]
fn small_messages_come_in_completions() {
    for seed in 1..4 {
        traffic::<Rc>(seed, CqeSize::Bytes64, BOTH, Some(read));
        traffic::<Rc>(seed, CqeSize::Bytes128, BOTH, Some(read));
        traffic::<Rc>(seed, CqeSize::Bytes128Padded, RECEIVES, None);
        traffic::<Uc>(seed, CqeSize::Bytes64, RECEIVES, None);
        traffic::<Uc>(seed, CqeSize::Bytes128, RECEIVES, None);
    }
}

/// Drawn messages of up to [`LONGEST`] bytes to a target, whose completions name their sender beside them.
#[test]
fn small_messages_of_targets_come_in_completions() {
    for seed in 1..4 {
        for size in [CqeSize::Bytes128, CqeSize::Bytes128Padded] {
            lab(|lab| to_target(lab, seed, size));
        }
    }
}

fn to_target(lab: &Lab<'_>, seed: u64, size: CqeSize) {
    let mut plan = CqInit::new(127);
    plan.entries = CqEntries::new(None, size);
    let mut all = dc::receiver_with(lab, plan);
    let pd = &lab.sides[1].pd;
    let attr = dc::dct_attr(&all, ALL);
    let inside = pd.create_dct_with_cqe_scatter(&attr).unwrap();
    let outside = pd.create_dct(&attr).unwrap();
    let mut initiator = dc::initiator(lab);
    let ah = dc::handle(lab);
    let mut dice = Dice(seed * 2 + 1);
    let (mut scattered, mut others) = (0, 0);
    for round in 0..200 {
        let context = format!("seed {seed}, {size:?}, round {round}");
        let len = dice.below(LONGEST as u64 + 1) as usize;
        let here = dice.below(4) != 0;
        let dct = if here { &inside } else { &outside };
        let data = pattern(len, round);
        all.clear(0, SPACE);
        all.receive(0);
        let mut queue = initiator.qp.send_queue().batch();
        queue
            .send_imm(
                round,
                SIGNALED,
                dc::to(&ah, dct),
                round as u32,
                Inline(&data),
            )
            .unwrap();
        drop(queue);
        let sent = (WcOpcode::Send, len, None);
        assert_eq!(next(lab, &mut initiator), sent, "{context}");
        lab.pause(MS);
        let completion = all.cq.poll().unwrap().expect("a completion");
        let wc = completion.to_wc();
        assert_eq!(
            (wc.status, wc.opcode, wc.wr_id, wc.qp_num),
            (WcStatus::Success, WcOpcode::Recv, 0, dct.dctn()),
            "{context}"
        );
        assert_eq!(
            (wc.byte_len, wc.imm_data),
            (len as u32, round as u32),
            "{context}"
        );
        let given = completion.inline_data().expect("as asked for");
        let expected = (here && (1..=64).contains(&len)).then_some(&data[..]);
        assert_eq!(given.as_deref(), expected, "{context}");
        let mut memory = [0; SPACE];
        match expected {
            Some(_) => scattered += 1,
            None => {
                memory[..len].copy_from_slice(&data);
                others += 1;
            }
        }
        assert_eq!(all.bytes(0, SPACE), memory, "{context}");
    }
    let counted = lab
        .world
        .with_model(1, |model| model.stats().scattered_before_cqe);
    assert_eq!(counted, scattered, "seed {seed}");
    assert!(scattered > 50 && others > 50, "{scattered} {others}");
}

#[test]
fn targets_without_the_space_or_the_capability_are_refused() {
    let refused = |lab: &Lab<'_>, size| {
        let mut plan = CqInit::new(7);
        plan.entries = CqEntries::new(None, size);
        let all = dc::receiver_with(lab, plan);
        let attr = dc::dct_attr(&all, ALL);
        let made = lab.sides[1].pd.create_dct_with_cqe_scatter(&attr);
        matches!(made, Err(DctError::Create(CreateQpError::NoCqeScatter)))
    };
    lab(|lab| {
        assert!(refused(lab, CqeSize::Bytes64));
        assert!(!refused(lab, CqeSize::Bytes128));
    });
    lab_with(lacking, |lab| assert!(refused(lab, CqeSize::Bytes128)));
}

#[test]
fn what_is_fetched_comes_in_the_completion() {
    lab(|lab| {
        let mut ends = [0, 1].map(|node| end::<Rc>(lab, node, CqeSize::Bytes64, BOTH));
        lab.connect(&mut ends, &|_| {});
        let [mut a, b] = ends;
        b.buffer.copy_in(0, &41_u64.to_le_bytes()).unwrap();
        let result = a.sge(0, 8);
        let at = b.remote(0);
        let mut queue = a.qp.send_queue().batch();
        queue.fetch_add(1, SIGNALED, at, 1, result).unwrap();
        queue.compare_swap(2, SIGNALED, at, 42, 7, result).unwrap();
        drop(queue);
        let bytes = |value: u64| Some(value.to_le_bytes().to_vec());
        assert_eq!(next(lab, &mut a), (WcOpcode::FetchAdd, 8, bytes(41)));
        assert_eq!(next(lab, &mut a), (WcOpcode::CompSwap, 8, bytes(42)));
    });
}

#[test]
fn refused_without_the_capability_and_on_other_types() {
    fn refused<T: QpType>(lab: &Lab<'_>, which: CqeScatter) -> bool {
        let sizes = [CqeSize::Bytes64, CqeSize::Bytes128];
        let [short, long] = sizes.map(|size| refused_on::<T>(lab, size, which));
        assert_eq!(short, long);
        short
    }
    fn refused_on<T: QpType>(lab: &Lab<'_>, size: CqeSize, which: CqeScatter) -> bool {
        let side = &lab.sides[0];
        let mut plan = CqInit::new(7);
        plan.entries = CqEntries::new(None, size);
        let cq = side.device.create_cq(plan).expect("CQ");
        let mut init = QpInitAttr::new(&cq, 4);
        let made = side.pd.create_qp_with_cqe_scatter::<T>(&mut init, which);
        matches!(made, Err(CreateQpError::NoCqeScatter))
    }
    lab_with(lacking, |lab| assert!(refused::<Rc>(lab, RECEIVES)));
    lab(|lab| {
        assert!(!refused::<Rc>(lab, BOTH));
        assert!(refused::<Ud>(lab, RECEIVES));
        assert!(refused::<Uc>(lab, BOTH));
    });
}
