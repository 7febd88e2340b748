//! The one binary, `crucible`.

fn main() -> std::process::ExitCode {
    engine::main()
}
