//! A device that says of any completion that its message lies in the entry.

// UNSAFETY: writes completions where the device would.
#![expect(unsafe_code)]

use std::sync::atomic::Ordering;

use bareverbs_core::cq::{CqEntries, CqeSize, InlineDataError};
use bareverbs_core::qp::CqeScatter;
use bareverbs_core::{Access, CqInit, QpAttr, QpAttrMask, QpInitAttr, QpState, Rc};

use crate::forged::{forge, random, with_forger};

/// The message that an entry's bytes have, computed by another rule than the driver's: from the place that each format has in
/// an entry of this size.
fn message_in(entry: &[u8], length: u32) -> Result<Option<&[u8]>, InlineDataError> {
    let (front, cqe) = entry.split_at(entry.len() - 64);
    let place = match cqe[0x3f] >> 2 & 3 {
        0 => return Ok(None),
        1 => &cqe[..32],
        2 => front,
        _ => &[],
    };
    match place.get(..length as usize) {
        Some(message) if !place.is_empty() => Ok(Some(message)),
        _ => Err(InlineDataError { len: length }),
    }
}

/// Entries whose bytes are drawn, on a QP whose messages may lie in them: what the driver gives out is of the entry, and only
/// what the entry has space for.
#[test]
fn nonsense_about_messages_in_entries() {
    with_forger(|forger, device| {
        let pd = device.alloc_pd().unwrap();
        let mut seed = 0x6e55;
        println!("seed {seed:#x}");
        let (mut none, mut refused, mut lengths) = (0, 0, [0; 65]);
        for round in 0..200 {
            // Both have rings of the size by which they are found.
            let (size, entry_len, cqe) = match round % 3 {
                0 => (CqeSize::Bytes64, 64, 15),
                1 => (CqeSize::Bytes128, 128, 7),
                _ => (CqeSize::Bytes128Padded, 128, 7),
            };
            let entries = cqe as usize + 1;
            forger.rings.lock().unwrap().clear();
            forger.deaf.store(false, Ordering::Relaxed);
            let mut plan = CqInit::new(cqe);
            plan.entries = CqEntries::new(None, size);
            let mut cq = device.create_cq(plan).unwrap();
            let ring = forger.rings.lock().unwrap()[0];
            let mut init = QpInitAttr::new(&cq, 8);
            let which = CqeScatter {
                receives: true,
                responses: true,
            };
            let made = pd.create_qp_with_cqe_scatter::<Rc>(&mut init, which);
            let mut qp = made.unwrap();
            let attr = QpAttr {
                qp_state: QpState::Init,
                ..QpAttr::DEFAULT
            };
            let mask = QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS;
            qp.modify(&attr, mask | QpAttrMask::STATE).unwrap();
            forger.deaf.store(true, Ordering::Relaxed);
            let buffer = pd.alloc_buffer(4096, Access::LOCAL_WRITE).unwrap();
            let mut counter = 0_u16;
            for index in 0..100_usize {
                while qp.recv_queue().free() > 0 {
                    let sge = buffer.sge(0, 2048).unwrap();
                    qp.recv_queue().post(7, &[sge]).unwrap();
                }
                let mut entry = vec![0; entry_len];
                for word in entry.as_chunks_mut::<8>().0 {
                    *word = random(&mut seed).to_ne_bytes();
                }
                let bytes = forge(&mut seed, 0, qp.qpn().number(), counter);
                let length = (random(&mut seed) % 80) as u32;
                let draw = random(&mut seed);
                let last = 0x20 | (draw as u8 & 0xc) | u8::from((index / entries) & 1 != 0);
                let front = entry_len - 64;
                entry[front..].copy_from_slice(&bytes);
                entry[front + 0x2c..][..4].copy_from_slice(&length.to_be_bytes());
                entry[front + 0x3f] = last;
                let at = (ring + index % entries * entry_len) as *mut u8;
                for (nth, byte) in entry.iter().enumerate() {
                    // SAFETY: inside the ring, which exists as long as the CQ, and which the driver does not read now.
                    unsafe { at.add(nth).write_volatile(*byte) };
                }
                let Some(completion) = cq.poll().unwrap() else {
                    continue;
                };
                counter += 1;
                let given = completion.inline_data();
                let context = format!("seed 0x6e55, {size:?}, {round}, {index}: {entry:x?}");
                let expected = message_in(&entry, length);
                assert_eq!(
                    given.as_ref().map(|it| it.as_deref()),
                    expected.as_ref().map(|it| *it),
                    "{context}"
                );
                match expected {
                    Ok(None) => none += 1,
                    Ok(Some(message)) => lengths[message.len()] += 1,
                    Err(_) => refused += 1,
                }
            }
            forger.deaf.store(false, Ordering::Relaxed);
            qp.destroy().unwrap();
            cq.destroy().map_err(|(_, error)| error).unwrap();
        }
        assert!(none > 500 && refused > 500, "{none} {refused}");
        assert!(lengths.iter().all(|&count| count > 2), "{lengths:?}");
    });
}
