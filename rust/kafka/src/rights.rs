//! Rights that brokers do not report (KIP-430 covers topics that exist): asks with requests that change nothing.

use std::time::Instant;

use crate::error_code::ErrorCode;

use crate::client::Client;
use crate::error::Error;
use crate::protocol::Request;
use crate::protocol::describe_producers::DescribeProducers;
use crate::protocol::rights::{DeleteNoOffsets, DescribeGroup, NoHeartbeat, ProduceNothing};
use crate::protocol::transaction::{EndTxn, EndTxnV1};

/// A right to ask for; the broker does not need to know the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedRight {
    /// Read on a topic.
    ReadTopic,
    /// Write on a topic.
    WriteTopic,
    /// Write on a transactional id.
    WriteTransactionalId,
    /// Describe on a group.
    DescribeGroup,
    /// Read on a group.
    ReadGroup,
    /// Delete on a group.
    DeleteGroup,
}

impl Client {
    /// Returns the resources on which the user lacks a right.
    pub fn lacks(
        &mut self,
        right: AskedRight,
        names: &[String],
        deadline: Instant,
    ) -> Result<Vec<String>, Error> {
        let denied = |name: &String, code: ErrorCode| {
            let codes = [
                ErrorCode::TOPIC_AUTHORIZATION_FAILED,
                ErrorCode::GROUP_AUTHORIZATION_FAILED,
                ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ];
            codes.contains(&code).then(|| name.clone())
        };
        match right {
            AskedRight::ReadTopic => {
                let topics = names.iter().map(|name| (name.clone(), vec![0])).collect();
                let answer = self.probe(&DescribeProducers { topics }, deadline)?;
                let denied = answer.iter().filter_map(|it| denied(&it.topic, it.error));
                Ok(denied.collect())
            }
            AskedRight::WriteTopic => {
                let topics = names.to_vec();
                let answer = self.probe(&ProduceNothing { topics }, deadline)?;
                let denied = answer.iter().filter_map(|(name, code)| denied(name, *code));
                Ok(denied.collect())
            }
            _ => {
                let mut found = Vec::new();
                for name in names {
                    let code = self.code_of(right, name.clone(), deadline)?;
                    found.extend(denied(name, code));
                }
                Ok(found)
            }
        }
    }

    fn code_of(
        &mut self,
        right: AskedRight,
        name: String,
        deadline: Instant,
    ) -> Result<ErrorCode, Error> {
        match right {
            AskedRight::DescribeGroup => self.probe(&DescribeGroup { group: name }, deadline),
            AskedRight::ReadGroup => self.probe(&NoHeartbeat { group: name }, deadline),
            AskedRight::DeleteGroup => self.probe(&DeleteNoOffsets { group: name }, deadline),
            // no producer has this id, so the coordinator ends nothing
            _ => self.probe(
                &EndTxnV1(EndTxn {
                    transactional_id: name,
                    producer_id: -1,
                    epoch: -1,
                    commit: false,
                }),
                deadline,
            ),
        }
    }

    fn probe<R: Request>(&mut self, request: &R, deadline: Instant) -> Result<R::Answer, Error> {
        self.call_any(request, "asking for rights", deadline)
    }
}
