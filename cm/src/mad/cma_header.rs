//! The header that the RDMA CM puts before the private data of REQ and SIDR_REQ (IBTA annex A11, RDMA IP CM service).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::MadError;

/// Source and destination of a connection, as IP addresses; the destination port is in the service ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmaHeader {
    /// Port of the connecting side.
    pub source_port: u16,
    /// Address of the connecting side.
    pub source: IpAddr,
    /// Address that is connected to; always of the source's family.
    pub destination: IpAddr,
}

impl CmaHeader {
    /// Bytes of private data that the header takes.
    pub const LEN: usize = 36;
    /// The bytes of a REQ's private data that are left for the consumer.
    pub const REQ_PRIVATE_DATA_MAX: usize = super::Req::PRIVATE_DATA_MAX - Self::LEN;
    /// The bytes of a SIDR_REQ's private data that are left for the consumer.
    pub const SIDR_REQ_PRIVATE_DATA_MAX: usize = super::SidrReq::PRIVATE_DATA_MAX - Self::LEN;

    /// Splits private data into the header and the consumer's bytes.
    pub fn parse(private_data: &[u8]) -> Result<(Self, &[u8]), MadError> {
        let Some((head, rest)) = private_data.split_first_chunk::<{ Self::LEN }>() else {
            return Err(MadError::Truncated {
                len: private_data.len(),
                need: Self::LEN,
            });
        };
        // The minor version may grow without harm; another major version has another layout.
        if head[0] >> 4 != 0 {
            return Err(MadError::CmaVersion(head[0]));
        }
        let address = |at: usize| -> Result<IpAddr, MadError> {
            let mut bytes = [0u8; 16];
            bytes.copy_from_slice(&head[at..at + 16]);
            match head[1] >> 4 {
                4 => Ok(IpAddr::V4(Ipv4Addr::new(
                    bytes[12], bytes[13], bytes[14], bytes[15],
                ))),
                6 => Ok(IpAddr::V6(Ipv6Addr::from(bytes))),
                _ => Err(MadError::IpVersion(head[1] >> 4)),
            }
        };
        let header = Self {
            source_port: u16::from_be_bytes([head[2], head[3]]),
            source: address(4)?,
            destination: address(20)?,
        };
        Ok((header, rest))
    }

    /// Writes the header. Both addresses are of one family.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) -> Result<(), MadError> {
        out.fill(0);
        out[2..4].copy_from_slice(&self.source_port.to_be_bytes());
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                out[1] = 4 << 4;
                out[16..20].copy_from_slice(&source.octets());
                out[32..36].copy_from_slice(&destination.octets());
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                out[1] = 6 << 4;
                out[4..20].copy_from_slice(&source.octets());
                out[20..36].copy_from_slice(&destination.octets());
            }
            _ => return Err(MadError::MixedFamilies),
        }
        Ok(())
    }
}
