//! Every accessor of every structure reaches its field and nothing else.
//!
//! Where a field lies says its [`Field`], which rung 0 compares with the vendor's header; what the bytes have to be then is
//! computed here bit by bit.

extern crate std;

use super::{Accessors, Descriptor, Field, Kind};
use crate::registry::{self, COMMANDS};
use std::vec;
use std::vec::Vec;

/// Its registers have offsets instead of accessors.
const REGISTERS: &str = "struct mlx5_init_seg";

/// A generator of numbers without a pattern (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// A bit of a structure; bit 0 is the most significant one of the first byte.
fn bit(bytes: &[u8], at: u32) -> bool {
    bytes[(at / 8) as usize] & 0x80 >> (at % 8) != 0
}

/// The field's bits as a number.
fn number(bytes: &[u8], field: &Field) -> u64 {
    (field.offset..field.offset + field.width)
        .fold(0, |number, at| number << 1 | u64::from(bit(bytes, at)))
}

/// Puts a number into the field's bits.
fn put(bytes: &mut [u8], field: &Field, number: u64) {
    for index in 0..field.width {
        let at = field.offset + index;
        let mask = 0x80 >> (at % 8);
        let byte = &mut bytes[(at / 8) as usize];
        *byte &= !mask;
        if number >> (field.width - 1 - index) & 1 != 0 {
            *byte |= mask;
        }
    }
}

/// The fault of an accessor, if it has one.
fn fault(
    structure: &Descriptor,
    field: &Field,
    accessors: Accessors,
    numbers: &mut Numbers,
) -> Option<&'static str> {
    let at = (field.offset / 8) as usize;
    for prefill in [vec![0xa5; structure.size], numbers.bytes(structure.size)] {
        match accessors {
            Accessors::Number { get, set } => {
                if get(&prefill) != number(&prefill, field) {
                    return Some("reads other bits");
                }
                let ones = u64::MAX >> (64 - field.width);
                for value in [0, ones, 1, ones - ones / 2, numbers.next() & ones] {
                    let (mut bytes, mut expected) = (prefill.clone(), prefill.clone());
                    set(&mut bytes, value);
                    put(&mut expected, field, value);
                    if bytes != expected {
                        return Some("writes other bits");
                    }
                    if get(&bytes) != value {
                        return Some("does not read what it wrote");
                    }
                }
            }
            Accessors::Bytes { get, get_mut } => {
                let part = at..at + (field.width / 8) as usize;
                if get(&prefill) != &prefill[part.clone()] {
                    return Some("reads other bytes");
                }
                let value = numbers.bytes(part.len());
                let (mut bytes, mut expected) = (prefill.clone(), prefill.clone());
                get_mut(&mut bytes).copy_from_slice(&value);
                expected[part].copy_from_slice(&value);
                if bytes != expected {
                    return Some("writes other bytes");
                }
            }
            Accessors::Tail(start) => {
                if start != structure.size || at != start {
                    return Some("starts elsewhere");
                }
            }
        }
    }
    None
}

#[test]
fn accessors_reach_their_fields_and_nothing_else() {
    let mut numbers = Numbers(0x0123_4567_89ab_cdef);
    let mut accessed = 0;
    for structure in registry::all().filter(|structure| structure.name != REGISTERS) {
        assert_eq!(
            structure.fields.len(),
            structure.accessors.len(),
            "{}",
            structure.name
        );
        for (field, &accessors) in structure.fields.iter().zip(structure.accessors) {
            let fault = fault(structure, field, accessors, &mut numbers);
            assert_eq!(fault, None, "{}.{}", structure.name, field.name);
            accessed += 1;
        }
    }
    assert!(accessed > 1400, "{accessed}");
}

/// The property above would not be worth much if it passed for a field that lies elsewhere.
#[test]
fn accessors_of_a_field_beside_are_found() {
    let mut numbers = Numbers(0xfedc_ba98_7654_3210);
    for structure in registry::all() {
        for (field, &accessors) in structure.fields.iter().zip(structure.accessors) {
            let end = structure.size as u32 * 8;
            let step = if matches!(field.kind, Kind::Bits) {
                1
            } else {
                8
            };
            for offset in [field.offset.wrapping_sub(step), field.offset + step] {
                if !matches!(field.kind, Kind::Tail)
                    && offset.checked_add(field.width).is_some_and(|to| to <= end)
                {
                    let beside = Field { offset, ..*field };
                    let fault = fault(structure, &beside, accessors, &mut numbers);
                    assert!(
                        fault.is_some(),
                        "{}.{} at bit {offset} passes",
                        structure.name,
                        field.name
                    );
                }
            }
        }
    }
}

#[test]
fn new_inputs_have_their_opcode_and_nothing_else() {
    for command in COMMANDS {
        let input = (command.fresh)();
        assert_eq!(input.len(), command.input.size);
        assert_eq!(
            input[..2],
            command.opcode.number().to_be_bytes(),
            "{:?}",
            command.opcode
        );
        assert!(
            input[2..].iter().all(|&byte| byte == 0),
            "{:?}",
            command.opcode
        );
    }
}
