//! Work requests for targets of dynamic connections that are built call by call.

use bareverbs_core::{PostError, SendFlags, Sge, WcOpcode};

use crate::dc::{Draw, handle, initiator, receiver, target, to};
use crate::lab::{SIGNALED, got, lab, ok, pattern};

/// The effect that a request of a batch must have when all of them are complete.
enum Effect {
    Sent {
        slot: u64,
        imm: Option<u32>,
        data: Vec<u8>,
    },
    Written,
    Read {
        own: usize,
        expected: Vec<u8>,
    },
    Fetched {
        own: usize,
        old: u64,
    },
}

/// Bytes of each of the pieces of the target's memory.
const PIECE: usize = 512;

/// Drawn batches: each operation, each kind of data, WQEs that begin at any block of the ring, addresses before the data and
/// behind it; against byte arrays.
#[test]
fn drawn_batches() {
    lab(|lab| {
        let mut all = receiver(lab);
        let targets = [target(lab, &all), target(lab, &all)];
        let ah = handle(lab);
        let mut end = initiator(lab);
        let base = 15 * 4096;
        let mut memory = vec![0; 16 * PIECE];
        let mut counter = 0u64;
        let counter_at = base + memory.len();
        all.clear(counter_at, 8);
        all.clear(base, memory.len());
        let mut draw = Draw(0xdc_0bea);
        let mut next = 0u64;
        for _ in 0..150 {
            let count = 1 + draw.below(5);
            // Each request of a batch has own memory at both ends, so that their order does not matter.
            let mut effects = Vec::new();
            let first = next;
            let mut slots = Vec::new();
            let mut ids = Vec::new();
            let sources: Vec<Vec<u8>> = (0..count)
                .map(|place| {
                    let data = pattern(PIECE, next + place as u64);
                    end.buffer.copy_in(place * PIECE, &data).unwrap();
                    data
                })
                .collect();
            for place in 0..count {
                let slot = (first + place as u64) % 15;
                all.receive(slot);
                slots.push(slot);
            }
            let mut taken = 0;
            let sges: Vec<Sge> = (0..count)
                .flat_map(|place| {
                    let at = place * PIECE;
                    [
                        end.sge(at, 100),
                        end.sge(at + 100, 7),
                        end.sge(at + 107, 60),
                    ]
                })
                .collect();
            let mut open = end.qp.send_queue().open();
            for (place, source) in sources.iter().enumerate() {
                let dct = to(&ah, &targets[draw.below(2)]);
                let id = next;
                next += 1;
                let early = draw.below(2) == 0;
                let at = base + place * PIECE;
                let remote = all.remote(at);
                let kind = draw.below(6);
                match kind {
                    0 => open.send(id, SIGNALED),
                    1 => open.send_imm(id, SIGNALED, id as u32),
                    2 => open.write(id, SIGNALED, remote),
                    3 => open.write_imm(id, SIGNALED, remote, id as u32),
                    4 => open.read(id, SIGNALED, remote),
                    _ => open.fetch_add(id, SIGNALED, all.remote(counter_at), 3),
                }
                if early {
                    open.set_dc_addr(dct);
                }
                let pieces = &sges[3 * place..][..3];
                let len = match (kind, draw.below(4)) {
                    (5, _) => {
                        open.set_sge(Sge {
                            length: 8,
                            ..pieces[0]
                        });
                        8
                    }
                    (0..=3, 0) => {
                        let len = draw.below(129);
                        open.set_inline_data(&source[..len]);
                        len
                    }
                    (_, 1) => {
                        let many = draw.below(4);
                        open.set_sge_list(&pieces[..many]);
                        [0, 100, 107, 167][many]
                    }
                    (0..=2, 2) => 0,
                    _ => {
                        open.set_sge(pieces[0]);
                        100
                    }
                };
                if !early {
                    open.set_dc_addr(dct);
                }
                let data = source[..len].to_vec();
                let mut receive = |imm| {
                    taken += 1;
                    Effect::Sent {
                        slot: slots[taken - 1],
                        imm,
                        data: data.clone(),
                    }
                };
                let piece = &mut memory[place * PIECE..][..len];
                let (effect, opcode) = match kind {
                    0 => (receive(None), WcOpcode::Send),
                    1 => (receive(Some(id as u32)), WcOpcode::Send),
                    2 => {
                        piece.copy_from_slice(&data);
                        (Effect::Written, WcOpcode::RdmaWrite)
                    }
                    3 => {
                        piece.copy_from_slice(&data);
                        let mut effect = receive(Some(id as u32));
                        // The bytes are in the memory that was named.
                        if let Effect::Sent { data, .. } = &mut effect {
                            data.clear();
                        }
                        (effect, WcOpcode::RdmaWrite)
                    }
                    4 => {
                        let expected = piece.to_vec();
                        (
                            Effect::Read {
                                own: place * PIECE,
                                expected,
                            },
                            WcOpcode::RdmaRead,
                        )
                    }
                    _ => {
                        let old = counter;
                        counter += 3;
                        (
                            Effect::Fetched {
                                own: place * PIECE,
                                old,
                            },
                            WcOpcode::FetchAdd,
                        )
                    }
                };
                effects.push(effect);
                ids.push((id, opcode));
            }
            open.complete().unwrap();
            drop(open);
            for (id, opcode) in ids {
                ok(lab.wait(&mut end.cq), id, opcode);
            }
            let mut used = 0;
            for effect in effects {
                match effect {
                    Effect::Sent { slot, imm, data } => {
                        used += 1;
                        let wc = lab.wait(&mut all.cq);
                        assert_eq!(wc.wr_id, slot);
                        if let Some(imm) = imm {
                            assert_eq!(wc.imm_data, imm);
                        }
                        assert!(all.bytes(slot as usize * 4096, data.len()) == data);
                    }
                    Effect::Written => {}
                    Effect::Read { own, expected } => {
                        let mut found = vec![0; expected.len()];
                        end.buffer.copy_out(own, &mut found).unwrap();
                        assert!(found == expected);
                    }
                    Effect::Fetched { own, old } => {
                        let mut found = [0; 8];
                        end.buffer.copy_out(own, &mut found).unwrap();
                        assert_eq!(u64::from_ne_bytes(found), old);
                    }
                }
            }
            // Receives that no request took are taken by sends without data.
            while used < count {
                let dct = to(&ah, &targets[0]);
                let mut open = end.qp.send_queue().open();
                open.send(7, SIGNALED);
                open.set_dc_addr(dct);
                open.complete().unwrap();
                drop(open);
                ok(lab.wait(&mut end.cq), 7, WcOpcode::Send);
                let wc = lab.wait(&mut all.cq);
                assert_eq!((wc.wr_id, wc.byte_len), (slots[used], 0));
                used += 1;
            }
            assert!(all.bytes(base, memory.len()) == memory);
            assert!(all.bytes(counter_at, 8) == counter.to_ne_bytes());
        }
    });
}

/// A request that does not say where it goes, or says so twice, posts nothing.
#[test]
fn each_request_has_one_target() {
    lab(|lab| {
        let mut all = receiver(lab);
        let dct = target(lab, &all);
        let ah = handle(lab);
        let mut end = initiator(lab);
        let flags = SendFlags::SIGNALED;
        all.receive(3);
        let mut open = end.qp.send_queue().open();
        open.send(1, flags);
        assert_eq!(open.complete(), Err(PostError::Unsupported));
        open.send(2, flags);
        open.write(3, flags, all.remote(0));
        open.set_dc_addr(to(&ah, &dct));
        assert_eq!(open.complete(), Err(PostError::Unsupported));
        open.set_dc_addr(to(&ah, &dct));
        assert_eq!(open.complete(), Err(PostError::Unsupported));
        open.send(4, flags);
        open.set_dc_addr(to(&ah, &dct));
        open.set_dc_addr(to(&ah, &dct));
        assert_eq!(open.complete(), Err(PostError::Unsupported));
        open.read(5, flags, all.remote(0));
        open.set_dc_addr(to(&ah, &dct));
        open.set_inline_data(b"nothing is sent");
        assert_eq!(open.complete(), Err(PostError::Unsupported));
        // Dropped before it is complete.
        open.send(6, flags);
        open.set_dc_addr(to(&ah, &dct));
        drop(open);
        let mut open = end.qp.send_queue().open();
        open.send(8, flags);
        open.set_dc_addr(to(&ah, &dct));
        open.set_inline_data(b"only this");
        open.complete().unwrap();
        drop(open);
        ok(lab.wait(&mut end.cq), 8, WcOpcode::Send);
        let wc = got(lab.wait(&mut all.cq), 3, WcOpcode::Recv);
        assert_eq!(wc.byte_len, 9);
        assert_eq!(all.bytes(3 * 4096, 9), b"only this");
    });
}
