//! Turns a script in a sandbox into a caller of the broker's tools (`tool`).
//! It refuses to know any tool: the broker lists them.

use std::io::Read as _;

use broker::mcp::call::{CallError, Caller};
use policy::json::parse_object;
use serde_json::{Map, Value};

use super::args::{ToolCallArgs, ToolCommand};
use super::error::CliError;
use super::exit::Exit;
use super::run::{print, runtime};
use crate::report::plain;
use crate::sys::env::Environment;

/// The most that is read of standard input, in bytes.
const INPUT_MAX: u64 = 16 << 20;

/// Lists or calls tools.
///
/// # Errors
/// Where there are none, and arguments that are no JSON object. A tool that fails is an exit code.
pub fn tool(command: &ToolCommand) -> Result<Exit, CliError> {
    let caller = caller(&Environment::of_this_process())?;
    match command {
        ToolCommand::List { json } => {
            let tools = runtime()?.block_on(caller.list()).map_err(CliError::Tool)?;
            print(&if *json { format!("{:#}\n", Value::Array(tools)) } else { table(&tools) })?;
            Ok(Exit::Ok)
        }
        ToolCommand::Call(args) => {
            let arguments = arguments(args)?;
            let (failed, said) =
                runtime()?.block_on(caller.call(&args.name, arguments)).map_err(CliError::Tool)?;
            print(&format!("{said}\n"))?;
            Ok(if failed { Exit::Failure } else { Exit::Ok })
        }
    }
}

fn caller(env: &Environment) -> Result<Caller, CliError> {
    let value = |name: &str| env.value(name).and_then(|value| value.to_str()).map(str::to_owned);
    let (url, token) = value(broker::mcp::URL).zip(value(broker::mcp::TOKEN)).ok_or(CliError::NoTools)?;
    Caller::new(&url, token).map_err(CliError::Tool)
}

fn arguments(args: &ToolCallArgs) -> Result<Map<String, Value>, CliError> {
    let text = if args.json == "-" {
        let mut text = String::new();
        let read = std::io::stdin().lock().take(INPUT_MAX).read_to_string(&mut text);
        read.map_err(|source| CliError::Io { doing: "read the arguments", source })?;
        text
    } else {
        args.json.clone()
    };
    read(&text).map_err(|why| CliError::Tool(CallError::Arguments(why)))
}

/// One JSON object in which no key stands twice.
fn read(text: &str) -> Result<Map<String, Value>, String> {
    parse_object(text.as_bytes()).map_err(|error| error.to_string())
}

/// A line for each tool, with the names of its arguments.
fn table(tools: &[Value]) -> String {
    let line = |tool: &Value| {
        let properties = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
        let names: Vec<&str> = properties.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        let text = |key: &str| plain(tool.get(key).and_then(Value::as_str).unwrap_or_default());
        format!("{:<16} {}  {}\n", text("name"), plain(&names.join(", ")), text("description"))
    };
    tools.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_one_object_without_a_key_that_stands_twice() {
        assert_eq!(read(r#"{"item":"P-1"}"#).map(|map| map.len()), Ok(1));
        for text in [r#"{"item":"P-1","item":"P-2"}"#, "[]", "\"item\"", "{} {}", ""] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
