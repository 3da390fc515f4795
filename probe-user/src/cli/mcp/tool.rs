//! The tools, and how a call becomes a command line. `tools.json` has all of them: a property is the flag of
//! the same name, except for the command's argument.

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::cli::args::Form;

const TOOLS: &str = include_str!("tools.json");

#[derive(Debug, Deserialize)]
pub(in crate::cli) struct Tool {
    name: String,
    title: String,
    description: String,
    /// The command.
    words: Vec<String>,
    /// The flag that names a recording. Empty: it needs none. `None`: a recording does not have this.
    pub(super) recording: Option<String>,
    /// The property that is the command's argument.
    argument: Option<String>,
    #[serde(default)]
    required: Vec<String>,
    /// Whether each node of a cluster answers the same.
    #[serde(default)]
    pub(in crate::cli) is_one_enough: bool,
    properties: Map<String, Value>,
}

/// A call of a tool.
pub(in crate::cli) struct Call<'a> {
    pub(in crate::cli) tool: &'a Tool,
    pub(in crate::cli) form: Form,
    /// The nodes to ask; all if empty.
    pub(in crate::cli) nodes: Vec<String>,
    flags: Vec<String>,
    argument: Option<String>,
    /// How many objects to leave out at the beginning, and to show at most.
    pub(super) skip: usize,
    pub(super) limit: usize,
}

/// The longest word that becomes part of a command line, bytes.
const MAX_WORD_BYTES: usize = 4096;
const MAX_NODES: usize = 1000;

impl Tool {
    /// Reads all tools. If there are several nodes, calls may name some of them.
    pub(super) fn all(is_cluster: bool) -> anyhow::Result<Vec<Self>> {
        let mut tools: Vec<Self> = serde_json::from_str(TOOLS).context("the tools")?;
        for tool in &mut tools {
            let common = json!({
                "limit": {"type": "integer", "minimum": 1, "description": "How many objects to show at most"},
                "skip": {"type": "integer", "minimum": 0, "description": "How many objects to leave out first, to read on after an answer that was cut"},
            });
            let nodes = json!({
                "node": {"type": "array", "items": {"type": "string"}, "description": "Only these nodes; all if absent"},
            });
            for more in [Some(common), is_cluster.then_some(nodes)].into_iter().flatten() {
                if let Value::Object(more) = more {
                    tool.properties.extend(more);
                }
            }
        }
        Ok(tools)
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name
    }

    /// Describes the tool to a client.
    pub(super) fn described(&self) -> Value {
        json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": {
                "type": "object",
                "properties": self.properties,
                "required": self.required,
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": true,
                "destructiveHint": false,
                "idempotentHint": true,
                "openWorldHint": false,
            },
        })
    }

    /// Returns the call with these arguments, or what is wrong with them.
    pub(super) fn call(&self, arguments: &Map<String, Value>) -> Result<Call<'_>, String> {
        let mut call = Call {
            tool: self,
            form: Form::Json,
            nodes: Vec::new(),
            flags: Vec::new(),
            argument: None,
            skip: 0,
            limit: usize::MAX,
        };
        for (name, value) in arguments {
            let schema = self.properties.get(name).ok_or_else(|| self.unknown(name))?;
            match (schema["type"].as_str(), value) {
                (Some("boolean"), Value::Bool(true)) => call.flags.push(format!("--{name}")),
                (Some("boolean"), Value::Bool(false)) | (_, Value::Null) => {}
                (Some("string"), Value::String(text)) if self.argument.as_ref() == Some(name) => {
                    call.argument = Some(word(name, text)?.to_owned());
                }
                (Some("string"), Value::String(text)) => {
                    call.flags.push(format!("--{name}={}", word(name, text)?));
                }
                (Some("integer"), Value::Number(number)) => {
                    let number = number
                        .as_u64()
                        .and_then(|it| usize::try_from(it).ok())
                        .ok_or_else(|| of_type(name, schema))?;
                    match name.as_str() {
                        "skip" => call.skip = number,
                        _ if number == 0 => return Err(of_type(name, schema)),
                        _ => call.limit = number,
                    }
                }
                (Some("array"), Value::Array(nodes)) if nodes.len() <= MAX_NODES => {
                    for node in nodes {
                        let node = node.as_str().ok_or_else(|| of_type(name, schema))?;
                        call.nodes.push(word(name, node)?.to_owned());
                    }
                }
                _ => return Err(of_type(name, schema)),
            }
        }
        if let Some(name) = self.required.iter().find(|name| !arguments.contains_key(*name)) {
            return Err(format!("{name} is missing"));
        }
        // The list without an argument is for people, and short.
        if self.argument.is_some() && call.argument.is_none() {
            call.form = Form::Text;
        }
        Ok(call)
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.properties.keys().map(String::as_str).collect();
        format!("{} has no argument {name:?}: it has {}", self.name, names.join(", "))
    }
}

fn of_type(name: &str, schema: &Value) -> String {
    let is_list = schema["type"] == "array";
    format!("{name} must be of the type {}{}", schema["type"], if is_list { ", of strings" } else { "" })
}

fn word<'a>(name: &str, text: &'a str) -> Result<&'a str, String> {
    if text.is_empty() || text.len() > MAX_WORD_BYTES || text.contains('\0') {
        return Err(format!("{name} must have 1 to {MAX_WORD_BYTES} bytes, and no NUL"));
    }
    Ok(text)
}

impl Call<'_> {
    /// Returns the command line, with these flags too.
    pub(in crate::cli) fn words(&self, more: &[String]) -> Vec<String> {
        let mut words = self.tool.words.clone();
        words.extend_from_slice(&self.flags);
        words.extend_from_slice(more);
        match self.form {
            Form::Json => words.push("--output=json".to_owned()),
            Form::Text => {}
        }
        if let Some(argument) = &self.argument {
            // It may begin like a flag.
            words.extend(["--".to_owned(), argument.clone()]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Tool;
    use crate::cli::Cli;

    fn words(name: &str, arguments: &Value) -> Result<String, String> {
        let tools = Tool::all(true).expect("the tools");
        let tool = tools.iter().find(|tool| tool.is_called(name)).expect("the tool");
        tool.call(arguments.as_object().expect("an object")).map(|call| call.words(&[]).join(" "))
    }

    #[test]
    fn a_call_becomes_a_command_line() {
        for (name, arguments, line) in [
            ("incidents", json!({}), "findings --incidents --output=json"),
            (
                "incidents",
                json!({"all": true, "pod": "shop/web; rm -rf /", "limit": 3, "node": ["a"]}),
                "findings --incidents --all --pod=shop/web; rm -rf / --output=json",
            ),
            ("explain", json!({"finding": "--socket=x"}), "explain --output=json -- --socket=x"),
            ("explain_pod", json!({"pod": "web-0"}), "explain pod --output=json -- web-0"),
            ("pods", json!({"slow": false, "sort": "start"}), "pods --sort=start --output=json"),
            ("boot", json!({"restarts": true}), "boot --restarts --output=json"),
            ("known", json!({}), "known"),
            ("known", json!({"id": "x"}), "known --output=json -- x"),
        ] {
            assert_eq!(words(name, &arguments).as_deref(), Ok(line));
        }
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (name, arguments, why) in [
            ("explain", json!({}), "finding is missing"),
            ("explain", json!({"finding": ""}), "finding must have 1 to 4096 bytes, and no NUL"),
            ("explain", json!({"finding": "a\0"}), "finding must have 1 to 4096 bytes, and no NUL"),
            ("explain", json!({"finding": 7}), "finding must be of the type \"string\""),
            (
                "leaks",
                json!({"host-root": "/"}),
                "leaks has no argument \"host-root\": it has limit, node, skip",
            ),
            ("pods", json!({"limit": -1}), "limit must be of the type \"integer\""),
            ("pods", json!({"node": [1]}), "node must be of the type \"array\", of strings"),
        ] {
            assert_eq!(words(name, &arguments), Err(why.to_owned()));
        }
    }

    /// Each flag and each value in `tools.json` is one of the command.
    #[test]
    #[cfg(feature = "live")]
    fn each_tool_is_a_command_with_its_flags() {
        use clap::Parser as _;

        for tool in Tool::all(false).expect("the tools") {
            let mut lines = vec![tool.call(&serde_json::Map::new())];
            for (name, schema) in &tool.properties {
                let value = match schema["type"].as_str() {
                    Some("boolean") => json!(true),
                    Some("integer") => json!(1),
                    _ if name == "kind" => json!("cni_slow"),
                    _ if name == "sort" => json!("start"),
                    _ => json!("some"),
                };
                lines.push(tool.call(&[(name.clone(), value)].into_iter().collect()));
            }
            for call in lines.into_iter().flatten() {
                let recording = tool.recording.iter().filter(|flag| !flag.is_empty());
                let more: Vec<String> = recording.map(|flag| format!("{flag}=x")).collect();
                let words = call.words(&more);
                let typed = ["sandprobe".to_owned()].into_iter().chain(words.clone());
                assert!(Cli::try_parse_from(typed).is_ok(), "{words:?}");
            }
        }
    }
}
