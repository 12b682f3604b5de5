//! `POST /nodes/{node}/execute`: several calls in one, for `root@pam` itself.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Reply};
use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::route::{Route, post};
use crate::schema::{Format, text};

#[derive(Deserialize)]
struct Command {
    path: String,
    method: String,
    #[serde(default)]
    args: serde_json::Map<String, Value>,
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        post("/nodes/{node}/execute", execute)
            .params([text("commands").format(Format::One(|it| parse(it).map(drop)))]),
    ]
}

fn parse(text: &str) -> Result<Vec<Command>, String> {
    serde_json::from_str(text)
        .map_err(|_| "value is not a list of commands with 'path', 'method' and 'args'".to_owned())
}

fn execute(call: &mut Call<'_>) -> Result<Reply, Failure> {
    let node = call.node();
    let commands = parse(call.params.text("commands")).map_err(Failure::die)?;
    let caller = call.caller.clone();
    Ok(Reply::later(move |cluster| async move {
        let mut rows = Vec::new();
        for command in commands {
            rows.push(match one(&cluster, &node, &caller, command).await {
                Ok(data) => json!({ "status": 200, "data": data }),
                Err(failure) => {
                    let mut row = json!({ "status": failure.status, "message": failure.message });
                    if !failure.errors.is_empty() {
                        row["errors"] = json!(failure.errors);
                    }
                    row
                }
            });
        }
        Ok(Reply::Data(Value::Array(rows)))
    }))
}

/// One of the calls; paths are relative to the node, as in PVE.
async fn one(
    cluster: &Cluster,
    node: &str,
    caller: &crate::access::Caller,
    command: Command,
) -> Result<Value, Failure> {
    let path = format!("/nodes/{node}/{}", command.path.trim_matches('/'));
    let method: Method = command.method.to_uppercase().parse().unwrap_or_default();
    let found = cluster.table().find(&method, &path);
    let (route, mut params) =
        found.ok_or_else(|| Failure::not_implemented(method.as_str(), &path))?;
    for (name, value) in command.args {
        params.set(name, text_of(&value));
    }
    let mut reply = cluster.world(|world| {
        let checked = route.schema.check(&mut params, world.release);
        checked.map_err(Failure::params)?;
        if route.writes {
            world.need_quorum(node)?;
        }
        let mut call = Call {
            world,
            params: std::mem::take(&mut params),
            caller,
            entry: node,
            upload: None,
            cluster,
        };
        (route.handler)(&mut call)
    })?;
    loop {
        reply = match reply {
            Reply::Data(value) | Reply::Counted(value, _) => return Ok(value),
            Reply::Json(bytes) => return Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Reply::Text(text) => return Ok(json!(text)),
            Reply::Tunnel(_, port) => return Ok(json!({ "port": port.to_string() })),
            Reply::Task(task) => return Ok(json!(cluster.start(task).to_string())),
            Reply::Later(go_on) => go_on(cluster.clone()).await?,
        };
    }
}

/// What Perl makes of a JSON value.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(yes) => u8::from(*yes).to_string(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
