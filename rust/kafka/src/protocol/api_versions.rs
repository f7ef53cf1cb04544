//! `ApiVersions`: the requests and versions that a broker supports, and the cluster's finalized features (KIP-511,
//! KIP-584, KIP-1022).

use std::collections::BTreeMap;

use eomirror_core::ErrorCode;

use super::{API_VERSIONS, Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// The first request of every connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ApiVersions;

/// The versions and features of a broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SupportedApis {
    /// Error code; with `UNSUPPORTED_VERSION` only `apis` is set.
    pub(crate) error: ErrorCode,
    /// Lowest and highest version by API key.
    pub(crate) apis: BTreeMap<i16, (i16, i16)>,
    /// The requested pause in ms.
    pub(crate) throttle_ms: i32,
    /// Finalized levels of the cluster's features, such as `transaction.version`.
    pub(crate) features: BTreeMap<String, i16>,
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
            out.compact_string("eomirror");
            out.compact_string(env!("CARGO_PKG_VERSION"));
            out.no_tags();
        }
    }

    fn read(version: i16, from: &mut Reader) -> Result<SupportedApis, DecodeError> {
        let error = from.error_code()?;
        let flexible = version >= 3;
        let range = |from: &mut Reader| {
            let entry = (from.int16()?, (from.int16()?, from.int16()?));
            if flexible {
                from.skip_tags()?;
            }
            Ok(entry)
        };
        let apis = if flexible {
            from.compact_array(7, range)?
        } else {
            from.array(6, range)?
        };
        let mut supported = SupportedApis {
            error,
            apis: apis.into_iter().collect(),
            throttle_ms: if version >= 1 { from.int32()? } else { 0 },
            features: BTreeMap::new(),
        };
        if flexible {
            from.tags(|tag, field| {
                if tag == 2 {
                    let features = field.compact_array(6, |from| {
                        let name = from.compact_string()?;
                        let high = from.int16()?;
                        from.int16()?;
                        from.skip_tags()?;
                        Ok((name, high))
                    })?;
                    supported.features = features.into_iter().collect();
                }
                Ok(())
            })?;
        }
        Ok(supported)
    }

    fn throttle_ms(answer: &Self::Answer) -> i32 {
        answer.throttle_ms
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::api_versions_response::{
        ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
    };
    use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
    use kafka_protocol::protocol::StrBytes;

    use super::super::{fetch, oracle, read};
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
        assert_eq!(request.client_software_name.as_str(), "eomirror");
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
        let supported = read::<ApiVersions>(4, body.clone()).unwrap();
        assert_eq!(supported.features["transaction.version"], 2);
        assert_eq!(supported.throttle_ms, 7);
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
