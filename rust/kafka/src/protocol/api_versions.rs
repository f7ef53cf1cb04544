//! `ApiVersions`: the requests and versions that a broker supports, and the cluster's finalized features (KIP-511,
//! KIP-584, KIP-1022).

use std::collections::BTreeMap;

use crate::error_code::ErrorCode;

use super::{API_VERSIONS, Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// The first request of every connection; also asked again, for features that have changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiVersions;

/// The versions and features of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SupportedApis {
    /// Error code; with `UNSUPPORTED_VERSION` only `apis` is set.
    pub(crate) error: ErrorCode,
    /// Lowest and highest version by API key.
    pub(crate) apis: BTreeMap<i16, (i16, i16)>,
    /// Finalized levels of the cluster's features, such as `transaction.version`.
    pub(crate) features: BTreeMap<String, i16>,
    /// Number of the state of these levels, which grows with each change; -1 when the broker reports none.
    pub(crate) features_epoch: i64,
}

impl Default for SupportedApis {
    fn default() -> Self {
        Self {
            error: ErrorCode::NONE,
            apis: BTreeMap::new(),
            features: BTreeMap::new(),
            features_epoch: -1,
        }
    }
}

impl SupportedApis {
    /// Returns the highest common version, at most `most`.
    pub(crate) fn common(&self, api: Api, most: i16) -> Option<i16> {
        let (low, high) = *self.apis.get(&api.key)?;
        let version = high.min(most);
        (version >= low && version >= api.versions.0).then_some(version)
    }
}

impl Request for ApiVersions {
    // versions 1 and 2 add nothing to 0
    const API: Api = Api {
        key: API_VERSIONS,
        name: "ApiVersions",
        versions: (0, 4),
        flexible: 3,
    };

    type Answer = SupportedApis;

    fn write(&self, version: i16, out: &mut Writer) {
        if version >= 3 {
            out.compact_string(crate::NAME);
            out.compact_string(env!("CARGO_PKG_VERSION"));
        }
    }

    fn read(version: i16, from: &mut Reader) -> Result<SupportedApis, DecodeError> {
        let error = from.error_code()?;
        let range = |from: &mut Reader| Ok((from.int16()?, (from.int16()?, from.int16()?)));
        let apis = if version >= Self::API.flexible {
            from.structures(7, range)?
        } else {
            from.array(6, range)?
        };
        if version >= 1 {
            from.throttle()?;
        }
        Ok(SupportedApis {
            error,
            apis: apis.into_iter().collect(),
            ..SupportedApis::default()
        })
    }

    fn read_tagged(
        supported: &mut SupportedApis,
        tag: u32,
        field: &mut Reader,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => supported.features_epoch = field.int64()?,
            2 => {
                let features = field.structures(6, |from| {
                    let feature = (from.compact_string()?, from.int16()?);
                    from.int16()?; // lowest level
                    Ok(feature)
                })?;
                supported.features = features.into_iter().collect();
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::api_versions_response::{
        ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
    };
    use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
    use kafka_protocol::protocol::StrBytes;

    use super::super::{fetch, oracle, read, read_throttled};
    use super::{ApiVersions, Request as _, SupportedApis};

    fn answer() -> ApiVersionsResponse {
        let api = |key, low, high| {
            ApiVersion::default()
                .with_api_key(key)
                .with_min_version(low)
                .with_max_version(high)
        };
        ApiVersionsResponse::default().with_api_keys(vec![api(1, 4, 18), api(18, 0, 5)])
    }

    #[test]
    fn the_request_is_what_kafka_expects() {
        let request: ApiVersionsRequest = oracle::read(&ApiVersions, 4);
        assert_eq!(request.client_software_name.as_str(), crate::NAME);
        let _: ApiVersionsRequest = oracle::read(&ApiVersions, 0);
    }

    #[test]
    fn features_are_read_from_their_tag() {
        let name = || StrBytes::from_static_str("transaction.version");
        let body = oracle::write(
            &answer()
                .with_throttle_time_ms(7)
                .with_supported_features(vec![
                    SupportedFeatureKey::default()
                        .with_name(name())
                        .with_max_version(3),
                ])
                .with_finalized_features_epoch(5)
                .with_finalized_features(vec![
                    FinalizedFeatureKey::default()
                        .with_name(name())
                        .with_max_version_level(2),
                ]),
            4,
        );
        let (supported, throttle_ms) = read_throttled::<ApiVersions>(4, body.clone()).unwrap();
        assert_eq!(supported.features["transaction.version"], 2);
        assert_eq!(supported.features_epoch, 5);
        assert_eq!(throttle_ms, 7);
        assert_eq!(supported.apis[&18], (0, 5));
        oracle::survives_damage::<ApiVersions>(4, &body);
    }

    #[test]
    fn the_oldest_answer_is_read_too() {
        let body = oracle::write(&answer().with_error_code(35), 0);
        let supported = read::<ApiVersions>(0, body).unwrap();
        assert_eq!((supported.error.0, supported.apis[&18]), (35, (0, 5)));
    }

    #[test]
    fn the_common_version_is_the_highest_of_both_or_none() {
        let supported = |low, high| SupportedApis {
            apis: [(1, (low, high))].into(),
            ..SupportedApis::default()
        };
        let api = fetch::FetchRequest::API;
        assert_eq!(supported(4, 18).common(api, 17), Some(17));
        assert_eq!(supported(0, 16).common(api, 17), Some(16));
        assert_eq!(supported(4, 18).common(api, 12), Some(12));
        assert_eq!(supported(0, 11).common(api, 17), None);
        assert_eq!(supported(13, 18).common(api, 12), None);
        assert_eq!(SupportedApis::default().common(api, 17), None);
    }
}
