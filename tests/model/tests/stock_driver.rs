//! What the vendor's own driver for Linux proved wrong in the model, test by test, so that it stays right without a guest.

mod common;

use bareverbs_firmware_cmds::hca::{DisableHcaIn, EnableHcaIn};
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
