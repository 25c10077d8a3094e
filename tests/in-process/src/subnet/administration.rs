//! The records of subnet administration, and its answers (IBTA volume 1, chapter 15.2.5).

use super::{Datagram, SA_LID};

/// Offsets in a MAD.
const METHOD: usize = 3;
const STATUS: usize = 4;
const ATTRIBUTE: usize = 16;
const RECORD_OFFSET: usize = 44;
const COMPONENTS: usize = 48;
const DATA: usize = 56;

const GET: u8 = 0x01;
const SET: u8 = 0x02;
const DELETE: u8 = 0x15;
const RESPONSE: u8 = 0x80;

const CLASS_PORT_INFO: u16 = 0x01;
const INFORM_INFO: u16 = 0x03;
const PATH_RECORD: u16 = 0x35;
const MC_MEMBER_RECORD: u16 = 0x38;

/// Statuses.
const UNSUPPORTED: u16 = 0x000c;
const REQUEST_INVALID: u16 = 0x0200;
const NO_RECORDS: u16 = 0x0300;
const INSUFFICIENT_COMPONENTS: u16 = 0x0600;

/// SGID, DGID, the number of paths.
const PATH_NEEDS: u64 = 1 << 2 | 1 << 3 | 1 << 12;
/// MGID, PortGID, JoinState.
const MEMBER_NEEDS: u64 = 1 << 0 | 1 << 1 | 1 << 16;
/// The components that a new group has to have beside: Q_Key, TClass, P_Key, SL, flow label.
const GROUP_NEEDS: u64 = 1 << 2 | 1 << 6 | 1 << 7 | 1 << 12 | 1 << 13;

const FIRST_MLID: u16 = 0xc001;
/// The number of LIDs for groups.
const MLIDS: u16 = 0x3ffe;

/// A port of the subnet.
#[derive(Debug, Clone, Copy)]
pub struct Port {
    /// Its GID.
    pub gid: [u8; 16],
    /// Its LID.
    pub lid: u16,
}

/// The attributes of all paths.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// Code of the MTU.
    pub mtu: u8,
    /// Code of the rate.
    pub rate: u8,
    /// Exponent of the packet lifetime.
    pub packet_lifetime: u8,
    /// Service level.
    pub service_level: u8,
    /// Hop limit; above 0 for a way through routers.
    pub hop_limit: u8,
}

/// A multicast group and its members: GIDs and how they joined.
#[derive(Debug, Clone)]
pub struct Group {
    /// Its GID.
    pub mgid: [u8; 16],
    /// Its LID.
    pub mlid: u16,
    /// The record without what is the member's.
    pub record: [u8; 52],
    /// The members, and the state of each.
    pub members: Vec<([u8; 16], u8)>,
}

/// The default partition, as its full members have it.
const DEFAULT_PKEY: u16 = 0xffff;

impl Group {
    /// The group of all interfaces of IP over InfiniBand in the default partition (RFC 4391, section 4), as OpenSM makes it:
    /// 2048 bytes, 10 Gb/s, Q_Key 0xb1b.
    #[must_use]
    pub fn all_interfaces() -> Self {
        Self::all_interfaces_in(DEFAULT_PKEY)
    }

    /// The same in another partition.
    #[must_use]
    pub fn all_interfaces_in(pkey: u16) -> Self {
        let partition = u128::from(pkey | 0x8000) << 80;
        let mgid = 0xff12_401b_0000_0000_0000_0000_ffff_ffff_u128 | partition;
        let mgid = mgid.to_be_bytes();
        let mlid = 0xc000_u16;
        let mut record = [0; 52];
        record[..16].copy_from_slice(&mgid);
        record[32..36].copy_from_slice(&0xb1b_u32.to_be_bytes());
        record[36..38].copy_from_slice(&mlid.to_be_bytes());
        record[38] = 2 << 6 | 4;
        record[40..42].copy_from_slice(&pkey.to_be_bytes());
        record[42] = 2 << 6 | 3;
        record[43] = 2 << 6 | 18;
        record[48] = 2 << 4;
        Self {
            mgid,
            mlid,
            record,
            // The manager's own, or the group would end with its last member.
            members: vec![([0xfe; 16], 1)],
        }
    }
}

/// Everything that is known.
#[derive(Debug)]
pub struct Administration {
    /// The LID that it answers at.
    pub lid: u16,
    /// The ports.
    pub ports: Vec<Port>,
    /// The paths between them.
    pub path: Path,
    /// The groups.
    pub groups: Vec<Group>,
}

impl Default for Administration {
    /// No ports; paths of 2048 bytes and 100 Gb/s, a packet lifetime of 2^14 · 4.096 µs, service level 3.
    fn default() -> Self {
        Self {
            lid: SA_LID,
            ports: Vec::new(),
            path: Path {
                mtu: 4,
                rate: 16,
                packet_lifetime: 14,
                service_level: 3,
                hop_limit: 0,
            },
            groups: Vec::new(),
        }
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |all, &byte| all << 8 | u64::from(byte))
}

fn gid(record: &[u8], at: usize) -> [u8; 16] {
    let mut gid = [0; 16];
    gid.copy_from_slice(&record[at..at + 16]);
    gid
}

/// The place of a group's LID among those that there are, if no other group has it. It depends on the GID alone, so that
/// several subnet administrations of one subnet agree.
fn preferred_mlid(mgid: [u8; 16]) -> u16 {
    // FNV-1a.
    let hash = mgid.iter().fold(0x811c_9dc5_u32, |hash, &byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash % u32::from(MLIDS)) as u16
}

impl Administration {
    /// The answer to a question; a status in place of what it would be, if there is one. `None` where there is nothing to say.
    pub(super) fn answer(&mut self, asked: &Datagram, refused: Option<u16>) -> Option<Datagram> {
        let method = asked[METHOD];
        if method & RESPONSE != 0 {
            return None;
        }
        let mut answer = *asked;
        answer[METHOD] = match method {
            DELETE => DELETE | RESPONSE,
            _ => GET | RESPONSE,
        };
        let components = number(&asked[COMPONENTS..DATA]);
        let attribute = number(&asked[ATTRIBUTE..ATTRIBUTE + 2]) as u16;
        let record = &mut answer[DATA..];
        let status = match (refused, attribute, method) {
            (Some(status), _, _) => status,
            (None, CLASS_PORT_INFO, GET) => {
                record.fill(0);
                // Versions; send-only full members; 2^18 · 4.096 µs to an answer.
                record[..8].copy_from_slice(&[1, 2, 0, 0, 0, 0x02, 0, 18]);
                0
            }
            // What is subscribed to is the test's business.
            (None, INFORM_INFO, SET) => 0,
            (None, PATH_RECORD, GET) => self.path(components, record),
            (None, MC_MEMBER_RECORD, GET) => self.look(components, record),
            (None, MC_MEMBER_RECORD, SET) => self.join(components, record),
            (None, MC_MEMBER_RECORD, DELETE) => self.leave(components, record),
            _ => UNSUPPORTED,
        };
        answer[STATUS..STATUS + 2].copy_from_slice(&status.to_be_bytes());
        // The distance between records, in units of 8 bytes.
        answer[RECORD_OFFSET + 1] = match (status, attribute) {
            (0, PATH_RECORD) => 8,
            (0, MC_MEMBER_RECORD) => 7,
            _ => 0,
        };
        Some(answer)
    }

    fn port(&self, gid: [u8; 16]) -> Option<Port> {
        self.ports.iter().find(|port| port.gid == gid).copied()
    }

    fn path(&self, components: u64, record: &mut [u8]) -> u16 {
        if components & PATH_NEEDS != PATH_NEEDS {
            return INSUFFICIENT_COMPONENTS;
        }
        let (to, from) = (self.port(gid(record, 8)), self.port(gid(record, 24)));
        let (Some(to), Some(from)) = (to, from) else {
            return NO_RECORDS;
        };
        // As OpenSM has it: the path is no service's, it is reversible, and paths are not counted.
        record[..8].fill(0);
        record[49] = 0x80;
        record[40..42].copy_from_slice(&to.lid.to_be_bytes());
        record[42..44].copy_from_slice(&from.lid.to_be_bytes());
        record[47] = self.path.hop_limit;
        record[53] = record[53] & 0xf0 | self.path.service_level;
        // Exactly these.
        record[54] = 2 << 6 | self.path.mtu;
        record[55] = 2 << 6 | self.path.rate;
        record[56] = 2 << 6 | self.path.packet_lifetime;
        0
    }

    fn group(&mut self, record: &[u8]) -> Option<&mut Group> {
        let mgid = gid(record, 0);
        self.groups.iter_mut().find(|group| group.mgid == mgid)
    }

    fn look(&mut self, components: u64, record: &mut [u8]) -> u16 {
        if components & 1 == 0 {
            return INSUFFICIENT_COMPONENTS;
        }
        let Some(group) = self.group(record) else {
            return NO_RECORDS;
        };
        record[..52].copy_from_slice(&group.record);
        0
    }

    fn join(&mut self, components: u64, record: &mut [u8]) -> u16 {
        if components & MEMBER_NEEDS != MEMBER_NEEDS {
            return INSUFFICIENT_COMPONENTS;
        }
        let (port, state) = (gid(record, 16), record[48] & 0xf);
        if self.port(port).is_none() || state == 0 {
            return REQUEST_INVALID;
        }
        if self.group(record).is_none() {
            if components & GROUP_NEEDS != GROUP_NEEDS {
                return INSUFFICIENT_COMPONENTS;
            }
            self.make(record);
        }
        let Some(group) = self.group(record) else {
            return REQUEST_INVALID;
        };
        match group.members.iter_mut().find(|(gid, _)| *gid == port) {
            Some((_, states)) => *states |= state,
            None => group.members.push((port, state)),
        }
        record[..52].copy_from_slice(&group.record);
        record[16..32].copy_from_slice(&port);
        record[48] = group.record[48] & 0xf0 | state;
        0
    }

    fn make(&mut self, asked: &[u8]) {
        let taken = |mlid: &u16| self.groups.iter().any(|group| group.mlid == *mlid);
        let preferred = preferred_mlid(gid(asked, 0));
        let mut places = (0..MLIDS).map(|place| FIRST_MLID + (preferred + place) % MLIDS);
        let mlid = places.find(|mlid| !taken(mlid)).unwrap_or(0);
        let mut record = [0; 52];
        record.copy_from_slice(&asked[..52]);
        record[16..32].fill(0);
        record[36..38].copy_from_slice(&mlid.to_be_bytes());
        record[38] = 2 << 6 | self.path.mtu;
        record[42] = 2 << 6 | self.path.rate;
        record[43] = 2 << 6 | self.path.packet_lifetime;
        record[48] = asked[1] << 4;
        self.groups.push(Group {
            mgid: gid(asked, 0),
            mlid,
            record,
            members: Vec::new(),
        });
    }

    fn leave(&mut self, components: u64, record: &mut [u8]) -> u16 {
        if components & MEMBER_NEEDS != MEMBER_NEEDS {
            return INSUFFICIENT_COMPONENTS;
        }
        let (port, state) = (gid(record, 16), record[48] & 0xf);
        let Some(group) = self.group(record) else {
            return REQUEST_INVALID;
        };
        let Some((_, states)) = group.members.iter_mut().find(|(gid, _)| *gid == port) else {
            return REQUEST_INVALID;
        };
        if *states & state == 0 {
            return REQUEST_INVALID;
        }
        *states &= !state;
        // As OpenSM has it: of the group there is nothing but the selectors ("exactly"), and how the port is still in it.
        record[32..48].fill(0);
        for at in [38, 42, 43] {
            record[at] = 2 << 6;
        }
        record[48] = group.record[48] & 0xf0 | *states;
        group.members.retain(|(_, states)| *states != 0);
        self.groups.retain(|group| !group.members.is_empty());
        0
    }
}
