//! Offsets of a consumer group in the open transaction.

use std::time::Instant;

use super::producer::TransactionalProducer;
use crate::error::Error;
use crate::error_code::ErrorCode;
use crate::network::Peer;
use crate::protocol::offset_commit::{FindGroupCoordinator, TxnOffsetCommit};
use crate::topic::TopicPartition;
use crate::transaction_state::{Identity, Protocol};

const WHAT: &str = "committing offsets in a transaction";

impl TransactionalProducer {
    /// Commits offsets of a group when the open transaction commits; only in protocol V2. `offsets` are sorted.
    pub fn commit_offsets(
        &mut self,
        group: &str,
        offsets: &[(TopicPartition, i64)],
        deadline: Instant,
    ) -> Result<(), Error> {
        let (Some(identity), Protocol::V2) = (self.identity(), self.protocol()) else {
            return Err(Error::InvalidState {
                call: "commit_offsets",
                state: "no transaction of protocol V2 is open",
            });
        };
        let Identity { producer_id, epoch } = identity;
        let request = TxnOffsetCommit {
            transactional_id: self.transactional_id().to_owned(),
            group: group.to_owned(),
            producer_id,
            epoch,
            offsets: offsets.to_vec(),
        };
        let find = FindGroupCoordinator {
            group: group.to_owned(),
        };
        let refused = |code| Error::Refused {
            what: format!("offsets of group {group}"),
            code,
        };
        let started = self.client().clock().now();
        self.wrote();
        loop {
            let client = self.client();
            let found = client.call_any(&find, WHAT, deadline)?;
            let passing = if found.error.is_none() {
                let peer = Peer::Broker(found.broker);
                match client.call_for_now(peer, &request, WHAT, deadline) {
                    Ok(answer) => {
                        let failed = answer.iter().find(|(_, _, code)| !code.is_none());
                        match failed.map(|(_, _, code)| *code) {
                            None => return Ok(()),
                            Some(code @ ErrorCode::INVALID_PRODUCER_EPOCH) => {
                                return Err(Error::MustAbort {
                                    what: format!("offsets of group {group}"),
                                    batch: None,
                                    code,
                                });
                            }
                            Some(code) if code.is_passing_for_leader() => code.to_string(),
                            Some(code) => return Err(refused(code)),
                        }
                    }
                    Err(error) if error.is_final() => return Err(error),
                    Err(error) => error.to_string(),
                }
            } else if found.error.is_passing_for_coordinator() {
                found.error.to_string()
            } else {
                return Err(refused(found.error));
            };
            client.rest_before(WHAT, started, deadline, &passing)?;
        }
    }
}
