//! Mailbox blocks: where the part of a command lies that does not fit into its queue entry; spreading a message over both.
//!
//! Almost every command needs a handful of blocks, and takes them from one pool that is allocated once. A long page or
//! translation list needs thousands; its chain is allocated for it alone, in as few pieces as the platform can provide.
//! Which blocks are in use is recorded outside the memory that the device can write.

use core::alloc::Layout;

use bareverbs_firmware_cmds::cmdq::{
    BLOCK_ALIGN, BLOCK_DATA_SIZE, CommandQueueEntry, INLINE_SIZE, MailboxBlock,
};

use crate::memory::dma::DmaMemory;
use crate::platform::{DmaError, Platform};
use crate::types::error::BadOutput;

/// Blocks of the pool, one bit each.
const POOL_BLOCKS: u32 = 64;
/// Pool blocks that only page commands may take: they are what the others wait for.
const RESERVED: u64 = 0xff << 56;
/// Chains longer than this do not come from the pool, or two of them would empty it.
const POOL_LIMIT: usize = 16;
/// Pieces of all long chains together.
const MAX_PIECES: usize = 24;
/// Blocks of the longest chain: 16 MiB of message.
pub(crate) const MAX_BLOCKS: usize = 32 * 1024;

/// The bytes behind the fixed part of a command's input.
pub enum TailIn<'a> {
    /// No further bytes.
    None,
    /// These bytes.
    Bytes(&'a [u8]),
    /// This many big-endian qwords (page or translation lists), asked for one by one, in order, as they are written.
    Qwords(usize, &'a mut dyn FnMut(usize) -> u64),
}

impl TailIn<'_> {
    /// Lends the bytes for one attempt to post them.
    pub(crate) fn reborrow(&mut self) -> TailIn<'_> {
        match self {
            Self::None => TailIn::None,
            Self::Bytes(bytes) => TailIn::Bytes(bytes),
            Self::Qwords(count, qword) => TailIn::Qwords(*count, qword),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Qwords(count, _) => count.saturating_mul(8),
        }
    }
}

impl core::fmt::Debug for TailIn<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "TailIn of {} bytes", self.len())
    }
}

/// The blocks of one message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    pool: u64,
    /// The owner of the pieces, for a long chain.
    owner: u32,
    blocks: usize,
}

impl Chain {
    /// No blocks.
    pub(crate) const EMPTY: Self = Self {
        pool: 0,
        owner: 0,
        blocks: 0,
    };
}

/// The lowest `count` ones of `bits`, if there are so many.
fn lowest(bits: u64, count: usize) -> Option<u64> {
    let mut left = bits;
    for _ in 0..count {
        left &= left.checked_sub(1)?;
    }
    Some(bits & !left)
}

#[derive(Debug)]
struct Piece {
    owner: u32,
    memory: DmaMemory,
}

/// The memory for mailbox blocks.
#[derive(Debug)]
pub(crate) struct Mailboxes {
    pool: DmaMemory,
    free: u64,
    pieces: heapless::Vec<Piece, MAX_PIECES>,
    last_owner: u32,
}

impl Mailboxes {
    pub(crate) fn new<P: Platform>(platform: &P) -> Result<Self, DmaError> {
        Ok(Self {
            pool: DmaMemory::alloc_pages(platform, POOL_BLOCKS as usize * BLOCK_ALIGN)?,
            free: u64::MAX,
            pieces: heapless::Vec::new(),
            last_owner: 0,
        })
    }

    /// A chain of `blocks` blocks. `urgent` chains may use the pool's reserve.
    pub(crate) fn alloc<P: Platform>(
        &mut self,
        platform: &P,
        blocks: usize,
        urgent: bool,
    ) -> Result<Chain, DmaError> {
        if blocks == 0 {
            return Ok(Chain::EMPTY);
        }
        let available = if urgent {
            self.free
        } else {
            self.free & !RESERVED
        };
        if blocks <= POOL_LIMIT
            && let Some(pool) = lowest(available, blocks)
        {
            self.free &= !pool;
            return Ok(Chain {
                pool,
                owner: 0,
                blocks,
            });
        }
        self.alloc_long(platform, blocks)
    }

    fn alloc_long<P: Platform>(&mut self, platform: &P, blocks: usize) -> Result<Chain, DmaError> {
        if blocks > MAX_BLOCKS {
            return Err(DmaError::OutOfMemory);
        }
        self.last_owner = self.last_owner.wrapping_add(1).max(1);
        let chain = Chain {
            pool: 0,
            owner: self.last_owner,
            blocks,
        };
        let mut missing = blocks;
        let mut size = blocks;
        while missing > 0 {
            size = size.min(missing);
            let piece = Layout::from_size_align(size * BLOCK_ALIGN, 4096)
                .map_err(|_| DmaError::OutOfMemory)
                .and_then(|layout| DmaMemory::alloc(platform, layout));
            let error = match piece {
                Ok(memory) => {
                    let owner = chain.owner;
                    match self.pieces.push(Piece { owner, memory }) {
                        Ok(()) => {
                            missing -= size;
                            continue;
                        }
                        Err(piece) => {
                            piece.memory.free(platform);
                            DmaError::TooManyMappings
                        }
                    }
                }
                // What is not there in one piece may be there in several.
                Err(DmaError::OutOfMemory) if size > 1 => {
                    size = size.div_ceil(2);
                    continue;
                }
                Err(error) => error,
            };
            self.release(platform, chain);
            return Err(error);
        }
        Ok(chain)
    }

    /// Takes the blocks back. The device no longer uses them.
    pub(crate) fn release<P: Platform>(&mut self, platform: &P, chain: Chain) {
        self.free |= chain.pool;
        if chain.owner == 0 {
            return;
        }
        let mut index = 0;
        while index < self.pieces.len() {
            if self.pieces[index].owner == chain.owner {
                // Order within a chain matters to no one any more, but that of the other chains does.
                self.pieces.remove(index).memory.free(platform);
            } else {
                index += 1;
            }
        }
    }

    /// Gives everything back. The device no longer uses any of it.
    pub(crate) fn free<P: Platform>(self, platform: &P) {
        self.pool.free(platform);
        for piece in self.pieces {
            piece.memory.free(platform);
        }
    }

    /// Bytes of all memory held.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces
            .iter()
            .map(|piece| piece.memory.len() as u64)
            .sum::<u64>()
            + self.pool.len() as u64
    }

    /// Memory and offset of a block.
    fn block(&self, chain: &Chain, index: usize) -> Option<(&DmaMemory, usize)> {
        if index >= chain.blocks {
            return None;
        }
        if chain.owner == 0 {
            let mut bits = chain.pool;
            for _ in 0..index {
                bits &= bits.checked_sub(1)?;
            }
            return (bits != 0).then(|| (&self.pool, bits.trailing_zeros() as usize * BLOCK_ALIGN));
        }
        let mut index = index;
        for piece in self
            .pieces
            .iter()
            .filter(|piece| piece.owner == chain.owner)
        {
            let blocks = piece.memory.len() / BLOCK_ALIGN;
            if index < blocks {
                return Some((&piece.memory, index * BLOCK_ALIGN));
            }
            index -= blocks;
        }
        None
    }

    /// The device's address of a block; 0 behind the end, which is how a chain ends.
    pub(crate) fn iova(&self, chain: &Chain, index: usize) -> u64 {
        self.block(chain, index)
            .map_or(0, |(memory, offset)| memory.iova() + offset as u64)
    }

    /// Fills a block that carries nothing yet: for an answer.
    pub(crate) fn clear(&self, chain: &Chain, index: usize, token: u8) {
        let mut block = MailboxBlock::ZERO;
        self.write(chain, index, token, &mut block);
    }

    /// Fills a block: `block` has the payload, followed by zeros, and gets link, number, token and signatures here.
    pub(crate) fn write(&self, chain: &Chain, index: usize, token: u8, block: &mut MailboxBlock) {
        let Some((memory, offset)) = self.block(chain, index) else {
            return;
        };
        let next = self.iova(chain, index + 1);
        block
            .set_next_block(next)
            .set_block_number(index as u32)
            .set_token(token)
            .sign();
        memory.write_bytes(offset, &block.0);
    }

    /// Puts a part of the payload into a block that is not signed. What is behind the message's end stays as it was.
    pub(crate) fn put(&self, chain: &Chain, index: usize, offset: usize, part: &[u8]) {
        if let Some((memory, block)) = self.block(chain, index) {
            memory.write_bytes(block + offset, part);
        }
    }

    /// Fills in link, number and token of the blocks of a chain that are not signed.
    pub(crate) fn link(&self, chain: &Chain, token: u8) {
        let mut next = self.block(chain, 0);
        let mut index = 0;
        while let Some((memory, block)) = next {
            next = self.block(chain, index + 1);
            let iova = next.map_or(0, |(memory, offset)| memory.iova() + offset as u64);
            let link = MailboxBlock::link(iova, index as u32, token);
            memory.write_bytes(block + MailboxBlock::LINK, &link);
            index += 1;
        }
    }

    /// A block as it is now, for the log.
    pub(crate) fn copy(&self, chain: &Chain, index: usize) -> MailboxBlock {
        let mut block = MailboxBlock::ZERO;
        if let Some((memory, offset)) = self.block(chain, index) {
            memory.read_bytes(offset, &mut block.0);
        }
        block
    }

    /// Reads a block's payload, after verifying token and signatures where they were negotiated.
    pub(crate) fn read(
        &self,
        chain: &Chain,
        index: usize,
        verify: Option<u8>,
        data: &mut [u8],
    ) -> Result<(), BadOutput> {
        let Some((memory, offset)) = self.block(chain, index) else {
            data.fill(0);
            return Ok(());
        };
        let Some(token) = verify else {
            memory.read_bytes(offset, data);
            return Ok(());
        };
        let mut block = MailboxBlock::ZERO;
        memory.read_bytes(offset, &mut block.0);
        let number = index as u32;
        if !block.signatures_are_valid() {
            return Err(BadOutput::BlockSignature { block: number });
        }
        if block.token() != token {
            return Err(BadOutput::BlockToken { block: number });
        }
        let len = data.len().min(BLOCK_DATA_SIZE);
        data[..len].copy_from_slice(&block.mailbox_data()[..len]);
        Ok(())
    }
}

/// Spreads a message over the entry and its blocks. A block that is signed is written when it is full, once.
pub(crate) struct Writer<'a> {
    pub(crate) entry: &'a mut CommandQueueEntry,
    pub(crate) mailboxes: &'a Mailboxes,
    pub(crate) chain: &'a Chain,
    pub(crate) token: u8,
    pub(crate) at: usize,
    pub(crate) signed: Option<&'a mut MailboxBlock>,
}

impl Writer<'_> {
    pub(crate) fn put(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let taken = if self.at < INLINE_SIZE {
                let taken = data.len().min(INLINE_SIZE - self.at);
                self.entry.command_input_inline_data_mut()[self.at..self.at + taken]
                    .copy_from_slice(&data[..taken]);
                taken
            } else {
                let offset = (self.at - INLINE_SIZE) % BLOCK_DATA_SIZE;
                let taken = data.len().min(BLOCK_DATA_SIZE - offset);
                let index = (self.at - INLINE_SIZE) / BLOCK_DATA_SIZE;
                match &mut self.signed {
                    None => {
                        let part = &data[..taken];
                        self.mailboxes.put(self.chain, index, offset, part);
                    }
                    Some(block) => {
                        block.mailbox_data_mut()[offset..offset + taken]
                            .copy_from_slice(&data[..taken]);
                        if offset + taken == BLOCK_DATA_SIZE {
                            self.flush(BLOCK_DATA_SIZE);
                        }
                    }
                }
                taken
            };
            self.at += taken;
            data = &data[taken..];
        }
    }

    pub(crate) fn put_tail(&mut self, tail: &mut TailIn<'_>) {
        match tail {
            TailIn::None => {}
            TailIn::Bytes(bytes) => self.put(bytes),
            TailIn::Qwords(count, qword) => {
                for index in 0..*count {
                    self.put(&qword(index).to_be_bytes());
                }
            }
        }
    }

    fn flush(&mut self, len: usize) {
        let Some(block) = &mut self.signed else {
            return;
        };
        let index = (self.at.saturating_sub(INLINE_SIZE)) / BLOCK_DATA_SIZE;
        if index > 0 {
            // What the block before left.
            block.mailbox_data_mut()[len..].fill(0);
        }
        self.mailboxes.write(self.chain, index, self.token, block);
    }

    pub(crate) fn finish(&mut self) {
        if self.signed.is_none() {
            self.mailboxes.link(self.chain, self.token);
            return;
        }
        let rest = self.at.saturating_sub(INLINE_SIZE) % BLOCK_DATA_SIZE;
        if rest > 0 {
            self.flush(rest);
        }
    }
}

/// The two places that an answer goes to.
pub(crate) struct Parts<'a> {
    pub(crate) fixed: &'a mut [u8],
    pub(crate) tail: &'a mut [u8],
}

impl Parts<'_> {
    pub(crate) fn put(&mut self, at: usize, data: &[u8]) {
        let split = self.fixed.len().saturating_sub(at).min(data.len());
        let (first, second) = data.split_at(split);
        if split > 0 {
            self.fixed[at..at + split].copy_from_slice(first);
        }
        let start = (at + split).saturating_sub(self.fixed.len());
        if let Some(part) = self.tail.get_mut(start..) {
            let len = part.len().min(second.len());
            part[..len].copy_from_slice(&second[..len]);
        }
    }
}
