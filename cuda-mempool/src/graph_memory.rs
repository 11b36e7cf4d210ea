//! Memory that the graphs of a device allocate.

use cuda_mempool_sys::cudaGraphMemAttributeType;

use crate::error::call;
use crate::{Device, PoolUsage, Result};

/// What graphs with memory nodes hold, which no pool counts. It outlives the graphs: see
/// [`trim_graph_memory`](Device::trim_graph_memory).
impl Device {
    /// How much memory the graphs of this device have and use, in bytes.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaDeviceGetGraphMemAttribute")]
    pub fn graph_memory(self) -> Result<PoolUsage> {
        Ok(PoolUsage {
            reserved: self.graph_word(cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemCurrent)?,
            reserved_high: self.graph_word(cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemHigh)?,
            used: self.graph_word(cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemCurrent)?,
            used_high: self.graph_word(cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh)?,
        })
    }

    /// Sets both high marks of the graphs' memory to what they mark now.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaDeviceSetGraphMemAttribute")]
    pub fn reset_graph_memory_high_marks(self) -> Result<()> {
        self.reset_graph_mark(cudaGraphMemAttributeType::cudaGraphMemAttrReservedMemHigh)?;
        self.reset_graph_mark(cudaGraphMemAttributeType::cudaGraphMemAttrUsedMemHigh)
    }

    /// Gives memory that no running graph uses back to the system.
    ///
    /// # Errors
    /// What the runtime answers.
    #[doc(alias = "cudaDeviceGraphMemTrim")]
    pub fn trim_graph_memory(self) -> Result<()> {
        // SAFETY: any ordinal may be given.
        unsafe { call!(cudaDeviceGraphMemTrim(self.ordinal())) }
    }

    fn graph_word(self, attribute: cudaGraphMemAttributeType) -> Result<u64> {
        let mut word = 0_u64;
        let out = std::ptr::addr_of_mut!(word).cast();
        // SAFETY: the out pointer is as wide as the attribute.
        unsafe { call!(cudaDeviceGetGraphMemAttribute(self.ordinal(), attribute, out)) }?;
        Ok(word)
    }

    fn reset_graph_mark(self, attribute: cudaGraphMemAttributeType) -> Result<()> {
        let mut zero = 0_u64;
        let value = std::ptr::addr_of_mut!(zero).cast();
        // SAFETY: the pointer is to a value as wide as the attribute.
        unsafe { call!(cudaDeviceSetGraphMemAttribute(self.ordinal(), attribute, value)) }
    }
}
