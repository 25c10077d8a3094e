//! The other ends of our programs send this: rsockets' private data and messages, iperf3's control connection, and perf's
//! messages. What can be read can be written, and reads the same again.

use crate::input::{Input, STEPS};

#[path = "../../../examples/tcp_echo/iperf3/protocol.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of a program")]
mod iperf3;
#[path = "../../../examples/perf/protocol.rs"]
#[allow(dead_code, reason = "a part of a program")]
mod perf;
#[path = "../../../c-abi/src/rsocket/wire.rs"]
#[allow(dead_code, reason = "a part of a library")]
mod rsocket;
#[path = "../../../examples/perf/test.rs"]
#[allow(dead_code, reason = "a part of a program")]
mod test;

/// Runs an input.
///
/// # Panics
/// If anything comes of it that may not.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.byte() % 4 {
        0 => of_rsockets(&mut input),
        1 => of_iperf3(&mut input, false),
        2 => of_iperf3(&mut input, true),
        _ => of_perf(&mut input),
    }
}

fn of_rsockets(input: &mut Input<'_>) {
    use rsocket::{HELLO_LEN, Hello, MAPPING_LEN, Mapping, Message, TARGET_LEN, Target};
    if let Some(hello) = Hello::from_bytes(input.bytes(HELLO_LEN)) {
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Some(hello));
        let _ = (hello.target_at(u32::MAX), hello.mapping_at(u16::MAX));
    }
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        let immediate = u32::from(input.word()) | u32::from(input.word()) << 16;
        let message = Message::from_immediate(immediate);
        assert_eq!(Message::from_immediate(message.to_immediate()), message);
        let mut entry = [0; MAPPING_LEN];
        let bytes = input.bytes(MAPPING_LEN);
        entry[..bytes.len()].copy_from_slice(bytes);
        let mapping = Mapping::from_bytes(&entry);
        assert_eq!(mapping.to_bytes(false), entry);
        let offset = mapping.offset.wrapping_add(input.word().into());
        if let Some((addr, left)) = mapping.find(offset) {
            let inside = addr
                .checked_sub(mapping.target.addr)
                .expect("behind its beginning");
            assert_eq!(inside + u64::from(left), u64::from(mapping.target.length));
        }
        let target: [u8; TARGET_LEN] = *entry.first_chunk().expect("shorter");
        assert_eq!(Target::from_bytes(&target).to_bytes(false), target);
    }
}

/// JSON that comes in pieces.
fn of_iperf3(input: &mut Input<'_>, results: bool) {
    use iperf3::{Frame, Parameters, STREAMS, parse_results};
    let streams = 1 + usize::from(input.byte()) % STREAMS;
    let mut frame = if results {
        Frame::results()
    } else {
        Frame::parameters()
    };
    while let Ok(missing @ 1..) = frame.missing() {
        let most = 1 + usize::from(input.byte());
        let piece = input.bytes(missing.min(most));
        if piece.is_empty() {
            return;
        }
        frame.extend(piece);
    }
    if frame.missing().is_err() {
        return;
    }
    if results {
        if let Ok(bytes) = parse_results(&frame, streams) {
            assert_eq!(bytes.len(), streams);
            let again = iperf3::results(bytes.iter().copied(), false, 1.0);
            let mut frame = Frame::results();
            frame.extend(&again);
            assert_eq!(frame.missing(), Ok(0));
            assert_eq!(parse_results(&frame, streams), Ok(bytes));
        }
    } else if let Ok(parameters) = Parameters::parse(&frame) {
        assert!((1..=STREAMS).contains(&parameters.parallel));
        assert!((1..=1 << 20).contains(&parameters.block));
    }
}

fn of_perf(input: &mut Input<'_>) {
    use perf::{Answer, Ask, Hello, MESSAGE, Welcome};
    let private_data = input.bytes(56);
    if let Ok(hello) = Hello::from_bytes(private_data) {
        assert_eq!(Hello::from_bytes(&hello.to_bytes()), Ok(hello));
    }
    if let Ok(welcome) = Welcome::from_bytes(private_data) {
        assert_eq!(Welcome::from_bytes(&welcome.to_bytes()), Ok(welcome));
    }
    while !input.is_empty() {
        let mut message = [0; MESSAGE];
        let bytes = input.bytes(MESSAGE);
        message[..bytes.len()].copy_from_slice(bytes);
        if let Some(ask) = Ask::from_bytes(&message)
            && !matches!(ask, Ask::Failed(_))
        {
            assert_eq!(Ask::from_bytes(&ask.to_bytes()), Some(ask));
        }
        if let Some(answer) = Answer::from_bytes(&message)
            && !matches!(answer, Answer::Failed(_))
        {
            assert_eq!(Answer::from_bytes(&answer.to_bytes()), Some(answer));
        }
    }
}
