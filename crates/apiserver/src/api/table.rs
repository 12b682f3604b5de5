//! Objects as rows for people.

use serde_json::{Value, json};

use super::{Api, context::Context};
use crate::{
    object,
    registry::Resource,
    status::{Result, Status},
    table::{Include, Printer},
};

impl Resource {
    fn printer(&self) -> Printer {
        match &self.crd {
            Some(crd) => Printer::custom(&crd.columns),
            None => Printer::built_in(&self.group, &self.kind),
        }
    }
}

impl Api {
    /// The `Table` of some objects.
    pub(crate) fn table(
        &self,
        context: &Context,
        resource: &Resource,
        objects: &[Value],
        revision: u64,
        metadata: Option<&Value>,
    ) -> Result<Value> {
        let include =
            Include::parse(context.query.text("includeObject")).map_err(Status::bad_request)?;
        let own = json!({"resourceVersion": revision.to_string()});
        let metadata = metadata.unwrap_or(&own);
        Ok(resource
            .printer()
            .table(objects, include, metadata, self.clock.now()))
    }

    /// The `Table` of objects that have a printer of their own.
    pub(crate) fn print(
        &self,
        context: &Context,
        printer: &Printer,
        objects: &[Value],
    ) -> Result<Value> {
        let include =
            Include::parse(context.query.text("includeObject")).map_err(Status::bad_request)?;
        let version = objects.first().map(object::resource_version);
        let metadata = json!({"resourceVersion": version});
        Ok(printer.table(objects, include, &metadata, self.clock.now()))
    }

    /// The `Table` of one event of a watch; only the first carries the columns.
    pub(crate) fn watch_table(
        &self,
        resource: &Resource,
        object: &Value,
        include: Include,
        headers: bool,
    ) -> Value {
        let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
        let objects = std::slice::from_ref(object);
        let mut table = resource
            .printer()
            .table(objects, include, &metadata, self.clock.now());
        if !headers {
            table["columnDefinitions"] = Value::Null;
        }
        table
    }
}
