//! PMAD for Python; `penstock.quicx.Pool` wraps it.

use penstock_io::DriverError as _;
use penstock_quicx_net::{Block, BlockError, Error, Pool, PoolConfig, SharedPool};
use pyo3::prelude::*;

use super::{raised, too_much};

/// A pool of blocks.
#[pyclass(frozen, name = "QuicxPool", module = "penstock._core")]
pub(crate) struct QuicxPool {
    pool: SharedPool,
}

/// A block of a pool, allocated or freed.
#[pyclass(frozen, name = "QuicxBlock", module = "penstock._core")]
pub(crate) struct QuicxBlock {
    block: Block,
}

fn wrong(error: BlockError) -> PyErr {
    raised(&Error::misuse(error.to_string()))
}

#[pymethods]
impl QuicxPool {
    #[new]
    fn new(bytes: usize, size_classes: Vec<usize>) -> PyResult<Self> {
        let pool = Pool::new(&PoolConfig { bytes, classes: size_classes });
        let pool = pool.map_err(|error| raised(&Error::misuse(error.to_string())))?;
        Ok(Self { pool: SharedPool::new(pool) })
    }

    /// Allocate a block with these bytes.
    fn store(&self, content: &[u8]) -> PyResult<QuicxBlock> {
        let stored = self.pool.store(content);
        stored.map(|block| QuicxBlock { block }).map_err(|error| too_much(error.to_string()))
    }

    fn read(&self, block: &QuicxBlock) -> PyResult<Vec<u8>> {
        self.pool.read(block.block, <[u8]>::to_vec).map_err(wrong)
    }

    fn free(&self, block: &QuicxBlock) -> PyResult<()> {
        self.pool.free(block.block).map_err(wrong)
    }

    /// Return the bytes used, the bytes in total, and for each class: size, blocks, slabs.
    fn stats(&self) -> (u64, u64, Vec<(u32, u64, u32)>) {
        let stats = self.pool.stats();
        let classes = stats.classes.iter().map(|class| (class.size, class.blocks, class.slabs));
        (stats.bytes_used, stats.bytes_total, classes.collect())
    }
}
