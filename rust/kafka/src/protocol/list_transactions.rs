//! `ListTransactions`: the transactional ids that a broker coordinates, with their producers (KIP-664).

use crate::error_code::ErrorCode;

use super::{Api, Request};
use crate::wire::{DecodeError, Reader, Writer};

/// Asks a broker for the transactional ids of producers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListTransactions {
    pub(crate) producer_ids: Vec<i64>,
}

/// The transactional ids that a broker coordinates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedTransactions {
    pub(crate) error: ErrorCode,
    /// Transactional id and producer id.
    pub(crate) listed: Vec<(String, i64)>,
}

impl Request for ListTransactions {
    const API: Api = Api {
        key: 66,
        name: "ListTransactions",
        versions: (0, 0),
        flexible: 0,
    };

    type Answer = ListedTransactions;

    fn write(&self, _version: i16, out: &mut Writer) {
        let states: [&str; 0] = [];
        out.compact_array(&states, |out, state| out.compact_string(state));
        out.compact_array(&self.producer_ids, |out, id| out.int64(*id));
    }

    fn read(_version: i16, from: &mut Reader) -> Result<ListedTransactions, DecodeError> {
        from.throttle()?;
        let error = from.error_code()?;
        from.compact_array(1, Reader::compact_string)?; // unknown states
        let listed = from.structures(11, |from| {
            let transactional_id = from.compact_string()?;
            let producer_id = from.int64()?;
            from.compact_string()?; // state
            Ok((transactional_id, producer_id))
        })?;
        Ok(ListedTransactions { error, listed })
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::list_transactions_response::TransactionState;
    use kafka_protocol::messages::{
        ListTransactionsRequest, ListTransactionsResponse, ProducerId, TransactionalId,
    };
    use kafka_protocol::protocol::StrBytes;

    use super::super::{oracle, read_throttled};
    use super::ListTransactions;

    #[test]
    fn transactional_ids_are_asked_for_as_kafka_expects() {
        let request = ListTransactions {
            producer_ids: vec![77, 78],
        };
        let asked: ListTransactionsRequest = oracle::read(&request, 0);
        assert!(asked.state_filters.is_empty());
        assert_eq!(asked.producer_id_filters, [ProducerId(77), ProducerId(78)]);
        let state = TransactionState::default()
            .with_transactional_id(TransactionalId(StrBytes::from_static_str("x")))
            .with_transaction_state(StrBytes::from_static_str("Ongoing"))
            .with_producer_id(ProducerId(77));
        let answer = ListTransactionsResponse::default()
            .with_throttle_time_ms(3)
            .with_error_code(14)
            .with_transaction_states(vec![state]);
        let body = oracle::write(&answer, 0);
        let (found, throttle_ms) = read_throttled::<ListTransactions>(0, body.clone()).unwrap();
        assert_eq!((throttle_ms, found.error.0), (3, 14));
        assert_eq!(found.listed, [("x".to_owned(), 77)]);
        oracle::survives_damage::<ListTransactions>(0, &body);
    }
}
