//! Messages, advertisements and private text, byte by byte.

use super::*;
use bareverbs::cm::mad::RejectReason;

fn text(number: u32, len: usize) -> Vec<u8> {
    let message = Message::new(number, len);
    let whole: Vec<u8> = (0..len).map(|index| message.at(index)).collect();
    for at in (0..len).step_by(PIECE - 1) {
        let piece = message.piece(at);
        assert!(
            piece.starts_with(&whole[at..len.min(at + PIECE)]),
            "at {at}"
        );
    }
    whole
}

#[test]
fn messages_are_rdma_cores() {
    assert_eq!(text(0, 32), b"rdma-ping-0: ABCDEFGHIJKLMNOPQR\0");
    assert_eq!(text(7, 26), b"rdma-ping-7: HIJKLMNOPQRS\0");
    // The characters go round: 58 from A to z.
    assert_eq!(text(58 + 57, 20), b"rdma-ping-115: zABC\0");
    // A message that is too short for its heading ends like all others.
    assert_eq!(text(7, 5), b"rdma\0");
    let long = text(1, 1000);
    assert_eq!((long[13 + 57], long[13 + 58], long[999]), (b'A', b'B', 0));
}

#[test]
fn advertisements_are_big_endian() {
    let advert = Advert {
        addr: 0x0102_0304_0506_0708,
        rkey: RKey(0x090a_0b0c),
        size: 0x0d0e_0f10,
    };
    let bytes = advert.to_bytes();
    assert_eq!(bytes, core::array::from_fn(|index| index as u8 + 1));
    assert_eq!(Advert::from_bytes(bytes).to_bytes(), bytes);
}

#[test]
fn private_text_ends_with_its_last_byte_that_is_not_zero() {
    let mut data = [0; 148];
    data[..5].copy_from_slice(b"no\0!\n");
    let error = PingError::Refused(
        RdmaError::Rejected(RejectReason::CONSUMER_DEFINED),
        PrivateText::new(&data),
    );
    assert!(
        error.to_string().ends_with(r#"and says "no\x00!\n""#),
        "{error}"
    );
    let error = PingError::Refused(
        RdmaError::Rejected(RejectReason::CONSUMER_DEFINED),
        PrivateText::new(&[0; 148]),
    );
    assert!(!error.to_string().contains("says"), "{error}");
    assert_eq!(PrivateText::new(&[1; 148]).len, 48);
}
