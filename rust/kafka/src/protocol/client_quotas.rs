//! `DescribeClientQuotas` and `AlterClientQuotas` (KIP-546).

use super::{Api, Request};
use crate::error_code::ErrorCode;
use crate::wire::{DecodeError, Reader, Writer};

/// An entity: pairs of its type (`user`, `client-id`, `ip`) and its name, `None` for the default entity.
pub type QuotaEntity = Vec<(String, Option<String>)>;

/// A quota that is set on an entity.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientQuota {
    /// The entity.
    pub entity: QuotaEntity,
    /// Name of the quota, such as `producer_byte_rate`.
    pub key: String,
    /// Its value.
    pub value: f64,
}

/// A quota to set on an entity, or to remove from it.
#[derive(Debug, Clone, PartialEq)]
pub struct QuotaChange {
    /// Name of the quota.
    pub key: String,
    /// The new value; `None` to remove it.
    pub value: Option<f64>,
}

/// Asks a broker for all quotas that are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescribeClientQuotas;

/// All quotas of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DescribedQuotas {
    pub(crate) error: ErrorCode,
    /// The broker's text for an error.
    pub(crate) message: Option<String>,
    pub(crate) quotas: Vec<ClientQuota>,
}

impl Request for DescribeClientQuotas {
    const API: Api = Api {
        key: 48,
        name: "DescribeClientQuotas",
        versions: (1, 1),
        flexible: 1,
    };

    type Answer = DescribedQuotas;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.structures::<()>(&[], |_, ()| {}); // of every entity
        out.bool(false);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<DescribedQuotas, DecodeError> {
        from.throttle()?;
        let error = from.error_code()?;
        let message = from.nullable_compact_string()?;
        let entries = from.nullable_compact_array(3, |from| {
            let entity = read_entity(from)?;
            let values = from.structures(10, |from| {
                let key = from.compact_string()?;
                Ok((key, float64(from)?))
            })?;
            from.skip_tags()?;
            Ok(values
                .into_iter()
                .map(|(key, value)| ClientQuota {
                    entity: entity.clone(),
                    key,
                    value,
                })
                .collect::<Vec<_>>())
        })?;
        Ok(DescribedQuotas {
            error,
            message,
            quotas: entries.unwrap_or_default().into_iter().flatten().collect(),
        })
    }
}

/// Sets and removes quotas, or lets the broker check that.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AlterClientQuotas {
    /// Of one entity each: a broker refuses an entity that occurs twice.
    pub(crate) changes: Vec<(QuotaEntity, Vec<QuotaChange>)>,
    pub(crate) validate_only: bool,
}

/// The answer for one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlteredQuota {
    pub(crate) error: ErrorCode,
    pub(crate) message: Option<String>,
    pub(crate) entity: QuotaEntity,
}

impl Request for AlterClientQuotas {
    const API: Api = Api {
        key: 49,
        name: "AlterClientQuotas",
        versions: (1, 1),
        flexible: 1,
    };

    type Answer = Vec<AlteredQuota>;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.structures(&self.changes, |out, (entity, changes)| {
            out.structures(entity, |out, (kind, name)| {
                out.compact_string(kind);
                out.nullable_compact_string(name.as_deref());
            });
            out.structures(changes, |out, change| {
                out.compact_string(&change.key);
                let value = change.value.unwrap_or_default();
                out.int64(i64::from_be_bytes(value.to_be_bytes()));
                out.bool(change.value.is_none());
            });
        });
        out.bool(self.validate_only);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError> {
        from.throttle()?;
        from.structures(5, |from| {
            let error = from.error_code()?;
            let message = from.nullable_compact_string()?;
            let entity = read_entity(from)?;
            Ok(AlteredQuota {
                error,
                message,
                entity,
            })
        })
    }
}

fn read_entity(from: &mut Reader) -> Result<QuotaEntity, DecodeError> {
    from.structures(3, |from| {
        let kind = from.compact_string()?;
        Ok((kind, from.nullable_compact_string()?))
    })
}

fn float64(from: &mut Reader) -> Result<f64, DecodeError> {
    Ok(f64::from_be_bytes(from.int64()?.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::alter_client_quotas_response::{
        EntityData as AlteredEntity, EntryData as AlteredEntry,
    };
    use kafka_protocol::messages::describe_client_quotas_response::{
        EntityData, EntryData, ValueData,
    };
    use kafka_protocol::messages::{
        AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read_throttled};
    use super::{AlterClientQuotas, ClientQuota, DescribeClientQuotas, QuotaChange, QuotaEntity};
    use crate::error_code::ErrorCode;

    fn entity() -> QuotaEntity {
        vec![
            ("user".to_owned(), Some("app".to_owned())),
            ("client-id".to_owned(), None),
        ]
    }

    #[test]
    fn all_quotas_are_asked_for() {
        let asked: DescribeClientQuotasRequest = oracle::read(&DescribeClientQuotas, 1);
        assert!(asked.components.is_empty());
        assert!(!asked.strict);
    }

    #[test]
    fn quotas_are_read_with_their_entities() {
        let text = StrBytes::from_static_str;
        let parts = vec![
            EntityData::default()
                .with_entity_type(text("user"))
                .with_entity_name(Some(text("app"))),
            EntityData::default()
                .with_entity_type(text("client-id"))
                .with_entity_name(None),
        ];
        let entry = EntryData::default().with_entity(parts).with_values(vec![
            ValueData::default()
                .with_key(text("producer_byte_rate"))
                .with_value(1024.5),
        ]);
        let answer = DescribeClientQuotasResponse::default()
            .with_throttle_time_ms(7)
            .with_entries(Some(vec![entry]));
        let body = oracle::write(&answer, 1);
        let (found, throttle_ms) = read_throttled::<DescribeClientQuotas>(1, body.clone()).unwrap();
        assert_eq!((throttle_ms, found.error), (7, ErrorCode::NONE));
        let wanted = ClientQuota {
            entity: entity(),
            key: "producer_byte_rate".to_owned(),
            value: 1024.5,
        };
        assert_eq!(found.quotas, [wanted]);
        oracle::survives_damage::<DescribeClientQuotas>(1, &body);
    }

    #[test]
    fn changes_are_sent_as_kafka_expects() {
        let change = |key: &str, value| QuotaChange {
            key: key.to_owned(),
            value,
        };
        let changes = vec![
            change("producer_byte_rate", Some(2.5)),
            change("request_percentage", None),
        ];
        let request = AlterClientQuotas {
            changes: vec![(entity(), changes)],
            validate_only: true,
        };
        let asked: AlterClientQuotasRequest = oracle::read(&request, 1);
        assert!(asked.validate_only);
        let [entry] = &asked.entries[..] else {
            panic!("one entity")
        };
        let names: Vec<_> = entry
            .entity
            .iter()
            .map(|it| (it.entity_type.as_str(), it.entity_name.as_deref()))
            .collect();
        assert_eq!(names, [("user", Some("app")), ("client-id", None)]);
        let ops: Vec<_> = entry
            .ops
            .iter()
            .map(|op| (op.key.as_str(), op.value.to_bits(), op.remove))
            .collect();
        let wanted = [
            ("producer_byte_rate", 2.5_f64.to_bits(), false),
            ("request_percentage", 0.0_f64.to_bits(), true),
        ];
        assert_eq!(ops, wanted);
    }

    #[test]
    fn each_entity_has_its_answer() {
        let text = StrBytes::from_static_str;
        let parts = vec![
            AlteredEntity::default()
                .with_entity_type(text("user"))
                .with_entity_name(None),
        ];
        let entry = AlteredEntry::default()
            .with_error_code(42)
            .with_error_message(Some(text("no such quota")))
            .with_entity(parts);
        let answer = AlterClientQuotasResponse::default().with_entries(vec![entry]);
        let body = oracle::write(&answer, 1);
        let (found, _) = read_throttled::<AlterClientQuotas>(1, body.clone()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].error, ErrorCode(42));
        assert_eq!(found[0].message.as_deref(), Some("no such quota"));
        assert_eq!(found[0].entity, [("user".to_owned(), None)]);
        oracle::survives_damage::<AlterClientQuotas>(1, &body);
    }
}
