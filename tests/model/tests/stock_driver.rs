//! What the vendor's own driver for Linux proved wrong in the model, test by test, so that it stays right without a guest.

mod common;

use bareverbs_firmware_cmds::hca::{DisableHcaIn, EnableHcaIn};
use bareverbs_firmware_cmds::vport::{
    ModifyHcaVportContextIn, QueryHcaVportContextIn, QueryVportCounterIn,
};
use common::{Failure, Node};
use connectx_model::{Config, Syndrome};
use zerocopy::IntoBytes;

/// Its ENABLE_HCA and DISABLE_HCA have room for 12 bytes of answer: the reserved words at the end are not all there.
#[test]
fn answers_may_lack_trailing_reserved_words() {
    let mut node = Node::new(Config::new(1));
    let answer = node.raw(EnableHcaIn::new().as_bytes(), 12).unwrap();
    assert_eq!(answer, [0; 12]);
    let answer = node.raw(DisableHcaIn::new().as_bytes(), 12).unwrap();
    assert_eq!(answer, [0; 12]);
    // A failure is told in the first eight bytes, which are all that is needed.
    let again = node.raw(DisableHcaIn::new().as_bytes(), 8);
    let Err(Failure::Status(_, syndrome)) = again else {
        panic!("DISABLE_HCA twice: {again:x?}");
    };
    assert_eq!(syndrome, Syndrome::NotEnabled.code());
}

/// Its connection manager sets IsCommunicationManagementSupported on an InfiniBand port, after a look at what may be set.
#[test]
fn software_sets_its_bits_of_the_capability_mask() {
    const COMMUNICATION_MANAGEMENT: u32 = 1 << 16;
    let mut node = Node::new(Config::new(1).infiniband());
    node.initialize();
    let query = QueryHcaVportContextIn::new();
    let before = *node.command(&query).unwrap().hca_vport_context();
    assert_ne!(
        before.cap_mask1_field_select() & COMMUNICATION_MANAGEMENT,
        0
    );
    assert_eq!(before.cap_mask1() & COMMUNICATION_MANAGEMENT, 0);

    let mut modify = ModifyHcaVportContextIn::new();
    modify
        .hca_vport_context_mut()
        .set_cap_mask1(COMMUNICATION_MANAGEMENT)
        .set_cap_mask1_field_select(COMMUNICATION_MANAGEMENT);
    node.command(&modify).unwrap();
    let after = node
        .command(&query)
        .unwrap()
        .hca_vport_context()
        .cap_mask1();
    assert_eq!(after, before.cap_mask1() | COMMUNICATION_MANAGEMENT);

    // The firmware's own bits are not software's.
    modify
        .hca_vport_context_mut()
        .set_cap_mask1_field_select(1 << 11);
    assert!(matches!(
        node.command(&modify),
        Err(Failure::Status(_, syndrome)) if syndrome == Syndrome::VportHcaFields.code()
    ));
}

/// Performance management is asked of the virtual port, on RoCE as well; without, the driver sends management datagrams to a
/// firmware agent that this model does not have, and complains.
#[test]
fn the_port_counts_for_performance_management() {
    let mut node = Node::new(Config::new(1));
    assert!(node.model.config().general.vport_counters());
    node.initialize();
    let mut query = QueryVportCounterIn::new();
    query.set_clear(true);
    let first = node.command(&query).unwrap();
    assert_eq!(first.received_ib_unicast().packets(), 0);
    assert_eq!(first.transmitted_ib_unicast().packets(), 0);
}
