//! Multicast groups: letting their frames in, and reporting them to routers and switches (IGMPv2, RFC 2236; MLDv2, RFC
//! 3810).

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use smoltcp::wire::{
    Icmpv6Packet, IgmpPacket, IgmpRepr, IgmpVersion, IpProtocol, Ipv4Packet, Ipv6Repr,
    MldAddressRecordRepr, MldRecordType, MldRepr,
};

use super::frame::{Header, IPV4, IPV6, emit_ipv6, multicast_mac, solicited_node};
use super::{Filter, Host, HostError, check_vlan};

const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_ROUTERS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_MLDV2_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);

/// A report may be lost, so it is sent this often (Robustness Variable),
const REPORTS: u8 = 2;
/// the second time after at most this time (Unsolicited Report Interval).
const IGMP_INTERVAL: Duration = Duration::from_secs(10);
const MLD_INTERVAL: Duration = Duration::from_secs(1);

/// An IPv4 header with a router alert (RFC 2113), and a hop-by-hop header with one (RFC 2711).
const IPV4_ALERT_LEN: usize = 24;
const IPV4_ALERT: [u8; 4] = [0x94, 4, 0, 0];
const IPV6_ALERT: [u8; 8] = [58, 0, 5, 2, 0, 0, 1, 0];

/// Memory of one multicast group of a [`Host`].
#[derive(Debug, Clone, Copy)]
pub struct GroupSlot {
    state: State,
    ip: IpAddr,
    vlan: Option<u16>,
    /// Reports of a change still to be sent.
    changes: u8,
    pub(super) due: Option<Duration>,
    let_in: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// The number of joins.
    In(u16),
    /// No longer needed, but that has to be reported.
    Leaving,
}

impl GroupSlot {
    /// No group.
    pub const EMPTY: Self = Self {
        state: State::Free,
        ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        vlan: None,
        changes: 0,
        due: None,
        let_in: false,
    };

    /// Groups that every host is in are not reported, nor those that stay inside a machine.
    fn is_reported(&self) -> bool {
        match self.ip {
            IpAddr::V4(ip) => ip != ALL_SYSTEMS,
            IpAddr::V6(ip) => ip != ALL_NODES && ip.octets()[1] & 0xf >= 2,
        }
    }
}

impl Host<'_> {
    /// Joins a multicast group. Joining twice takes leaving twice.
    ///
    /// # Errors
    /// If it is no such group, or if the storage is full.
    pub fn join_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), HostError> {
        check_vlan(vlan)?;
        if !group.is_multicast() {
            return Err(HostError::NotAGroup(group));
        }
        let full = HostError::Full {
            what: "groups",
            max: self.groups.len(),
        };
        let is =
            |slot: &GroupSlot| slot.state != State::Free && slot.ip == group && slot.vlan == vlan;
        let free = |slot: &GroupSlot| slot.state == State::Free;
        let index = self.groups.iter().position(is);
        let index = index.or_else(|| self.groups.iter().position(free));
        let index = index.ok_or(full)?;
        let slot = &mut self.groups[index];
        match slot.state {
            State::In(uses) => {
                slot.state = State::In(uses.checked_add(1).ok_or(full)?);
                return Ok(());
            }
            State::Leaving => slot.state = State::In(1),
            State::Free => {
                *slot = GroupSlot {
                    state: State::In(1),
                    ip: group,
                    vlan,
                    ..GroupSlot::EMPTY
                }
            }
        }
        if slot.is_reported() {
            slot.changes = REPORTS;
            self.group_due(index, now);
        }
        Ok(())
    }

    /// Undoes one [`join_group`](Self::join_group).
    ///
    /// # Errors
    /// If it was not joined.
    pub fn leave_group(
        &mut self,
        now: Duration,
        group: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), HostError> {
        let is = |slot: &GroupSlot| {
            matches!(slot.state, State::In(_)) && slot.ip == group && slot.vlan == vlan
        };
        let index = self.groups.iter().position(is);
        let index = index.ok_or(HostError::Unknown(group))?;
        let slot = &mut self.groups[index];
        if let State::In(uses @ 2..) = slot.state {
            slot.state = State::In(uses - 1);
            return Ok(());
        }
        slot.state = State::Leaving;
        slot.due = None;
        slot.changes = 0;
        if slot.is_reported() {
            slot.changes = 1;
            self.group_due(index, now);
        }
        self.free_group(index);
        Ok(())
    }

    /// The groups that were joined, and their VLANs.
    pub fn groups(&self) -> impl Iterator<Item = (IpAddr, Option<u16>)> {
        let joined = |slot: &&GroupSlot| matches!(slot.state, State::In(_));
        let joined = self.groups.iter().filter(joined);
        joined.map(|slot| (slot.ip, slot.vlan))
    }

    /// The next change of the filter on frames that the port lets in.
    pub fn poll_filter(&mut self) -> Option<Filter> {
        let wrong = |slot: &GroupSlot| match slot.state {
            State::Free => false,
            State::In(_) => !slot.let_in,
            State::Leaving => slot.let_in,
        };
        let index = self.groups.iter().position(wrong)?;
        let slot = &mut self.groups[index];
        slot.let_in = !slot.let_in;
        let (mac, join) = (multicast_mac(slot.ip), slot.let_in);
        self.free_group(index);
        Some(if join {
            Filter::Join(mac)
        } else {
            Filter::Leave(mac)
        })
    }

    /// Enters the groups that make the host found under an address, and receive the queries of multicast routers.
    pub(super) fn enter_groups_of(
        &mut self,
        now: Duration,
        address: IpAddr,
        vlan: Option<u16>,
    ) -> Result<(), HostError> {
        let mut before = None;
        for group in groups_of(address).into_iter().flatten() {
            if let Err(error) = self.join_group(now, group, vlan) {
                if let Some(before) = before {
                    let _ = self.leave_group(now, before, vlan);
                }
                return Err(error);
            }
            before = Some(group);
        }
        Ok(())
    }

    pub(super) fn leave_groups_of(&mut self, now: Duration, address: IpAddr, vlan: Option<u16>) {
        for group in groups_of(address).into_iter().flatten() {
            let _ = self.leave_group(now, group, vlan);
        }
    }

    fn group_due(&mut self, index: usize, at: Duration) {
        self.groups[index].due = Some(at);
        self.remind(at);
    }

    /// Frees the slot of a group that was left, once that was reported as often as it has to be.
    fn free_group(&mut self, index: usize) {
        let slot = &mut self.groups[index];
        if slot.state == State::Leaving && !slot.let_in && slot.due.is_none() {
            *slot = GroupSlot::EMPTY;
        }
    }

    /// A router asks for the members of a group, or of any if the address is none: answered at some time before
    /// `within` is over.
    fn asked(&mut self, now: Duration, group: IpAddr, vlan: Option<u16>, within: Duration) {
        for index in 0..self.groups.len() {
            let slot = &self.groups[index];
            let meant = matches!(slot.state, State::In(_))
                && slot.is_reported()
                && slot.vlan == vlan
                && slot.ip.is_ipv4() == group.is_ipv4()
                && (group.is_unspecified() || slot.ip == group);
            if meant {
                let at = now.saturating_add(self.up_to(within));
                let slot = &self.groups[index];
                let at = slot.due.map_or(at, |due| due.min(at));
                self.group_due(index, at);
            }
        }
    }

    pub(super) fn receive_igmp(
        &mut self,
        now: Duration,
        vlan: Option<u16>,
        payload: &[u8],
    ) -> Option<()> {
        let packet = IgmpPacket::new_checked(payload).ok()?;
        if !packet.verify_checksum() {
            return None;
        }
        let IgmpRepr::MembershipQuery {
            max_resp_time,
            group_addr,
            ..
        } = IgmpRepr::parse(&packet).ok()?
        else {
            return None;
        };
        let within = Duration::from_micros(max_resp_time.total_micros());
        self.asked(now, group_addr.into(), vlan, within);
        Some(())
    }

    pub(super) fn receive_mld(
        &mut self,
        now: Duration,
        vlan: Option<u16>,
        ip: &Ipv6Repr,
        query: &Icmpv6Packet<&[u8]>,
    ) -> Option<()> {
        if ip.hop_limit != 1 || !ip.src_addr.is_unicast_link_local() {
            return None;
        }
        // Codes from 0x8000 on are a floating-point form of longer times; sooner is early enough.
        let within = Duration::from_millis(u64::from(query.max_resp_code().min(0x7fff)));
        self.asked(now, query.mcast_addr().into(), vlan, within);
        Some(())
    }

    /// Sends the report that is due.
    pub(super) fn transmit_group(&mut self, now: Duration, buffer: &mut [u8]) -> Option<usize> {
        loop {
            let is_due = |slot: &GroupSlot| slot.due.is_some_and(|due| due <= now);
            let index = self.groups.iter().position(is_due)?;
            let interval = self.up_to(match self.groups[index].ip {
                IpAddr::V4(_) => IGMP_INTERVAL,
                IpAddr::V6(_) => MLD_INTERVAL,
            });
            let slot = &mut self.groups[index];
            slot.due = None;
            let change = slot.changes > 0;
            slot.changes = slot.changes.saturating_sub(1);
            let (ip, vlan, leaving) = (slot.ip, slot.vlan, slot.state == State::Leaving);
            if slot.changes > 0 {
                self.group_due(index, now.saturating_add(interval));
            }
            self.free_group(index);
            let sent = match ip {
                IpAddr::V4(group) => self.igmp_report(buffer, group, vlan, leaving),
                IpAddr::V6(group) => {
                    let record = match (leaving, change) {
                        (true, _) => MldRecordType::ChangeToInclude,
                        (false, true) => MldRecordType::ChangeToExclude,
                        (false, false) => MldRecordType::ModeIsExclude,
                    };
                    self.mld_report(buffer, group, vlan, record)
                }
            };
            if sent.is_some() {
                return sent;
            }
        }
    }

    fn igmp_report(
        &self,
        buffer: &mut [u8],
        group: Ipv4Addr,
        vlan: Option<u16>,
        leaving: bool,
    ) -> Option<usize> {
        let source = self.ipv4_in(vlan).unwrap_or(Ipv4Addr::UNSPECIFIED);
        let (destination, repr) = if leaving {
            (ALL_ROUTERS, IgmpRepr::LeaveGroup { group_addr: group })
        } else {
            let repr = IgmpRepr::MembershipReport {
                group_addr: group,
                version: IgmpVersion::Version2,
            };
            (group, repr)
        };
        let header = Header {
            destination: multicast_mac(destination.into()),
            source: self.mac,
            vlan,
            kind: IPV4,
        };
        let length = IPV4_ALERT_LEN + repr.buffer_len();
        header.emit(buffer, length, |bytes| {
            let mut packet = Ipv4Packet::new_unchecked(&mut bytes[..]);
            packet.set_version(4);
            packet.set_header_len(IPV4_ALERT_LEN as u8);
            packet.set_total_len(length as u16);
            packet.set_hop_limit(1);
            packet.set_next_header(IpProtocol::Igmp);
            packet.set_src_addr(source);
            packet.set_dst_addr(destination);
            repr.emit(&mut IgmpPacket::new_unchecked(packet.payload_mut()));
            bytes[IPV4_ALERT_LEN - 4..IPV4_ALERT_LEN].copy_from_slice(&IPV4_ALERT);
            Ipv4Packet::new_unchecked(bytes).fill_checksum();
        })
    }

    fn mld_report(
        &self,
        buffer: &mut [u8],
        group: Ipv6Addr,
        vlan: Option<u16>,
        record: MldRecordType,
    ) -> Option<usize> {
        // Before there is a link-local address it comes from none (RFC 3590).
        let link_local = |ip: IpAddr| match ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
            _ => None,
        };
        let mut own = self.addresses().filter(|(.., of)| *of == vlan);
        let source = own.find_map(|(ip, ..)| link_local(ip));
        let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let records = [MldAddressRecordRepr::new(record, group)];
        let repr = MldRepr::ReportRecordReprs(&records);
        let destination = ALL_MLDV2_ROUTERS;
        let header = Header {
            destination: multicast_mac(destination.into()),
            source: self.mac,
            vlan,
            kind: IPV6,
        };
        // The report's own length leaves out its records.
        let report = repr.buffer_len() + records[0].buffer_len();
        let length = smoltcp::wire::IPV6_HEADER_LEN + IPV6_ALERT.len() + report;
        header.emit(buffer, length, |packet| {
            let protocol = IpProtocol::HopByHop;
            emit_ipv6(packet, source, destination, protocol, 1, |payload| {
                let (alert, payload) = payload.split_at_mut(IPV6_ALERT.len());
                alert.copy_from_slice(&IPV6_ALERT);
                let mut packet = Icmpv6Packet::new_unchecked(payload);
                repr.emit(&mut packet);
                packet.fill_checksum(&source, &destination);
            });
        })
    }
}

/// The groups that an address comes with.
fn groups_of(address: IpAddr) -> [Option<IpAddr>; 2] {
    match address {
        IpAddr::V4(_) => [Some(ALL_SYSTEMS.into()), None],
        IpAddr::V6(address) => [Some(ALL_NODES.into()), Some(solicited_node(address).into())],
    }
}
