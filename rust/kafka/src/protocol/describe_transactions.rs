//! `DescribeTransactions`: the producer id of a transactional id, and the state of its transaction (KIP-664).

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks the coordinator of one transactional id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DescribeTransaction {
    pub(crate) transactional_id: String,
}

/// The state of the transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescribedTransaction {
    pub(crate) error: ErrorCode,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    /// The transaction is decided, and its markers are being written.
    pub(crate) is_ending: bool,
    /// The transaction is open: its coordinator aborts it when its time is up.
    pub(crate) is_ongoing: bool,
    /// Time of the transaction's first partition in ms since the epoch; -1 for none.
    pub(crate) started_ms: i64,
    /// Time in ms after which its coordinator aborts it.
    pub(crate) timeout_ms: i32,
}

impl Request for DescribeTransaction {
    const API: Api = Api {
        key: 65,
        name: "DescribeTransactions",
        versions: (0, 0),
        flexible: 0,
    };

    type Answer = DescribedTransaction;

    fn write(&self, _version: i16, out: &mut Writer) {
        out.compact_array(std::slice::from_ref(&self.transactional_id), |out, id| {
            out.compact_string(id);
        });
    }

    fn read(_version: i16, from: &mut Reader) -> Result<DescribedTransaction, DecodeError> {
        from.throttle()?;
        let described = from.structures(29, |from| {
            let error = from.error_code()?;
            from.compact_string()?; // transactional id
            let state = from.compact_string()?;
            let timeout_ms = from.int32()?;
            let started_ms = from.int64()?;
            let producer_id = from.int64()?;
            let producer_epoch = from.int16()?;
            from.structures(3, |from| {
                from.compact_string()?;
                from.compact_array(4, Reader::int32)
            })?;
            Ok(DescribedTransaction {
                error,
                producer_id,
                producer_epoch,
                is_ending: matches!(state.as_ref(), "PrepareCommit" | "PrepareAbort"),
                is_ongoing: state == "Ongoing",
                started_ms,
                timeout_ms,
            })
        })?;
        let [described] = described[..] else {
            return Err(DecodeError {
                reason: "it is not about the one transactional id that was asked about",
            });
        };
        Ok(described)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::describe_transactions_response::{TopicData, TransactionState};
    use kafka_protocol::messages::{
        DescribeTransactionsRequest, DescribeTransactionsResponse, ProducerId, TopicName,
        TransactionalId,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read, read_throttled};
    use super::DescribeTransaction;

    #[test]
    fn a_transactional_id_is_asked_for_as_kafka_expects() {
        let request = DescribeTransaction {
            transactional_id: "x".to_owned(),
        };
        let asked: DescribeTransactionsRequest = oracle::read(&request, 0);
        assert_eq!(
            asked.transactional_ids,
            [TransactionalId(StrBytes::from_static_str("x"))]
        );
        let topic = TopicData::default()
            .with_topic(TopicName(StrBytes::from_static_str("a")))
            .with_partitions(vec![1, 2]);
        let state = TransactionState::default()
            .with_error_code(15)
            .with_transactional_id(TransactionalId(StrBytes::from_static_str("x")))
            .with_transaction_state(StrBytes::from_static_str("Ongoing"))
            .with_producer_id(ProducerId(77))
            .with_producer_epoch(5)
            .with_transaction_timeout_ms(60_000)
            .with_transaction_start_time_ms(1_234)
            .with_topics(vec![topic]);
        let answer = |count| {
            DescribeTransactionsResponse::default()
                .with_throttle_time_ms(3)
                .with_transaction_states(vec![state.clone(); count])
        };
        let body = oracle::write(&answer(1), 0);
        let (read_back, throttle_ms) =
            read_throttled::<DescribeTransaction>(0, body.clone()).unwrap();
        assert_eq!(
            (throttle_ms, read_back.error.0, read_back.producer_id),
            (3, 15, 77)
        );
        assert_eq!(read_back.producer_epoch, 5);
        assert_eq!(
            (read_back.started_ms, read_back.timeout_ms),
            (1_234, 60_000)
        );
        assert!(read_back.is_ongoing);
        oracle::survives_damage::<DescribeTransaction>(0, &body);
        for count in [0, 2] {
            assert!(read::<DescribeTransaction>(0, oracle::write(&answer(count), 0)).is_err());
        }
        let names = [
            "Empty",
            "Ongoing",
            "PrepareCommit",
            "CompleteCommit",
            "PrepareAbort",
        ];
        let ending = names.map(|name| {
            let state = state
                .clone()
                .with_transaction_state(StrBytes::from_static_str(name));
            let answer =
                DescribeTransactionsResponse::default().with_transaction_states(vec![state]);
            let body = oracle::write(&answer, 0);
            read::<DescribeTransaction>(0, body).unwrap().is_ending
        });
        assert_eq!(ending, [false, false, true, false, true]);
    }
}
