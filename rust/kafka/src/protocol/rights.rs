//! Requests that change nothing, whatever the answer, and whose error code tells of a right.
//!
//! A broker checks rights before anything else. What it finds after that is wrong on purpose: no records, no producer,
//! no member, no topics.

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Writes no records to partition 0 of topics: needs Write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProduceNothing {
    pub(crate) topics: Vec<String>,
}

impl Request for ProduceNothing {
    // in later versions topics go by id
    const API: Api = Api {
        key: 0,
        name: "Produce",
        versions: (9, 12),
        flexible: 9,
    };

    type Answer = Vec<(String, ErrorCode)>;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.varint(0); // no transactional id
        out.int16(-1);
        out.int32(1_000);
        out.structures(&self.topics, |out, topic| {
            out.compact_string(topic);
            out.structures(&[0], |out, partition| {
                out.int32(*partition);
                out.compact_bytes(&[]);
            });
        });
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError> {
        let answer = from.structures(3, |from| {
            let topic = from.compact_string()?;
            let codes = from.structures(33, |from| {
                from.int32()?; // partition
                let code = from.error_code()?;
                from.int64()?; // base offset
                from.int64()?; // append time
                from.int64()?; // log start
                from.structures(6, |from| {
                    from.int32()?;
                    from.nullable_compact_string()
                })?;
                from.nullable_compact_string()?; // message
                Ok(code)
            })?;
            Ok((topic, codes.into_iter().next().unwrap_or_default()))
        })?;
        from.throttle()?;
        Ok(answer)
    }
}

/// A heartbeat of a member that does not exist: needs Read on the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NoHeartbeat {
    pub(crate) group: String,
}

impl Request for NoHeartbeat {
    const API: Api = Api {
        key: 12,
        name: "Heartbeat",
        versions: (4, 4),
        flexible: 4,
    };

    type Answer = ErrorCode;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_string(&self.group);
        out.int32(-1); // generation
        out.compact_string(""); // member
        out.varint(0); // no static member
    }

    fn read(_version: i16, from: &mut Reader) -> Result<ErrorCode, DecodeError> {
        from.throttle()?;
        from.error_code()
    }
}

/// Asks for a group: needs Describe on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribeGroup {
    pub(crate) group: String,
}

impl Request for DescribeGroup {
    const API: Api = Api {
        key: 15,
        name: "DescribeGroups",
        versions: (5, 5),
        flexible: 5,
    };

    type Answer = ErrorCode;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_array(&[&self.group], |out, group| out.compact_string(group));
        out.bool(false);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<ErrorCode, DecodeError> {
        from.throttle()?;
        let codes = from.structures(12, |from| {
            let code = from.error_code()?;
            for _ in 0..4 {
                from.compact_string()?; // group, state, type, protocol
            }
            from.structures(7, |from| {
                from.compact_string()?;
                from.nullable_compact_string()?;
                from.compact_string()?;
                from.compact_string()?;
                from.nullable_compact_bytes()?;
                from.nullable_compact_bytes()
            })?;
            from.int32()?; // authorized operations
            Ok(code)
        })?;
        Ok(codes.into_iter().next().unwrap_or_default())
    }
}

/// Deletes the offsets of no topics of a group: needs Delete on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeleteNoOffsets {
    pub(crate) group: String,
}

impl Request for DeleteNoOffsets {
    const API: Api = Api {
        key: 47,
        name: "OffsetDelete",
        versions: (0, 0),
        flexible: i16::MAX,
    };

    type Answer = ErrorCode;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.string(&self.group);
        out.int32(0); // topics
    }

    fn read(_version: i16, from: &mut Reader) -> Result<ErrorCode, DecodeError> {
        let code = from.error_code()?;
        from.throttle()?;
        from.array(4, |_| Ok(()))?; // topics
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_groups_response::{
        DescribedGroup, DescribedGroupMember,
    };
    use kafka_protocol::messages::produce_response::{
        BatchIndexAndErrorMessage, PartitionProduceResponse, TopicProduceResponse,
    };
    use kafka_protocol::messages::{
        DescribeGroupsRequest, DescribeGroupsResponse, GroupId, HeartbeatRequest,
        HeartbeatResponse, OffsetDeleteRequest, OffsetDeleteResponse, ProduceRequest,
        ProduceResponse, TopicName,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read_throttled};
    use super::{DeleteNoOffsets, DescribeGroup, NoHeartbeat, ProduceNothing};

    #[test]
    fn nothing_is_produced_as_kafka_expects() {
        let request = ProduceNothing {
            topics: vec!["a".to_owned(), "b".to_owned()],
        };
        let asked: ProduceRequest = oracle::read(&request, 9);
        assert_eq!((asked.transactional_id, asked.acks), (None, -1));
        let topic = &asked.topic_data[1];
        assert_eq!(topic.name.as_str(), "b");
        assert_eq!(topic.partition_data.len(), 1);
        let data = &topic.partition_data[0];
        assert_eq!((data.index, data.records.as_deref()), (0, Some(&b""[..])));

        let refused = PartitionProduceResponse::default()
            .with_error_code(29)
            .with_record_errors(vec![BatchIndexAndErrorMessage::default()])
            .with_error_message(Some(StrBytes::from_static_str("no")));
        let answer = ProduceResponse::default()
            .with_throttle_time_ms(3)
            .with_responses(vec![
                TopicProduceResponse::default()
                    .with_name(TopicName(StrBytes::from_static_str("a")))
                    .with_partition_responses(vec![refused]),
            ]);
        for version in [9, 12] {
            let body = oracle::write(&answer, version);
            let (read, _) = read_throttled::<ProduceNothing>(version, body.clone()).unwrap();
            assert_eq!((read[0].0.as_str(), read[0].1.0), ("a", 29));
            oracle::survives_damage::<ProduceNothing>(version, &body);
        }
    }

    #[test]
    fn groups_are_asked_as_kafka_expects() {
        let group = "g".to_owned();
        let beat: HeartbeatRequest = oracle::read(
            &NoHeartbeat {
                group: group.clone(),
            },
            4,
        );
        assert_eq!((beat.group_id.as_str(), beat.generation_id), ("g", -1));
        assert_eq!(
            (beat.member_id.as_str(), beat.group_instance_id),
            ("", None)
        );
        let body = oracle::write(&HeartbeatResponse::default().with_error_code(30), 4);
        assert_eq!(read_throttled::<NoHeartbeat>(4, body).unwrap().0.0, 30);

        let asked: DescribeGroupsRequest = oracle::read(
            &DescribeGroup {
                group: group.clone(),
            },
            5,
        );
        assert_eq!(asked.groups, [GroupId(StrBytes::from_static_str("g"))]);
        let described = DescribedGroup::default()
            .with_error_code(30)
            .with_members(vec![DescribedGroupMember::default()]);
        let answer = DescribeGroupsResponse::default().with_groups(vec![described]);
        let body = oracle::write(&answer, 5);
        assert_eq!(
            read_throttled::<DescribeGroup>(5, body.clone())
                .unwrap()
                .0
                .0,
            30
        );
        oracle::survives_damage::<DescribeGroup>(5, &body);

        let deleted: OffsetDeleteRequest = oracle::read(&DeleteNoOffsets { group }, 0);
        assert_eq!((deleted.group_id.as_str(), deleted.topics.len()), ("g", 0));
        let body = oracle::write(&OffsetDeleteResponse::default().with_error_code(30), 0);
        assert_eq!(read_throttled::<DeleteNoOffsets>(0, body).unwrap().0.0, 30);
    }
}
