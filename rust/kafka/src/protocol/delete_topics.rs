//! `DeleteTopics` by topic id (KIP-516): a name may be that of another topic by the time the request arrives.

use super::{Api, Request};
use crate::error_code::ErrorCode;
use crate::topic::TopicId;
use crate::wire::{DecodeError, Reader, Writer};

/// Time in ms in which the controller is to have deleted the topics; a broker is asked again after 12 s.
const TIMEOUT_MS: i32 = 10_000;

/// Deletes topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeleteTopics {
    pub(crate) ids: Vec<TopicId>,
}

impl Request for DeleteTopics {
    // 6 is the first version with topic ids
    const API: Api = Api {
        key: 20,
        name: "DeleteTopics",
        versions: (6, 6),
        flexible: 4,
    };

    type Answer = Vec<(TopicId, ErrorCode)>;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.structures(&self.ids, |out, id| {
            out.nullable_compact_string(None); // name
            out.topic_id(*id);
        });
        out.int32(TIMEOUT_MS);
    }

    fn read(_version: i16, from: &mut Reader) -> Result<Self::Answer, DecodeError> {
        from.throttle()?;
        from.structures(21, |from| {
            from.nullable_compact_string()?; // name
            let id = from.topic_id()?;
            let error = from.error_code()?;
            from.nullable_compact_string()?; // message
            Ok((id, error))
        })
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
    use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName};
    use kafka_protocol::protocol::StrBytes;
    use uuid::Uuid;

    use super::super::{oracle, read_throttled};
    use super::DeleteTopics;
    use crate::error_code::ErrorCode;
    use crate::topic::TopicId;

    #[test]
    fn topics_are_named_by_id_alone() {
        let ids = vec![TopicId([7; 16]), TopicId([9; 16])];
        let asked: DeleteTopicsRequest = oracle::read(&DeleteTopics { ids }, 6);
        assert!(asked.topic_names.is_empty());
        let named: Vec<_> = asked
            .topics
            .iter()
            .map(|topic| (topic.name.clone(), topic.topic_id))
            .collect();
        let wanted = [7, 9].map(|byte| (None, Uuid::from_bytes([byte; 16])));
        assert_eq!(named, wanted);
        assert!((1..12_000).contains(&asked.timeout_ms));
    }

    #[test]
    fn each_topic_has_its_answer() {
        let text = StrBytes::from_static_str;
        let topic = |byte, code| {
            DeletableTopicResult::default()
                .with_topic_id(Uuid::from_bytes([byte; 16]))
                .with_error_code(code)
        };
        let gone = topic(9, 100).with_error_message(Some(text("no such topic")));
        let deleted = topic(7, 0).with_name(Some(TopicName(text("orders"))));
        let answer = DeleteTopicsResponse::default()
            .with_throttle_time_ms(7)
            .with_responses(vec![deleted, gone]);
        let body = oracle::write(&answer, 6);
        let (found, throttle_ms) = read_throttled::<DeleteTopics>(6, body.clone()).unwrap();
        let wanted = [
            (TopicId([7; 16]), ErrorCode::NONE),
            (TopicId([9; 16]), ErrorCode::UNKNOWN_TOPIC_ID),
        ];
        assert_eq!((throttle_ms, &found[..]), (7, &wanted[..]));
        oracle::survives_damage::<DeleteTopics>(6, &body);
    }
}
