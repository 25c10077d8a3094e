//! A client of the model's server asks for this: registers, memory of any addresses, interrupts; and commands and work in
//! memory that it changes at will.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use connectx_model::Config as Card;
use connectx_model::link::setting;
use vfio_user::{DmaMapFlags, DmaUnmapFlags, ServerBackend};

use crate::backend::{self, Backend};
use crate::input::{Input, STEPS};
use crate::world::{Wiring, World};

/// The client's memory, and where the device finds it from the beginning.
const MEMORY: u64 = 1 << 16;
const AT: u64 = 1 << 20;
/// Of the initialization segment: where the commands lie, and the doorbell.
const COMMANDS: u64 = 0x10;
const DOORBELL: u64 = 0x18;
const CONFIG_REGION: u32 = 7;

/// A file that stays as long as the process.
fn memory() -> File {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let name = format!("bareverbs-fuzz-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let open = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        let file = open.expect("a file for the client's memory");
        std::fs::remove_file(&path).expect("it was made");
        file.set_len(MEMORY).expect("room");
        file
    });
    file.try_clone().expect("a descriptor")
}

/// Runs an input.
///
/// # Panics
/// If the server does.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let card = Card::new(1);
    let (bar, vectors) = (card.bar_size, card.msix_vectors);
    let wiring = Wiring {
        wires: Vec::new(),
        rates: setting::none(),
        seed: 0,
        capture: None,
        subnet: None,
    };
    let world = Arc::new(World::new(vec![card, Card::new(2)], 2, wiring));
    let mut client = Backend::new(world, 0, bar);
    assert!(!backend::regions(bar).is_empty() && !backend::irqs(vectors).is_empty());
    let file = memory();
    file.write_all_at(&[0; MEMORY as usize], 0).expect("room");
    let both = DmaMapFlags::READ | DmaMapFlags::WRITE;
    client
        .dma_map(both, 0, AT, MEMORY, Some(memory()))
        .expect("mapped");
    // The device may be a master, and finds its commands at the memory's beginning.
    client
        .region_write(CONFIG_REGION, 4, &[6, 0])
        .expect("written");
    let commands = [&[0; 4][..], &(AT as u32).to_be_bytes()].concat();
    client
        .region_write(0, COMMANDS, &commands)
        .expect("written");
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        step(&mut client, &mut input, &file, bar);
    }
    client.disconnect();
}

/// Addresses and lengths: small ones, and those whose sum is too large.
fn number(input: &mut Input<'_>) -> u64 {
    let value = u64::from(input.word());
    match value & 3 {
        0 => value,
        1 => AT + (value & !0xfff),
        2 => value << 48 | value,
        _ => value << 12,
    }
}

fn step(client: &mut Backend, input: &mut Input<'_>, file: &File, bar: u64) {
    let step = input.byte();
    let kind = step >> 4;
    // An error goes to the client.
    let _ = match step % 16 {
        // A command, whole or nearly.
        0..=4 => {
            command(client, input, file);
            Ok(())
        }
        5 | 6 => {
            let (at, len) = (u64::from(input.word()), usize::from(input.byte()));
            let bytes = input.bytes(len);
            let end = at + bytes.len() as u64;
            if end <= MEMORY {
                file.write_all_at(bytes, at).expect("inside");
            }
            Ok(())
        }
        7 | 8 => {
            let at = match kind & 1 {
                0 => u64::from(input.word()),
                _ => number(input) % bar,
            };
            let len = usize::from(input.byte() % 17);
            let bytes = input.bytes(len);
            client.region_write(if kind & 6 == 6 { CONFIG_REGION } else { 0 }, at, bytes)
        }
        9 => {
            let (region, at) = (u32::from(input.byte() % 10), number(input));
            let mut data = vec![0; usize::from(input.word())];
            client.region_read(region, at, &mut data)
        }
        10 => {
            let (region, at) = (u32::from(input.byte()), number(input));
            client.region_write(region, at, input.bytes(8))
        }
        11 => {
            // No longer than the file, which is all that the memory has.
            let (offset, at, len) = (number(input), number(input), number(input));
            let flags = DmaMapFlags::from_bits_truncate(kind.into());
            let backed = kind & 4 != 0;
            client.dma_map(flags, offset, at, len, backed.then(memory))
        }
        12 => {
            let flags = DmaUnmapFlags::from_bits_truncate(u32::from(kind & 2));
            client.dma_unmap(flags, number(input), number(input))
        }
        13 => {
            let fds = (0..kind).map(|_| memory()).collect();
            let (index, flags) = (u32::from(input.byte() % 6), u32::from(input.byte()));
            let (first, count) = (u32::from(input.byte()), u32::from(input.byte() % 17));
            client.set_irqs(index, flags, first, count, fds)
        }
        14 => {
            client.disconnect();
            Ok(())
        }
        _ => client.reset(),
    };
}

/// An entry of the command queue, with what is written in it, and the doorbell.
fn command(client: &mut Backend, input: &mut Input<'_>, file: &File) {
    let mut entry = [0; 64];
    entry[0] = 7;
    entry[4..8].copy_from_slice(&u32::from(input.word()).to_be_bytes());
    let mailbox = |page: u8| (AT + 0x1000 * u64::from(page % 16)).to_be_bytes();
    entry[8..16].copy_from_slice(&mailbox(input.byte()));
    // The operation, and the rest of what lies in the entry itself.
    entry[16..18].copy_from_slice(&[1 + input.byte() % 12, input.byte()]);
    let rest = input.bytes(12);
    entry[20..20 + rest.len()].copy_from_slice(rest);
    entry[48..56].copy_from_slice(&mailbox(input.byte()));
    entry[56..60].copy_from_slice(&u32::from(input.word()).to_be_bytes());
    entry[60] = input.byte() & 1;
    entry[63] = 1;
    file.write_all_at(&entry, 0).expect("inside");
    let _ = client.region_write(0, DOORBELL, &1_u32.to_be_bytes());
}
