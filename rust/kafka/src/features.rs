//! Finalized features of a cluster (KIP-584), as its brokers report them. Pure.
//!
//! A broker reports them when a connection begins, and when it is asked again. Brokers learn of a change one after the
//! other, so an answer counts only if its epoch is not older than that of an earlier one.

use crate::protocol::api_versions::SupportedApis;
use std::collections::BTreeMap;

/// The last known levels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Features {
    /// Number of the state; -1 where brokers report none. None before the first answer.
    epoch: Option<i64>,
    levels: BTreeMap<String, i16>,
}

impl Features {
    /// Takes what a broker reports.
    pub(crate) fn learn(&mut self, supported: &SupportedApis) {
        if self
            .epoch
            .is_none_or(|known| known <= supported.features_epoch)
        {
            self.epoch = Some(supported.features_epoch);
            self.levels.clone_from(&supported.features);
        }
    }

    /// Returns the level of a feature, 0 when it is not finalized; None before the first answer.
    pub(crate) fn level(&self, name: &str) -> Option<i16> {
        self.epoch?;
        Some(self.levels.get(name).copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::{Features, SupportedApis};

    const NAME: &str = "transaction.version";

    fn told(epoch: i64, level: i16) -> SupportedApis {
        SupportedApis {
            features: [(NAME.to_owned(), level)].into(),
            features_epoch: epoch,
            ..SupportedApis::default()
        }
    }

    #[test]
    fn a_broker_that_lags_behind_changes_nothing() {
        let mut features = Features::default();
        assert_eq!(features.level(NAME), None);
        for (epoch, level, known) in [
            (-1, 0, 0),
            (7, 1, 1),
            (9, 2, 2),
            (7, 1, 2),
            (-1, 0, 2),
            (12, 1, 1),
        ] {
            features.learn(&told(epoch, level));
            assert_eq!(features.level(NAME), Some(known), "after epoch {epoch}");
        }
        assert_eq!(features.level("metadata.version"), Some(0));
    }
}
