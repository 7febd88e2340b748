//! The engine's own main, built with the tests so that they always run what was built.
fn main() -> std::process::ExitCode {
    engine::main()
}
