//! Groups and options of the connection manager's ids, and their way from one file to another.

use std::collections::VecDeque;

use bareverbs_node::cm::rdma::{EventType, IdOption, IdState, JoinMulticast};
use libc::c_int;

use crate::attrs::Result;
use crate::cm::{Id, Written, from_c, is_open, refused};
use crate::cm_abi::{
    CmIdOnly, DestroyIdIn, JoinIpMcastIn, JoinMcastIn, MigrateIdIn, SetOptionIn, Sockaddr, option,
};
use crate::cm_group::{Group, is_of_group};
use crate::program_memory;
use crate::server::Server;

/// The longest value of an option (`KMALLOC_MAX_SIZE`).
const MOST_BYTES: u32 = 4 << 20;
/// `RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER`; 0 is `RDMA_MC_JOIN_FLAG_FULLMEMBER`.
const SEND_ONLY: u16 = 1;

impl Server<'_, '_, '_> {
    pub(crate) fn join_ip_mcast(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let asked: JoinIpMcastIn = written.input()?;
        let JoinIpMcastIn {
            response,
            uid,
            address,
            id,
        } = asked;
        self.join(fd, written, response, (id, uid), &address, false)
    }

    pub(crate) fn join_mcast(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let asked: JoinMcastIn = written.input()?;
        let size = match i32::from(asked.address.family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        };
        if usize::from(asked.address_size) != size || asked.flags > SEND_ONLY {
            return Err(libc::EINVAL);
        }
        let send_only = asked.flags == SEND_ONLY;
        let named = (asked.id, asked.uid);
        self.join(
            fd,
            written,
            asked.response,
            named,
            &asked.address,
            send_only,
        )
    }

    fn join(
        &mut self,
        fd: c_int,
        written: &Written,
        response: u64,
        (id, uid): (u32, u64),
        address: &Sockaddr,
        send_only: bool,
    ) -> Result<()> {
        let group = from_c(address)?.ip();
        let cm = self.manager.id_of(fd, id)?.cm;
        let number = self.manager.next_group.wrapping_add(1);
        let wanted = JoinMulticast {
            group,
            send_only,
            context: number.into(),
        };
        self.cm.join_multicast_ex(cm, &wanted).map_err(refused)?;
        let joined = Group {
            id,
            group,
            uid,
            events: 0,
        };
        self.manager.next_group = number;
        self.manager.groups.insert(number, joined);
        let answered = written.output(response, &CmIdOnly { id: number });
        if answered.is_err() {
            // The program does not know it.
            self.leave(number);
        }
        answered
    }

    pub(crate) fn leave_mcast(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let DestroyIdIn {
            response,
            id: number,
            ..
        } = written.input()?;
        let group = self.manager.groups.get(&number).ok_or(libc::ENOENT)?;
        let (id, events) = (group.id, group.events);
        self.manager.id_of(fd, id)?;
        self.leave(number);
        self.drop_events(fd, |waiting| {
            is_of_group(waiting.event.event) && waiting.named == number
        });
        written.output(response, &events)
    }

    fn leave(&mut self, number: u32) {
        let Some(Group { id, group, .. }) = self.manager.groups.remove(&number) else {
            return;
        };
        if let Some(&mut Id { cm, .. }) = self.manager.id(id)
            && let Err(error) = self.cm.leave_multicast(cm, group)
        {
            // As Linux: the program has left in any case.
            log::debug!("{error}");
        }
    }

    pub(crate) fn set_option(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let asked: SetOptionIn = written.input()?;
        if asked.len > MOST_BYTES {
            return Err(libc::EINVAL);
        }
        let cm = self.manager.id_of(fd, asked.id)?.cm;
        // Linux copies the value before it looks at the option.
        let mut value = vec![0; asked.len as usize];
        program_memory::read(asked.value, &mut value)?;
        let option = match (asked.level, asked.option) {
            // Linux takes it in every state, and looks at it when it resolves the route.
            (option::ID, option::TOS) => {
                let [tos] = exactly(&value)?;
                match self.cm.state(cm).map_err(refused)? {
                    IdState::Idle
                    | IdState::AddrBound
                    | IdState::AddrQuery
                    | IdState::AddrResolved => IdOption::Tos(tos),
                    _ => return Ok(()),
                }
            }
            (option::ID, option::REUSEADDR) => IdOption::ReuseAddr(exactly(&value)? != [0; 4]),
            (option::ID, option::AFONLY) => IdOption::AfOnly(exactly(&value)? != [0; 4]),
            (option::ID, option::ACK_TIMEOUT) => {
                let [exponent] = exactly(&value)?;
                IdOption::AckTimeout(exponent)
            }
            // There is no InfiniBand port.
            (option::IB, option::IB_PATH) => return Err(libc::EINVAL),
            _ => return Err(libc::ENOSYS),
        };
        self.cm.set_option(cm, option).map_err(refused)
    }

    /// Gives an id, with the events that were not taken, to the file that the command was written to.
    pub(crate) fn migrate_id(&mut self, fd: c_int, written: &Written) -> Result<()> {
        let MigrateIdIn {
            response,
            id,
            fd: from,
        } = written.input()?;
        let from = from as c_int;
        let manager = &mut self.manager;
        if !manager.files.contains_key(&from) {
            return Err(match is_open(from) {
                true => libc::EINVAL,
                false => libc::ENOENT,
            });
        }
        let found = manager.id_of(from, id)?;
        found.file = fd;
        let events = found.events;
        let mut moved = VecDeque::new();
        if let Some(old) = manager.files.get_mut(&from) {
            let waiting = std::mem::take(&mut old.waiting);
            (moved, old.waiting) = waiting.into_iter().partition(|waiting| waiting.of() == id);
        }
        // The ids of requests go with their listener.
        for waiting in &moved {
            if waiting.event.event == EventType::ConnectRequest
                && let Some(new) = manager.id(waiting.named)
            {
                new.file = fd;
            }
        }
        let new = manager.files.get_mut(&fd).ok_or(libc::EINVAL)?;
        new.waiting.extend(moved);
        written.output(response, &events)
    }
}

/// The value of an option that has so many bytes.
fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N]> {
    value.try_into().map_err(|_| libc::EINVAL)
}
