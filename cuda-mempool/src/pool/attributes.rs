//! Attributes of a pool, typed.

use cuda_mempool_sys as sys;
use sys::{cudaMemPoolAttr, cudaMemPool_t};

use super::{HandleTypes, MemPool};
use crate::error::call;
use crate::{Error, ErrorKind, Result, Stream};

/// How much memory a pool has, in bytes. The four numbers are read one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolUsage {
    /// What the pool has from the system now.
    pub reserved: u64,
    /// The most it had since the last [reset](MemPool::reset_high_marks).
    pub reserved_high: u64,
    /// What is allocated now, as was asked for. A free counts when it is called, not when its stream gets there.
    pub used: u64,
    /// The most that was allocated since the last [reset](MemPool::reset_high_marks).
    pub used_high: u64,
}

/// Under which conditions a freed block may be given to another stream. All are on in a new pool.
///
/// On the stream where it was freed, a block can always be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReusePolicy {
    /// The other stream has waited, by events, for the free.
    pub follow_event_dependencies: bool,
    /// The free happens to be done already. Costs repeatability: what is reused depends on timing.
    ///
    /// Drivers for CUDA before 11.5 were reported to hand out memory by it that is still in use: switch it off there.
    pub allow_opportunistic: bool,
    /// The runtime may make the other stream wait for the free, when there is no memory otherwise.
    pub allow_internal_dependencies: bool,
}

impl Default for ReusePolicy {
    fn default() -> Self {
        Self { follow_event_dependencies: true, allow_opportunistic: true, allow_internal_dependencies: true }
    }
}

impl MemPool {
    /// How many bytes the pool keeps when streams are synchronised; what it has beyond goes back to the system.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolAttrReleaseThreshold")]
    #[doc(alias = "cudaMemPoolGetAttribute")]
    pub fn release_threshold(&self) -> Result<u64> {
        self.word(cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold)
    }

    /// Sets how many bytes the pool keeps when streams are synchronised. New pools keep none; `u64::MAX` keeps all.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolAttrReleaseThreshold")]
    #[doc(alias = "cudaMemPoolSetAttribute")]
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        self.set_word(cudaMemPoolAttr::cudaMemPoolAttrReleaseThreshold, bytes)
    }

    /// Under which conditions other streams get freed blocks.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolReuseFollowEventDependencies")]
    #[doc(alias = "cudaMemPoolReuseAllowOpportunistic")]
    #[doc(alias = "cudaMemPoolReuseAllowInternalDependencies")]
    #[doc(alias = "cudaMemPoolGetAttribute")]
    pub fn reuse_policy(&self) -> Result<ReusePolicy> {
        Ok(ReusePolicy {
            follow_event_dependencies: self.int(cudaMemPoolAttr::cudaMemPoolReuseFollowEventDependencies)? != 0,
            allow_opportunistic: self.int(cudaMemPoolAttr::cudaMemPoolReuseAllowOpportunistic)? != 0,
            allow_internal_dependencies: self.int(cudaMemPoolAttr::cudaMemPoolReuseAllowInternalDependencies)? != 0,
        })
    }

    /// Sets under which conditions other streams get freed blocks.
    ///
    /// # Errors
    /// What the runtime answers. Some of the three may be set then.
    #[doc(alias = "cudaMemPoolReuseFollowEventDependencies")]
    #[doc(alias = "cudaMemPoolReuseAllowOpportunistic")]
    #[doc(alias = "cudaMemPoolReuseAllowInternalDependencies")]
    #[doc(alias = "cudaMemPoolSetAttribute")]
    pub fn set_reuse_policy(&self, policy: ReusePolicy) -> Result<()> {
        self.set_flag(cudaMemPoolAttr::cudaMemPoolReuseFollowEventDependencies, policy.follow_event_dependencies)?;
        self.set_flag(cudaMemPoolAttr::cudaMemPoolReuseAllowOpportunistic, policy.allow_opportunistic)?;
        self.set_flag(cudaMemPoolAttr::cudaMemPoolReuseAllowInternalDependencies, policy.allow_internal_dependencies)
    }

    /// How much memory the pool has and uses.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolAttrReservedMemCurrent")]
    #[doc(alias = "cudaMemPoolAttrReservedMemHigh")]
    #[doc(alias = "cudaMemPoolAttrUsedMemCurrent")]
    #[doc(alias = "cudaMemPoolAttrUsedMemHigh")]
    #[doc(alias = "cudaMemPoolGetAttribute")]
    pub fn usage(&self) -> Result<PoolUsage> {
        Ok(PoolUsage {
            reserved: self.word(cudaMemPoolAttr::cudaMemPoolAttrReservedMemCurrent)?,
            reserved_high: self.word(cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh)?,
            used: self.word(cudaMemPoolAttr::cudaMemPoolAttrUsedMemCurrent)?,
            used_high: self.word(cudaMemPoolAttr::cudaMemPoolAttrUsedMemHigh)?,
        })
    }

    /// Sets both high marks to what they mark now.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolAttrReservedMemHigh")]
    #[doc(alias = "cudaMemPoolAttrUsedMemHigh")]
    #[doc(alias = "cudaMemPoolSetAttribute")]
    pub fn reset_high_marks(&self) -> Result<()> {
        self.set_word(cudaMemPoolAttr::cudaMemPoolAttrReservedMemHigh, 0)?;
        self.set_word(cudaMemPoolAttr::cudaMemPoolAttrUsedMemHigh, 0)
    }

    /// Gives memory back to the system until no more than `bytes_to_keep` are reserved, or what that comes to in the steps
    /// in which pools get memory (32 MiB, as measured).
    ///
    /// Memory whose free is still waiting for its stream cannot be given back: see [`sync_and_trim`](Self::sync_and_trim).
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaMemPoolTrimTo")]
    pub fn trim_to(&self, bytes_to_keep: usize) -> Result<()> {
        // SAFETY: the pool is alive. Only memory that nobody uses is given back.
        unsafe { call!(cudaMemPoolTrimTo(self.0.raw, bytes_to_keep)) }
    }

    /// Waits for `stream`, so that its frees are done, and trims.
    ///
    /// # Errors
    /// As [`Stream::synchronize`] and [`trim_to`](Self::trim_to).
    #[doc(alias = "cudaMemPoolTrimTo")]
    pub fn sync_and_trim(&self, stream: &Stream, bytes_to_keep: usize) -> Result<()> {
        stream.synchronize()?;
        self.trim_to(bytes_to_keep)
    }

    /// The most bytes it may hold; 0 when that is left to the system. What was asked for is rounded up.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with a driver older than 13.2, which does not tell.
    #[doc(alias = "cudaMemPoolAttrMaxPoolSize")]
    #[doc(alias = "cudaMemPoolGetAttribute")]
    pub fn max_size(&self) -> Result<u64> {
        self.newer("cudaMemPoolAttrMaxPoolSize", self.word(cudaMemPoolAttr(13)))
    }

    /// By which handles it can be shared with other processes.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with a driver older than 13.2, which does not tell.
    #[doc(alias = "cudaMemPoolAttrExportHandleTypes")]
    #[doc(alias = "cudaMemPoolGetAttribute")]
    pub fn handle_types(&self) -> Result<HandleTypes> {
        let types = self.newer("cudaMemPoolAttrExportHandleTypes", self.int(cudaMemPoolAttr(10)))?;
        Ok(HandleTypes::from_bits(types as u32))
    }

    /// Whether the decompression engine can read its memory.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] with a driver older than 13.2, which does not tell.
    #[doc(alias = "cudaMemPoolAttrHwDecompressEnabled")]
    #[doc(alias = "cudaMemPoolGetAttribute")]
    pub fn hw_decompress(&self) -> Result<bool> {
        Ok(self.newer("cudaMemPoolAttrHwDecompressEnabled", self.int(cudaMemPoolAttr(14)))? != 0)
    }

    /// The attributes from 9 on are known to newer drivers alone, and their names to newer headers.
    fn newer<T>(&self, name: &str, answer: Result<T>) -> Result<T> {
        answer.map_err(|error| match error.kind() {
            ErrorKind::InvalidValue => Error::unsupported(
                "cudaMemPoolGetAttribute",
                format!("pool attribute {name} needs a runtime and driver for CUDA 13.2 or newer"),
            ),
            _ => error,
        })
    }

    fn word(&self, attribute: cudaMemPoolAttr) -> Result<u64> {
        word_of(self.0.raw, attribute)
    }

    /// Reads an attribute of the width of `int`, which fills the first half of a word.
    fn int(&self, attribute: cudaMemPoolAttr) -> Result<i32> {
        let [a, b, c, d, ..] = word_of(self.0.raw, attribute)?.to_ne_bytes();
        Ok(i32::from_ne_bytes([a, b, c, d]))
    }

    fn set_word(&self, attribute: cudaMemPoolAttr, value: u64) -> Result<()> {
        set_word_of(self.0.raw, attribute, value)
    }

    fn set_flag(&self, attribute: cudaMemPoolAttr, on: bool) -> Result<()> {
        let mut value = i32::from(on);
        // SAFETY: the pool is alive and the pointer to a value as wide as a flag.
        unsafe { call!(cudaMemPoolSetAttribute(self.0.raw, attribute, std::ptr::addr_of_mut!(value).cast())) }
    }
}

/// Reads an attribute into a zeroed word, which has room for every width there is.
pub(super) fn word_of(pool: cudaMemPool_t, attribute: cudaMemPoolAttr) -> Result<u64> {
    let mut word = 0_u64;
    // SAFETY: the pool is alive and the out pointer has room for any attribute.
    unsafe { call!(cudaMemPoolGetAttribute(pool, attribute, std::ptr::addr_of_mut!(word).cast())) }?;
    Ok(word)
}

/// Sets an attribute that is a word.
pub(super) fn set_word_of(pool: cudaMemPool_t, attribute: cudaMemPoolAttr, mut value: u64) -> Result<()> {
    // SAFETY: the pool is alive and the pointer to a value as wide as any attribute.
    unsafe { call!(cudaMemPoolSetAttribute(pool, attribute, std::ptr::addr_of_mut!(value).cast())) }
}
