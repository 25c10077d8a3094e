//! The frames of a long recording that are looked at.

use connectx_model::pcap::{ReadError, Reader, Writer};
use connectx_model::roce::packet::Packet;
use std::collections::HashMap;

/// Number of frames of a kind that are dissected, the first ones: a performance test sends the same over and over.
const MOST_OF_A_KIND: usize = 500;

/// The properties that make frames alike.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// RoCE: what is in front of it and its opcode, and for management datagrams the class and the attribute.
    Roce([u8; 2], u8, Option<[u8; 3]>),
    /// Anything else: its Ethertype, and one more byte that has the protocol where it is IP.
    Other([u8; 2], u8),
}

fn kind(frame: &[u8]) -> Kind {
    let byte = |at: usize| frame.get(at).copied().unwrap_or_default();
    let ethertype = [byte(12), byte(13)];
    match Packet::parse(frame) {
        Ok(packet) => {
            let management = packet.repr.bth.destination_qpn <= 1;
            let datagram = packet.payload.first_chunk::<18>();
            let message = datagram.map(|mad| [mad[1], mad[16], mad[17]]);
            Kind::Roce(
                ethertype,
                packet.repr.bth.opcode.byte(),
                message.filter(|_| management),
            )
        }
        Err(_) => Kind::Other(ethertype, byte(23)),
    }
}

/// The frames of a recording that are looked at, as a recording, and how many there are of how many.
pub(super) fn sample(recording: &[u8]) -> Result<(Vec<u8>, [usize; 2]), String> {
    let mut kinds: HashMap<Kind, usize> = HashMap::new();
    let mut sampled = Writer::new(Vec::new()).map_err(|e| e.to_string())?;
    let [mut kept, mut all] = [0, 0];
    for record in Reader::new(recording).map_err(|e| e.to_string())? {
        let record = match record {
            // The recorder was killed, which ends some scenarios.
            Err(ReadError::Truncated) if all > 0 => break,
            record => record.map_err(|e| e.to_string())?,
        };
        all += 1;
        let count = kinds.entry(kind(record.data)).or_default();
        *count += 1;
        if *count <= MOST_OF_A_KIND {
            kept += 1;
            sampled
                .write(record.data, record.at)
                .map_err(|e| e.to_string())?;
        }
    }
    let sampled = sampled.finish().map_err(|e| e.to_string())?;
    Ok((sampled, [kept, all]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn much_of_one_kind_hides_nothing_of_another() {
        let mut recording = Writer::new(Vec::new()).unwrap();
        let mut arp = [0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let mut ip = arp;
        ip[13] = 0;
        for _ in 0..MOST_OF_A_KIND + 5 {
            recording.write(&arp, Duration::ZERO).unwrap();
        }
        for protocol in [6, 17] {
            ip[23] = protocol;
            recording.write(&ip, Duration::ZERO).unwrap();
        }
        let recording = recording.finish().unwrap();
        let (sampled, counts) = sample(&recording).unwrap();
        assert_eq!(counts, [MOST_OF_A_KIND + 2, MOST_OF_A_KIND + 7]);
        let frames: Vec<_> = Reader::new(&sampled)
            .unwrap()
            .map(|record| record.unwrap().data)
            .collect();
        assert_eq!(frames.len(), counts[0]);
        assert_eq!(*frames.last().unwrap(), ip);
        assert_eq!(sample(&sampled).unwrap().1, [counts[0]; 2]);
        let cut = &sampled[..sampled.len() - 1];
        assert_eq!(sample(cut).unwrap().1, [counts[0] - 1; 2]);
    }
}
