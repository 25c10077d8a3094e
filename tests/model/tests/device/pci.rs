//! The function on the bus: configuration space, function reset, MSI-X.

use crate::common::Node;
use bareverbs_firmware_cmds::hca::NopIn;
use connectx_model::{Config, Model, MsixMode};
use std::time::Duration;

const MSIX_TABLE: u64 = 0x2000;
const MSIX_PENDING: u64 = 0x3000;

fn config16(node: &mut Node, at: usize) -> u16 {
    let mut word = [0; 2];
    node.model.config_read(at, &mut word);
    u16::from_le_bytes(word)
}

/// Finds a capability by walking the list, as a host does.
fn capability(node: &mut Node, id: u8) -> Option<usize> {
    let mut at = config16(node, 0x34) as usize & 0xfc;
    for _ in 0..16 {
        if at == 0 {
            return None;
        }
        let head = config16(node, at);
        if head as u8 == id {
            return Some(at);
        }
        at = usize::from(head >> 8);
    }
    panic!("the capability list has no end");
}

#[test]
fn configuration_space_says_what_it_is() {
    let mut node = Node::new(Config::new(1));
    assert_eq!(config16(&mut node, 0), 0x15b3);
    assert_eq!(config16(&mut node, 2), 0x1017);
    assert_ne!(config16(&mut node, 6) & 0x10, 0);
    // Sizing: all ones written, the size's complement read back, flags kept.
    let host = &mut node.host;
    node.model.config_write(host, 0x10, &[0xff; 8]);
    let mut bar = [0; 8];
    node.model.config_read(0x10, &mut bar);
    let value = u64::from_le_bytes(bar);
    assert_eq!(value & 0xf, 0xc);
    assert_eq!(!(value & !0xf) + 1, 32 << 20);
    node.model.config_write(host, 0, &[0; 4]);
    assert_eq!(config16(&mut node, 0), 0x15b3);
    for id in [0x01, 0x10, 0x11] {
        assert!(capability(&mut node, id).is_some(), "capability {id:#x}");
    }
    assert!(capability(&mut node, 0x09).is_none());
    let pcie = capability(&mut node, 0x10).unwrap();
    assert_ne!(
        config16(&mut node, pcie + 6) & 1 << 12,
        0,
        "no function reset"
    );
    let mut beyond = [0xaa; 4];
    node.model.config_read(0x100, &mut beyond);
    assert_eq!(beyond, [0; 4]);
}

#[test]
fn nothing_moves_before_the_command_register_says_so() {
    let mut node = Node::new(Config::new(1));
    node.model.config_write(&mut node.host, 4, &[0, 0]);
    assert_eq!(node.read32(0x230), u32::MAX);
    node.model.config_write(&mut node.host, 4, &[2, 0]);
    assert_ne!(node.read32(0x230), u32::MAX);
    // Memory decodes, but the device may not reach the host.
    node.post(0, bytes(&NopIn::new()), 16);
    node.ring(1);
    node.advance();
    assert!(node.answer(0, 16).is_err());
    assert_eq!(node.model.stats().dma_faults, 1);
}

fn bytes(command: &NopIn) -> &[u8] {
    &command.0
}

#[test]
fn a_function_reset_clears_all_state() {
    for by_config in [true, false] {
        let mut node = Node::new(Config::new(1));
        node.initialize();
        node.create_eq(7, 1 << 9, 0);
        if by_config {
            let pcie = capability(&mut node, 0x10).unwrap();
            let control = config16(&mut node, pcie + 8) | 1 << 15;
            node.model
                .config_write(&mut node.host, pcie + 8, &control.to_le_bytes());
            assert_eq!(config16(&mut node, 4), 0);
            assert_eq!(config16(&mut node, pcie + 8) & 1 << 15, 0);
            node.model.config_write(&mut node.host, 4, &[6, 0]);
        } else {
            node.model.function_reset();
            assert_eq!(config16(&mut node, 4), 6);
        }
        assert_eq!(node.model.pages_held(), 0);
        assert_eq!(node.model.objects(), Default::default());
        assert_eq!(node.read32(0x14) & !0xfff, 0);
        // It takes its time to boot, and then starts over.
        assert_ne!(node.read32(0x1fc) >> 31, 0);
        assert!(node.model.next_deadline().is_some());
        node.given.clear();
        node.program_queue();
        node.initialize();
    }
}

#[test]
fn masked_vectors_stay_pending() {
    let mut node = Node::new(Config {
        msix_mode: MsixMode::Table,
        ..Config::new(1)
    });
    node.initialize();
    let eq = node.create_eq(7, 1 << 0x0a, 5);
    let msix = capability(&mut node, 0x11).unwrap();
    let pending = |node: &mut Node| node.read32(MSIX_PENDING);
    let event = |node: &mut Node| {
        while node.next_event(eq).is_some() {}
        node.arm_eq(eq);
        node.command(&NopIn::new()).unwrap();
    };
    // Disabled: nothing, not even pending.
    event(&mut node);
    assert_eq!(pending(&mut node), 0);
    // Enabled, but the table's entries come up masked.
    node.model
        .config_write(&mut node.host, msix + 2, &[0, 0x80]);
    event(&mut node);
    assert_eq!(node.host.interrupts, []);
    assert_eq!(pending(&mut node).to_be_bytes()[0], 1 << 5);
    // Unmasking delivers.
    let at = MSIX_TABLE + 5 * 16 + 12;
    node.model.bar_write(&mut node.host, at, &[0, 0, 0, 0]);
    assert_eq!(node.host.interrupts, [5]);
    assert_eq!(pending(&mut node), 0);
    // So does the end of the function's mask.
    node.model
        .config_write(&mut node.host, msix + 2, &[0, 0xc0]);
    event(&mut node);
    assert_eq!(node.host.interrupts, [5]);
    node.model
        .config_write(&mut node.host, msix + 2, &[0, 0x80]);
    assert_eq!(node.host.interrupts, [5, 5]);
    event(&mut node);
    assert_eq!(node.host.interrupts, [5, 5, 5]);
}

#[test]
fn an_event_with_msix_off_asserts_intx_unless_it_is_disabled() {
    fn nothing(_: &mut Node) {}
    fn msix_on(node: &mut Node) {
        let msix = capability(node, 0x11).unwrap();
        node.model
            .config_write(&mut node.host, msix + 2, &[0, 0x80]);
    }
    fn intx_disable(node: &mut Node) {
        node.model.config_write(&mut node.host, 4, &[6, 4]);
    }
    type Prepare = fn(&mut Node);
    let physical = Config::new(1);
    let ways: [(Config, Prepare, u64); 4] = [
        (physical.clone(), nothing, 1),
        (physical.clone(), msix_on, 0),
        (physical, intx_disable, 0),
        // A virtual function has no interrupt pin.
        (Config::new(1).virtual_function(), nothing, 0),
    ];
    for (way, (config, prepare, expected)) in ways.into_iter().enumerate() {
        let mut node = Node::new(config);
        node.initialize();
        prepare(&mut node);
        // Event queues are created armed: the first interrupt comes without a request.
        let eq = node.create_eq(7, 1 << 0x0a, 5);
        node.command(&NopIn::new()).unwrap();
        assert!(node.next_event(eq).is_some());
        assert_eq!(node.model.stats().intx, expected, "way {way}");
    }
}

#[test]
fn the_init_segment_can_be_read_in_any_size() {
    let mut node = Node::new(Config::new(1));
    node.sleep(Duration::from_secs(1));
    let mut read = |at: u64, data: &mut [u8]| node.model.bar_read(&mut node.host, at, data);
    let mut word = [0; 4];
    read(4, &mut word);
    assert_eq!(&word[..2], &[0, 5], "command interface revision");
    let mut half = [0; 2];
    read(4, &mut half);
    assert_eq!(half, word[..2]);
    let mut byte = [0; 1];
    read(5, &mut byte);
    assert_eq!(byte[0], 5);
    let mut timer = [0; 8];
    read(0x1000, &mut timer);
    assert_eq!(u64::from_be_bytes(timer), 1_002_000_000);
    let mut sizes = [0; 4];
    read(0x14, &mut sizes);
    assert_eq!(sizes[3], 5 << 4 | 6);
    let mut beyond = [0; 4];
    read(64 << 20, &mut beyond);
    assert_eq!(beyond, [0xff; 4]);
}

#[test]
fn a_model_can_be_moved_to_another_thread() {
    fn sendable<T: Send>() {}
    sendable::<Model>();
}
