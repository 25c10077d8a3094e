//! The answer of a subnet administration that is busy (IBTA vol. 1, 13.4.7), in its place.

use crate::port::lid::{lid, local, mac};
use crate::roce::packet::reseal;
use crate::roce::transport::{GSI_QKEY, GSI_QPN};
use crate::subnet::datagram::{CLASS, CLASS_VERSION, METHOD, STATUS, class, method};
use crate::subnet::switch::{BTH, DESTINATION, DESTINATION_QPN, PAYLOAD, QKEY, SOURCE, SOURCE_QPN};

/// In a datagram's status.
const BUSY: u16 = 0x0001;
/// The bit of answers in a method.
const RESPONSE: u8 = 0x80;
const SEND_ONLY: u8 = 0x64;
/// The flags of a datagram of subnet administration's with a header of RMPP: that this is used. Acknowledgements have it, and
/// are no questions.
const RMPP_FLAGS: usize = 26;
const RMPP_ACTIVE: u8 = 1;

/// The answer to a frame with a question to subnet administration; `None` to all others.
pub(crate) fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let (from, level) = lid(*frame[6..].first_chunk()?)?;
    let (to, _) = lid(*frame.first_chunk()?)?;
    let mut answer = frame.get(..PAYLOAD + 256 + 4)?.to_vec();
    let asked = &frame[PAYLOAD..];
    let question = frame[BTH] == SEND_ONLY
        && frame[DESTINATION_QPN..][..3] == GSI_QPN.to_be_bytes()[1..]
        && (asked[0], asked[CLASS], asked[CLASS_VERSION]) == (1, class::ADMINISTRATION, 2)
        && asked[METHOD] & RESPONSE == 0
        && asked[RMPP_FLAGS] & RMPP_ACTIVE == 0;
    if !question {
        return None;
    }
    let said = &mut answer[PAYLOAD..];
    said[METHOD] = match asked[METHOD] {
        method::SET => method::GET_RESPONSE,
        method => method | RESPONSE,
    };
    said[STATUS..STATUS + 2].copy_from_slice(&BUSY.to_be_bytes());
    answer[DESTINATION_QPN..DESTINATION_QPN + 3]
        .copy_from_slice(&frame[SOURCE_QPN..SOURCE_QPN + 3]);
    answer[SOURCE_QPN..SOURCE_QPN + 3].copy_from_slice(&GSI_QPN.to_be_bytes()[1..]);
    answer[QKEY..QKEY + 4].copy_from_slice(&GSI_QKEY.to_be_bytes());
    answer[..6].copy_from_slice(&mac(from, level));
    answer[6..12].copy_from_slice(&mac(to, level));
    answer[SOURCE..SOURCE + 16].copy_from_slice(&local(to));
    answer[DESTINATION..DESTINATION + 16].copy_from_slice(&local(from));
    reseal(&mut answer).then_some(answer)
}
