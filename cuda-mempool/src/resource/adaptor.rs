//! Resources around a resource.

mod limit;
mod log;
mod retry;
mod statistics;

pub use self::limit::LimitAdaptor;
pub use self::log::LogAdaptor;
pub use self::retry::RetryAdaptor;
pub use self::statistics::{Counter, StatisticsAdaptor};

#[cfg(test)]
mod tests;
