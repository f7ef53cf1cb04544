//! Requests of an administrator: client quotas (KIP-546), and the deletion of topics by their ids (KIP-516).

use std::collections::BTreeMap;
use std::time::Instant;

use crate::client::Client;
use crate::error::Error;
use crate::error_code::ErrorCode;
use crate::protocol::Request;
use crate::protocol::client_quotas::{
    AlterClientQuotas, ClientQuota, DescribeClientQuotas, QuotaChange, QuotaEntity,
};
use crate::protocol::delete_topics::DeleteTopics;
use crate::topic::TopicId;

impl Client {
    /// Returns all quotas that are set: needs `DescribeConfigs` on the cluster.
    pub fn client_quotas(&mut self, deadline: Instant) -> Result<Vec<ClientQuota>, Error> {
        let what = DescribeClientQuotas::API.name;
        let answer = self.call_any(&DescribeClientQuotas, what, deadline)?;
        if answer.error.is_none() {
            return Ok(answer.quotas);
        }
        Err(refused(what, answer.message, answer.error))
    }

    /// Sets and removes quotas: needs `AlterConfigs` on the cluster.
    ///
    /// Returns the entities that the broker refuses, each with its text.
    pub fn alter_client_quotas(
        &mut self,
        changes: Vec<(QuotaEntity, QuotaChange)>,
        deadline: Instant,
    ) -> Result<Vec<(QuotaEntity, Error)>, Error> {
        let mut entities: BTreeMap<QuotaEntity, Vec<QuotaChange>> = BTreeMap::new();
        for (entity, change) in changes {
            entities.entry(entity).or_default().push(change);
        }
        let request = AlterClientQuotas {
            changes: entities.into_iter().collect(),
            validate_only: false,
        };
        let what = AlterClientQuotas::API.name;
        let answer = self.call_any(&request, what, deadline)?;
        let refusals = answer.into_iter().filter(|each| !each.error.is_none());
        Ok(refusals
            .map(|each| (each.entity, refused(what, each.message, each.error)))
            .collect())
    }

    /// Deletes topics by their ids: needs `Delete` on each. Another topic that has the name of one since is left alone.
    ///
    /// Returns the topics that the broker refuses to delete, with its error; one that does not exist is deleted already.
    pub fn delete_topics(
        &mut self,
        ids: Vec<TopicId>,
        deadline: Instant,
    ) -> Result<Vec<(TopicId, ErrorCode)>, Error> {
        let answer = self.call_any(&DeleteTopics { ids }, DeleteTopics::API.name, deadline)?;
        let done = [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_ID];
        let refusals = answer.into_iter();
        Ok(refusals.filter(|(_, code)| !done.contains(code)).collect())
    }
}

fn refused(what: &str, message: Option<String>, code: ErrorCode) -> Error {
    let what = message.map_or_else(|| what.to_owned(), |text| format!("{what}: {text}"));
    Error::Refused { what, code }
}
